"""Shows each workload as a FluxJob beside the user's object, and says what happens on the object itself.

Writes are the budget of a cluster, so a FluxJob costs two: one to create it, one for its status, which waits a moment so that states that
pass at once are not written at all. It is owned by the user's object, so garbage collection removes it; deleted by hand it comes back.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobStatus, Reason, State, fluxjob_name
from fluxqueue.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from fluxqueue.kube.events import Recorder, Severity, Subject
from fluxqueue.kube.kinds import FLUXJOBS
from fluxqueue.kube.store import Change, ChangeKind
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.records import Workload, WorkloadId

__all__ = ["FluxJobWriter", "status_of"]

log = structlog.get_logger()

_WORKERS = 8
_UNTOLD_S = 10.0
"""A FluxJob is pending by default: that nothing is known yet is written only if it lasts."""
_PASSING_S = 2.0
"""How long a state that usually passes by itself may go unwritten."""
_SETTLED_S = 0.3

_TELLING = {
    Reason.UNSATISFIABLE: Severity.WARNING,
    Reason.INVALID_REQUEST: Severity.WARNING,
    Reason.UNKNOWN_QUEUE: Severity.WARNING,
    Reason.RELEASE_FAILED: Severity.WARNING,
    Reason.WAITING_FOR_NODES: Severity.NORMAL,
}
"""Reasons worth an Event on the user's object."""


class FluxJobWriter:
    """Keeps FluxJobs equal to workloads.

    Parameters
    ----------
    api, caches, ledger
        Where to write, what is there, and what should be.
    recorder
        For Events on the user's object.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: Recorder) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("fluxjobs")
        self._created: set[WorkloadId] = set()
        self._told: dict[WorkloadId, tuple[Reason, str]] = {}
        ledger.subscribe(self._changed)
        caches.fluxjobs.add_handler(self._fluxjob_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._write)

    def look_at_everything(self) -> None:
        """Compare every workload once, as at start and in a sweep."""
        for workload in self._ledger.all():
            self._keys.add(workload.id)

    def _changed(self, found: WorkloadId) -> None:
        workload = self._ledger.get(found)
        if workload is not None and workload.state is State.PENDING and found not in self._created:
            self._keys.add(found)
            return
        self._keys.add_after(found, _patience_s(workload))

    def _fluxjob_changed(self, change: Change[FluxJob]) -> None:
        if change.kind is not ChangeKind.DELETED:
            return
        workload = self._ledger.by_uid(change.obj.spec.object_ref.uid)
        if workload is not None:
            self._created.discard(workload.id)
            self._keys.add(workload.id)

    async def _write(self, found: WorkloadId) -> float | None:
        workload = self._ledger.get(found)
        if workload is None:
            ended = await self._ledger.store.workloads([found])
            self._created.discard(found)
            self._told.pop(found, None)
            if not ended:
                return None
            workload = ended[0]
        name = fluxjob_name(workload.kind, workload.name, workload.uid)
        present = self._caches.fluxjobs.get(workload.namespace, name)
        if present is None and found not in self._created:
            if workload.state.ended or not self._object_exists(workload):
                return None
            try:
                await self._api.create(FLUXJOBS, _manifest(name, workload), workload.namespace)
            except AlreadyExists:
                pass
            except (NotFound, Invalid) as error:
                # The namespace or the owner went meanwhile; should it come back, the sweep looks again.
                log.info("no FluxJob was made", workload=found, error=str(error))
                return None
            self._created.add(found)
            return _patience_s(self._ledger.get(found))
        self._tell(workload)
        if present is not None:
            await self._correct_spec(present, workload)
        wanted = status_of(workload)
        if present is not None and present.status == wanted:
            return None
        try:
            await self._api.patch(
                FLUXJOBS,
                name,
                {"status": _status_json(wanted)},
                namespace=workload.namespace,
                patch_type=PatchType.MERGE,
                subresource="status",
            )
        except NotFound:
            self._created.discard(found)
            return None if workload.state.ended or not self._object_exists(workload) else _SETTLED_S
        except Conflict:
            return _SETTLED_S
        return None

    async def _correct_spec(self, present: FluxJob, workload: Workload) -> None:
        """What the workload became by edits of its object; a person's own edits of the FluxJob are not touched here."""
        spec = present.spec
        if spec.jobspec == workload.jobspec and spec.pods == workload.pods:
            return
        body = {"spec": {"jobspec": workload.jobspec, "pods": workload.pods}}
        await self._api.patch(FLUXJOBS, present.metadata.name, body, namespace=workload.namespace, patch_type=PatchType.MERGE)

    def _object_exists(self, workload: Workload) -> bool:
        store = self._caches.jobs if workload.kind == "Job" else self._caches.pods
        held = store.get_by_uid(workload.uid)
        return held is not None and held.metadata.deletion_timestamp is None

    def _tell(self, workload: Workload) -> None:
        said = (workload.reason, workload.message)
        if workload.state is State.PENDING and workload.reason in _TELLING and self._told.get(workload.id) != said:
            self._told[workload.id] = said
            subject = Subject(workload.api_version, workload.kind, workload.namespace, workload.name, workload.uid)
            self._recorder.record(subject, str(workload.reason), workload.message, severity=_TELLING[workload.reason])


def _patience_s(workload: Workload | None) -> float:
    """How long a workload's status may stay unwritten, because it is likely to change."""
    if workload is not None and workload.state is State.PENDING and workload.reason is Reason.NONE:
        return _UNTOLD_S
    return _PASSING_S if workload is not None and workload.state is State.ALLOCATED else _SETTLED_S


def status_of(workload: Workload) -> FluxJobStatus:
    """The status a FluxJob should show."""
    return FluxJobStatus(
        state=str(workload.state),
        reason=str(workload.reason),
        message=workload.message,
        jobid=int(workload.jobid) if workload.jobid is not None else None,
        nodes=workload.hosts,
        submitted_at=_time(workload.submitted_at),
        allocated_at=_time(workload.allocated_at),
        started_at=_time(workload.started_at),
        finished_at=_time(workload.finished_at),
        outcome=str(workload.outcome),
        requeues=workload.requeues,
    )


def _status_json(status: FluxJobStatus) -> dict[str, Any]:
    """As a merge patch: what is empty is removed."""
    return {
        "state": status.state,
        "reason": status.reason or None,
        "message": status.message or None,
        "jobid": status.jobid,
        "nodes": status.nodes or None,
        "submittedAt": status.submitted_at,
        "allocatedAt": status.allocated_at,
        "startedAt": status.started_at,
        "finishedAt": status.finished_at,
        "outcome": status.outcome or None,
        "requeues": status.requeues or None,
    }


def _manifest(name: str, workload: Workload) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "objectRef": {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name, "uid": workload.uid},
        "queue": workload.queue,
        "priority": workload.priority,
        "pods": workload.pods,
        "jobspec": workload.jobspec,
    }
    if workload.duration_s is not None:
        spec["durationSeconds"] = workload.duration_s
    return {
        "apiVersion": names.API_VERSION,
        "kind": "FluxJob",
        "metadata": {
            "name": name,
            "namespace": workload.namespace,
            "labels": {names.QUEUE_LABEL: workload.queue},
            "ownerReferences": [
                {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name, "uid": workload.uid, "controller": False}
            ],
        },
        "spec": spec,
    }


def _time(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None
