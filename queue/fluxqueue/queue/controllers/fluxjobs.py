"""Shows each workload as a FluxJob beside the user's object.

Writes are the budget of a cluster, so a FluxJob costs two: one to create it, one for its status, which waits a moment so that states that
pass at once are not written at all. Position and estimate move with every job that comes or goes: they are shown for the first hundred
of each queue, at most twice a minute. A FluxJob is owned by the user's object, so garbage collection removes it; deleted by hand it comes
back, with what people had asked for in it.

Part of the spec is a person's as well (`fluxqueue.queue.steering`). It is written only once everything a person changed there has been
taken into the row, and carries the version it was read at, so an edit that comes meanwhile is never overwritten. Edits of a workload
that holds nodes already are refused: the spec is put back, and an Event says why.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobStatus, Reason, State, fluxjob_name
from fluxqueue.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from fluxqueue.kube.events import Recorder, Severity
from fluxqueue.kube.kinds import FLUXJOBS
from fluxqueue.kube.store import Change, ChangeKind
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.batches import Batches
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.controllers.tellings import subjects_of
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.records import Estimate, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.states import ENDED
from fluxqueue.queue.steering import acknowledgement, edits_of, refusal, spec_of, steered, taken_in

__all__ = ["FluxJobWriter", "Shown", "estimates_to_show", "status_of"]

log = structlog.get_logger()

_WORKERS = 8
_BATCH = 500
_UNTOLD_S = 10.0
"""A FluxJob is pending by default: that nothing is known yet is written only if it lasts."""
_PASSING_S = 10.0
"""How long a state that usually passes by itself may go unwritten."""
_SETTLED_S = 0.3
_OWNERS = 100
"""Of a pod group: a FluxJob whose owners are all gone comes back as long as other pods of it are there."""

_PLACES_SHOWN = 100
"""Of each queue: who comes later is told by the queue's API."""
_ESTIMATE_LOOK_S = 2.0
_ESTIMATE_AGE_S = 30.0
"""How old the estimate shown may be."""


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
        self._estimates: Shown = {}
        self._outdated: Batches[str] = Batches("outdated fluxjobs")
        ledger.subscribe(self._changed)
        caches.fluxjobs.add_handler(self._fluxjob_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(run_workers(self._keys, _WORKERS, self._write))
            group.create_task(self._follow_estimates())
            group.create_task(self._outdated.run(self._find_ended, limit=_BATCH))

    def look_at_everything(self) -> None:
        """Compare every workload once, as at start and in a sweep; and every FluxJob that does not say its workload has ended."""
        for workload in self._ledger.all():
            self._keys.add(workload.id)
        for fluxjob in self._caches.fluxjobs.list():
            uid = fluxjob.spec.object_ref.uid
            if self._ledger.by_uid(uid) is None and fluxjob.status.state not in ENDED:
                self._outdated.add(uid)

    async def _find_ended(self, uids: list[str]) -> None:
        """Workloads whose end was stored by a process that did not live to tell it."""
        for workload in await self._ledger.store.workloads_by_uid(uids):
            if workload.state.ended:
                self._keys.add(workload.id)

    def _changed(self, found: WorkloadId) -> None:
        workload = self._ledger.get(found)
        if workload is not None and workload.state is State.PENDING and found not in self._created:
            self._keys.add(found)
            return
        self._keys.add_after(found, _patience_s(workload))

    def _fluxjob_changed(self, change: Change[FluxJob]) -> None:
        workload = self._ledger.by_uid(change.obj.spec.object_ref.uid)
        if workload is None:
            return
        if change.kind is ChangeKind.DELETED:
            self._created.discard(workload.id)
            self._keys.add(workload.id)
        elif edits_of(change.obj):
            # Of a pending one the intake comes first; should it find nothing new in the edit, this acknowledges it.
            self._keys.add_after(workload.id, _SETTLED_S if workload.state is State.PENDING else 0)

    async def _follow_estimates(self) -> None:
        """Show position and estimate of those who are next, once they are known and then twice a minute if they changed."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_ESTIMATE_LOOK_S)
            self._estimates, changed = estimates_to_show(self._estimates, self._ledger.estimates, loop.time())
            for found in changed:
                self._keys.add(found)

    async def _write(self, found: WorkloadId) -> float | None:
        workload = self._ledger.get(found)
        if workload is None:
            ended = await self._ledger.store.workloads([found])
            self._created.discard(found)
            if not ended:
                return None
            workload = ended[0]
        name = fluxjob_name(workload.kind, workload.name, workload.uid)
        present = self._caches.fluxjobs.get(workload.namespace, name)
        if present is not None and workload.state.ended and not present.metadata.owner_references:
            # Its object was deleted with --cascade=orphan: garbage collection will not come for it.
            with contextlib.suppress(NotFound):
                await self._api.delete(FLUXJOBS, name, namespace=workload.namespace, uid=present.metadata.uid)
            return None
        if present is None and found not in self._created:
            if workload.state.ended or not self._object_exists(workload):
                return None
            reach(Point.FLUXJOB_DUE)
            try:
                await self._api.create(FLUXJOBS, _manifest(name, workload, self._owners(workload)), workload.namespace)
            except AlreadyExists:
                pass
            except (NotFound, Invalid) as error:
                # The namespace or the owner went meanwhile; should it come back, the sweep looks again.
                log.info("no FluxJob was made", workload=found, error=str(error))
                return None
            reach(Point.FLUXJOB_MADE)
            self._created.add(found)
            return _patience_s(self._ledger.get(found))
        again_s = await self._correct_spec(present, workload) if present is not None else None
        shown = self._estimates.get(found) if workload.state is State.PENDING else None
        wanted = status_of(workload, shown[0] if shown is not None else None)
        if present is not None and present.status == wanted:
            return again_s
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
        return again_s

    async def _correct_spec(self, present: FluxJob, workload: Workload) -> float | None:
        """Make the spec say what the row says, unless a person said something there that is still to be taken in."""
        if workload.state.ended:
            return None
        known = taken_in(workload, present)
        if workload.state is State.PENDING and not known:
            return _SETTLED_S
        wanted = steered(workload)
        note = acknowledgement(wanted)
        body = {**msgspec.to_builtins(wanted), "jobspec": workload.jobspec, "pods": workload.pods}
        standing = msgspec.to_builtins(spec_of(present)) | {"jobspec": present.spec.jobspec, "pods": present.spec.pods}
        if standing == body and present.metadata.annotation(names.ACKNOWLEDGED_ANNOTATION) == note:
            return None
        metadata = {
            "resourceVersion": present.metadata.resource_version,
            "labels": {names.QUEUE_LABEL: workload.queue},
            "annotations": {names.ACKNOWLEDGED_ANNOTATION: note},
        }
        try:
            await self._api.patch(
                FLUXJOBS,
                present.metadata.name,
                {"metadata": metadata, "spec": body},
                namespace=workload.namespace,
                patch_type=PatchType.MERGE,
            )
        except Conflict:
            return _SETTLED_S
        if not known:
            edits = edits_of(present)
            for subject in subjects_of(workload, self._caches, self._ledger.allocation(workload.id)):
                self._recorder.record(subject, "EditRefused", refusal(workload, edits), severity=Severity.WARNING)
            log.info("an edit was refused", workload=workload.id, uid=workload.uid, state=str(workload.state), fields=sorted(edits))
        return None

    def _owners(self, workload: Workload) -> list[dict[str, Any]]:
        """Whose deletion takes the FluxJob along: its object, or the last of a group's pods."""
        if workload.release_mode is not ReleaseMode.GROUP:
            return [_owner(workload.api_version, workload.kind, workload.name, workload.uid)]
        members = self._caches.members_of(workload, self._ledger.allocation(workload.id))
        return [_owner("v1", "Pod", pod.metadata.name, pod.metadata.uid) for pod in members[:_OWNERS]]

    def _object_exists(self, workload: Workload) -> bool:
        if workload.release_mode is ReleaseMode.GROUP:
            members = self._caches.members_of(workload, self._ledger.allocation(workload.id))
            return any(pod.metadata.deletion_timestamp is None for pod in members)
        store = self._caches.jobs if workload.kind == "Job" else self._caches.pods
        held = store.get_by_uid(workload.uid)
        return held is not None and held.metadata.deletion_timestamp is None


Shown = Mapping[WorkloadId, tuple[Estimate, float]]
"""Estimates that FluxJobs tell, each with the time (seconds of any steady clock) it was decided on."""


def estimates_to_show(shown: Shown, known: Mapping[WorkloadId, Estimate], now: float) -> tuple[Shown, list[WorkloadId]]:
    """Which estimates FluxJobs are to tell: of the first hundred of each queue, and none changed more often than twice a minute.

    Parameters
    ----------
    shown
        What they tell so far.
    known
        What is known by now.
    now
        On the clock of ``shown``.

    Returns
    -------
    tuple
        What they are to tell, and the workloads whose FluxJobs have to be written for it.
    """
    wanted: dict[WorkloadId, tuple[Estimate, float]] = {}
    changed = []
    for found, estimate in known.items():
        if estimate.position > _PLACES_SHOWN:
            continue
        before = shown.get(found)
        if before is not None and (before[0] == estimate or now - before[1] < _ESTIMATE_AGE_S):
            wanted[found] = before
            continue
        wanted[found] = estimate, now
        changed.append(found)
    return wanted, changed


def _patience_s(workload: Workload | None) -> float:
    """How long a workload's status may stay unwritten, because it is likely to change."""
    if workload is not None and workload.state is State.PENDING and workload.reason is Reason.NONE:
        return _UNTOLD_S
    return _PASSING_S if workload is not None and workload.state is State.ALLOCATED else _SETTLED_S


def status_of(workload: Workload, estimate: Estimate | None = None) -> FluxJobStatus:
    """The status a FluxJob should show; the estimate is of one that waits."""
    eta = _time(estimate.eta) if estimate is not None else None
    return FluxJobStatus(
        state=str(workload.state),
        reason=str(workload.reason),
        message=workload.message,
        position=estimate.position if estimate is not None else None,
        eta=eta,
        eta_soonest=_time(estimate.eta_soonest) if estimate is not None else None,
        eta_first=_time(estimate.eta_first) if estimate is not None else None,
        reserved_at=eta if estimate is not None and estimate.reserved else None,
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
        "position": status.position,
        "eta": status.eta,
        "etaSoonest": status.eta_soonest,
        "etaFirst": status.eta_first,
        "reservedAt": status.reserved_at,
        "jobid": status.jobid,
        "nodes": status.nodes or None,
        "submittedAt": status.submitted_at,
        "allocatedAt": status.allocated_at,
        "startedAt": status.started_at,
        "finishedAt": status.finished_at,
        "outcome": status.outcome or None,
        "requeues": status.requeues or None,
    }


def _owner(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": False}


def _manifest(name: str, workload: Workload, owners: list[dict[str, Any]]) -> dict[str, Any]:
    said = steered(workload)
    spec: dict[str, Any] = {
        "objectRef": {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name, "uid": workload.uid},
        **msgspec.to_builtins(said),
        "cancel": workload.wishes.cancel,
        "pods": workload.pods,
        "jobspec": workload.jobspec,
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "FluxJob",
        "metadata": {
            "name": name,
            "namespace": workload.namespace,
            "labels": {names.QUEUE_LABEL: workload.queue},
            "annotations": {names.ACKNOWLEDGED_ANNOTATION: acknowledgement(said)},
            "ownerReferences": owners,
        },
        "spec": spec,
    }


def _time(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None
