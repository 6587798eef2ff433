"""Writes a FluxJob for each workload, next to the user's object.

Writes are the budget of a cluster, so creation and status wait for a while
(`fluxqueue.queue.status.fluxjob_pace`). Position and estimate change with every job that comes or goes: they
are written for the first hundred of each queue, within seconds while few change, else at most twice a minute,
and ten a second in all, or two while much work starts and ends. The user's object owns its FluxJob, so
garbage collection removes it. A FluxJob that a person deletes is created again, with the overrides that
people had set in it.

People edit a part of the spec (`fluxqueue.queue.status.fluxjob_edits`). The queue writes the spec only after
every edit in it is stored in the row, and with the resource version it has read, so a newer edit is never
overwritten. Edits of a workload that holds nodes are refused: the spec is reverted, and an Event gives the
reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec
import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobStatus, State, fluxjob_names
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.kinds import FLUXJOBS
from fluxqueue.kube.object_cache import Change, ChangeKind
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.idleness import not_idle
from fluxqueue.queue.model.reasons import WAITS_FOR_OTHERS
from fluxqueue.queue.model.records import ReleaseMode, Transition, Workload, WorkloadId
from fluxqueue.queue.status.failures import FailureReporter
from fluxqueue.queue.status.fluxjob_edits import (
    acknowledgement,
    editable_spec,
    edits_are_stored,
    edits_of,
    expected_spec,
    refusal_message,
)
from fluxqueue.queue.status.fluxjob_owners import FluxJobOwners
from fluxqueue.queue.status.fluxjob_pace import SETTLED_S, FluxJobPace
from fluxqueue.queue.status.fluxjob_status import (
    ShownEstimates,
    StartEstimates,
    estimates_to_show,
    fluxjob_manifest,
    status_of,
)
from fluxqueue.queue.status.fluxjob_status_writes import FluxJobStatusWrites
from fluxqueue.queue.status.subjects import subjects_of, workload_subjects
from fluxqueue.queue.status.unshown_ends import outdated_fluxjobs, without_fluxjob
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.batches import Batches

__all__ = ["FluxJobWriter"]

log = structlog.get_logger()

_WORKERS = 8
_BATCH = 500
_NO_NAME_S = 60.0
_REJECTED_S = 5.0
_REQUEUES_SHOWN = 5
_ESTIMATES_EVERY_S = 2.0


class FluxJobWriter:
    """Keeps FluxJobs equal to workloads.

    Parameters
    ----------
    api, caches, ledger
        Where FluxJobs are written, which exist, and the queue.
    recorder
        For Events on the user's object.
    estimates
        When work starts, which the scheduler keeps up to date.
    idle
        What is said of idle work.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        recorder: EventRecorder,
        estimates: StartEstimates,
        idle: Callable[[Workload], str] = not_idle,
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._status_writes = FluxJobStatusWrites(api)
        self._owners = FluxJobOwners(caches, ledger)
        self._keys: WorkQueue[WorkloadId] = WorkQueue("fluxjobs")
        self._pace = FluxJobPace(caches, ledger, lambda: self._keys.delayed)
        self._created: dict[WorkloadId, ObjectMeta] = {}
        """Once the caches have a FluxJob, their metadata stands here: a second copy of each would take
        more than a kilobyte as long as its work waits."""
        self._equal: dict[WorkloadId, tuple[Workload, FluxJob]] = {}
        """What was compared and is equal: as long as both are the same objects,
        a resync need not compare them."""
        self._estimates: ShownEstimates = {}
        self._start_estimates = estimates
        self._outdated: Batches[str] = Batches("outdated fluxjobs")
        self._resynced = False
        self._idle = idle

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            failures = FailureReporter(
                self._recorder, "shown in its FluxJob", workload_subjects(self._caches, self._ledger)
            )
            group.create_task(run_workers(self._keys, _WORKERS, self._write, failures.counting("fluxjobs")))
            group.create_task(self._follow_estimates())
            group.create_task(self._outdated.run(self._find_ended, limit=_BATCH))

    def resync(self) -> None:
        """Compare every workload, and every FluxJob that does not show the end of its workload.

        The first time, finished objects without a FluxJob are compared as well: the former leader may have
        ended before it created one.
        """
        equal, self._equal = self._equal, {}
        for workload in self._ledger.all():
            known = equal.get(workload.id)
            if (
                known is not None
                and known[0] is workload
                and known[1] is self._caches.fluxjob_of(workload.uid)
            ):
                self._equal[workload.id] = known
            else:
                self._keys.add(workload.id)
        for uid in outdated_fluxjobs(self._caches, self._ledger):
            self._outdated.add(uid)
        if not self._resynced:
            for uid in without_fluxjob(self._caches, self._ledger):
                self._outdated.add(uid)
        self._resynced = True

    def is_due(self, workload: Workload) -> bool:
        """True if the FluxJob of a workload is still to be written, and that did not fail;
        or if it was, and the caches have not seen it.
        """
        return self._keys.is_due(workload.id) or (
            workload.id in self._created and self._caches.fluxjob_of(workload.uid) is None
        )

    async def _find_ended(self, uids: list[str]) -> None:
        """Enqueue workloads whose end was stored by a process that ended before it wrote the FluxJob."""
        for workload in await self._ledger.stored_workloads_by_uid(uids):
            if workload.state.ended:
                self._keys.add(workload.id)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Compare the FluxJob of a workload after a while."""
        workload = self._ledger.get(workload_id)
        self._pace.count(workload_id, workload)
        self._keys.add_after(workload_id, self._pace.delay_s(workload, exists=workload_id in self._created))

    def slots_changed(self, workload_id: WorkloadId) -> None:
        """Compare a group whose FluxJob was deleted with its owners, pods that all were replaced, or will be,
        since later pods are none.
        """
        workload = self._ledger.get(workload_id)
        if workload is None or workload.release_mode is not ReleaseMode.GROUP:
            return
        present = self._caches.fluxjob_of(workload.uid)
        if present is None and workload_id not in self._created:
            self._keys.add_after(workload_id, self._pace.delay_s(workload, exists=False))
        elif present is not None and self._owners.lack(present, workload):
            self._keys.add_after(workload_id, SETTLED_S)

    def idle_changed(self, workload_id: WorkloadId) -> None:
        """Show other words about idle work."""
        self._keys.add(workload_id)

    def fluxjob_changed(self, change: Change[FluxJob]) -> None:
        """Compare a FluxJob that was deleted, edited, or lost its owners."""
        workload = self._ledger.by_uid(change.obj.spec.object_ref.uid)
        if workload is None:
            return
        _share_texts(change.obj, workload)
        if change.new is not None and workload.id in self._created:
            self._created[workload.id] = change.new.metadata
        if change.kind is ChangeKind.DELETED:
            self._created.pop(workload.id, None)
            self._keys.add(workload.id)
        elif not change.obj.metadata.owner_references:
            self._keys.add(workload.id)  # somebody removed them: garbage collection needs them
        elif edits_of(change.obj, workload.overrides):
            # The intake reads the edit of a pending workload first; an edit that changes nothing is
            # acknowledged here.
            self._keys.add_after(workload.id, SETTLED_S if workload.state is State.PENDING else 0)

    async def _follow_estimates(self) -> None:
        """Write position and estimate of the first in each queue once they are known,
        and then as often as the pace allows.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_ESTIMATES_EVERY_S)
            before = self._estimates
            early = self._pace.early_estimates(_ESTIMATES_EVERY_S)
            chosen = estimates_to_show(
                before, self._start_estimates, loop.time(), self._pace.estimates_at_once, early
            )
            self._pace.count_early_estimates(chosen.early)
            self._estimates = chosen.shown
            for workload_id in chosen.changed:
                self._keys.add(workload_id)
            for workload_id in before.keys() - self._estimates.keys():
                if (
                    workload := self._ledger.get(workload_id)
                ) is not None and workload.state is State.PENDING:
                    self._keys.add(workload_id)  # it shows an estimate that no longer exists

    async def _write(self, workload_id: WorkloadId) -> float | None:
        workload = self._ledger.get(workload_id)
        if workload is None:
            ended = await self._ledger.stored_workloads([workload_id])
            self._created.pop(workload_id, None)
            if not ended:
                return None
            workload = ended[0]
        present = self._caches.fluxjob_of(workload.uid)
        if present is not None and workload.state.ended and not present.metadata.owner_references:
            # Its object was deleted with --cascade=orphan: garbage collection does not remove it.
            with contextlib.suppress(NotFound):
                await self._api.delete(
                    FLUXJOBS, present.metadata.name, namespace=workload.namespace, uid=present.metadata.uid
                )
            return None
        planned = workload.state is State.PENDING and (
            not workload.blocked or workload.reason in WAITS_FOR_OTHERS
        )
        estimate = self._estimate(workload_id) if planned else None
        reasons = await self._requeue_reasons(workload)
        wanted = status_of(workload, estimate, reasons, self._idle(workload))
        if present is None and workload_id not in self._created:
            return await self._create(workload, wanted)
        meta = present.metadata if present is not None else self._created[workload_id]
        if present is not None:
            _share_texts(present, workload)
        again_s = await self._correct_spec(present, workload) if present is not None else None
        if present is not None and present.status == wanted:
            if again_s is None and present.metadata.owner_references:
                self._equal[workload_id] = workload, present
            return again_s
        if early_s := self._pace.too_early_to_write_s(workload):
            return early_s
        try:
            await self._status_writes.write(meta, wanted)
        except NotFound:
            self._created.pop(workload_id, None)
            return None if workload.state.ended or not self._owners.object_exists(workload) else SETTLED_S
        except Conflict:
            return SETTLED_S
        except Invalid as error:
            self._created.pop(workload_id, None)  # another FluxJob has its name now
            log.info("fluxjob.status_rejected", workload=workload_id, error=str(error))
            return _REJECTED_S
        return again_s

    def _estimate(self, workload_id: WorkloadId) -> Estimate | None:
        """Return the estimate that its FluxJob is to show:
        with a reservation, made or lost, that of now, as the reason names it.
        """
        before, newest = self._estimates.get(workload_id, (None,))[0], self._start_estimates.get(workload_id)
        return newest if any(each is not None and each.reserved for each in (before, newest)) else before

    async def _create(self, workload: Workload, status: FluxJobStatus) -> float | None:
        """Create the FluxJob under the first name that no other has,
        also of work that has ended before it had one.
        """
        if not self._owners.object_exists(workload):
            return None
        if early_s := self._pace.too_early_to_create_s(workload):
            return early_s
        reach(CrashPoint.FLUXJOB_DUE)
        try:
            created = await self._create_under_a_free_name(workload, status)
        except (NotFound, Invalid) as error:
            # The namespace or the owner was deleted meanwhile; if it comes back, the sweep tries again.
            log.info("fluxjob.not_created", workload=workload.id, error=str(error))
            return None
        if created is None:
            log.warning("fluxjob.no_free_name", workload=workload.id, uid=workload.uid)
            return _NO_NAME_S
        reach(CrashPoint.FLUXJOB_CREATED)
        if not workload.state.ended:
            present = self._caches.fluxjob_of(workload.uid)
            seen = present is not None and present.metadata.uid == created.metadata.uid
            self._created[workload.id] = present.metadata if present and seen else created.metadata
        return (
            None
            if created.status == status
            else self._pace.delay_s(self._ledger.get(workload.id), exists=True)
        )

    async def _create_under_a_free_name(self, workload: Workload, status: FluxJobStatus) -> FluxJob | None:
        *candidates, _former = fluxjob_names(workload.kind, workload.name, workload.uid)
        for name in candidates:
            try:
                manifest = fluxjob_manifest(name, workload, self._owners.references(workload), status)
                fluxjob = await self._api.create(FLUXJOBS, manifest, workload.namespace)
            except AlreadyExists:
                fluxjob = await self._api.get(FLUXJOBS, name, workload.namespace)
                if fluxjob.spec.object_ref.uid != workload.uid:
                    log.warning(
                        "fluxjob.name_taken", name=name, namespace=workload.namespace, uid=workload.uid
                    )
                    continue
            return fluxjob
        return None

    async def _requeue_reasons(self, workload: Workload) -> Sequence[Transition]:
        """Read why it was requeued; nearly no workload needs this read."""
        if not workload.requeues and not (workload.state is State.DRAINING and workload.reason):
            return ()
        return await self._ledger.requeue_reasons(workload.id, _REQUEUES_SHOWN)

    async def _correct_spec(self, present: FluxJob, workload: Workload) -> float | None:
        """Make the spec equal to the row, unless it has an edit that is not stored yet."""
        if workload.state.ended:
            return None
        stored = edits_are_stored(workload, present)
        if workload.state is State.PENDING and not stored:
            return SETTLED_S
        wanted = expected_spec(workload)
        annotation = acknowledgement(wanted)
        body = {**msgspec.to_builtins(wanted), "jobspec": workload.jobspec, "pods": workload.pods}
        current = msgspec.to_builtins(editable_spec(present)) | {
            "jobspec": present.spec.jobspec,
            "pods": present.spec.pods,
        }
        lacks_owners = self._owners.lack(present, workload)
        if (
            current == body
            and present.metadata.annotation(names.ACKNOWLEDGED_ANNOTATION) == annotation
            and not lacks_owners
        ):
            return None
        metadata = {
            "resourceVersion": present.metadata.resource_version,
            "labels": {names.QUEUE_LABEL: workload.queue},
            "annotations": {names.ACKNOWLEDGED_ANNOTATION: annotation},
            **({"ownerReferences": self._owners.references(workload)} if lacks_owners else {}),
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
            return SETTLED_S
        if not stored:
            edits = edits_of(present, workload.overrides)
            for subject in subjects_of(workload, self._caches, self._ledger.allocation(workload.id)):
                self._recorder.record(
                    subject, "EditRefused", refusal_message(workload, edits), severity=Severity.WARNING
                )
            log.info(
                "fluxjob.edit_refused",
                workload=workload.id,
                uid=workload.uid,
                state=str(workload.state),
                fields=sorted(edits),
            )
        return None


def _share_texts(fluxjob: FluxJob, workload: Workload) -> None:
    """Have a FluxJob refer to the texts of its row that it has too:
    a request may have many kilobytes, and one copy is enough.
    """
    spec, ref = fluxjob.spec, fluxjob.spec.object_ref
    for struct, name in ((spec, "jobspec"), (fluxjob.status, "message"), (ref, "uid"), (ref, "name")):
        text = getattr(workload, name)
        if getattr(struct, name) == text and getattr(struct, name) is not text:
            msgspec.structs.force_setattr(struct, name, text)
