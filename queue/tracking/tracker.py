"""Follows the pods of released workloads onto their nodes and to their end.

Each time a Job, one of its pods or a workload changes, the slots of the workload are planned again
(`fluxqueue.queue.tracking.slot_changes`) and the changes are carried out: pods are stored in their slots,
gated pods are released onto them, slots that no pod will need again return to the cluster, and the last slot
ends the workload. A slot is stored before its pod is released, so a crash in between repeats the same patch.

What nobody waits for is collected for a moment, so that many Jobs share a transaction in a steady trickle
too: that an object was released, that its pods are on their nodes, and, while no work waits for nodes, that
they have ended. If a cycle leaves work waiting, what has ended is stored at once. A process that ends before
has lost nothing: the objects and pods say the same to the next one.

A plan reads all pods and slots of its workload. So a large gang, of which pods come and change one by one,
rests between its plans (`fluxqueue.queue.tasks.rests`), and its pods go on in larger parts.

A released Job that is suspended, or scaled to zero, is evicted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.pods import Pod
from fluxqueue.api.refusals import refusal
from fluxqueue.kube.object_cache import Change, ChangeKind
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.model.states import released_at_creation
from fluxqueue.queue.model.time_limits import ending_within_limit
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.store import DatabaseUnavailable, StaleLeader
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.batches import Batches
from fluxqueue.queue.tasks.rests import Rests
from fluxqueue.queue.tasks.triggers import Trigger
from fluxqueue.queue.tracking.affected import affected_by_job, affected_by_pod, groups_in
from fluxqueue.queue.tracking.group_tracking import GroupTracker
from fluxqueue.queue.tracking.job_tracking import Evict, JobTracker
from fluxqueue.queue.tracking.last_phases import LastPhases
from fluxqueue.queue.tracking.pod_releases import PodReleases
from fluxqueue.queue.tracking.replacements import ReplacementSlots
from fluxqueue.queue.tracking.slot_changes import PlannedChanges, SlotChanges, as_preempted, plan_pod_slot
from fluxqueue.queue.tracking.slot_writer import SlotWriter

__all__ = ["Tracker"]


_BATCH = 500
_COLLECTED_S = 0.25
_REST_OF_SLOT_S = 250e-6
"""25 times what a plan of a Job takes for a slot. From 160 slots on it is longer than the pace of the
batches, so gangs of any size whose pods come at the same pace are planned as often: 10,000 pods, which take
some minutes to come, every 2.5 s."""


class Tracker:
    """Keeps slots and states equal to the pods that exist.

    Parameters
    ----------
    api
        For reading the owners of pods.
    caches, ledger, trigger
        The cluster, the queue, and the control tasks.
    gates
        Releases gated pods.
    reread
        Has the intake read an object (uid) again.
    evict
        Evicts released Jobs that were suspended, or scaled to zero.
    grace_s
        How long a slot is kept for the replacement of a pod that is gone.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        trigger: Trigger,
        gates: PodGates,
        reread: Callable[[str], None],
        evict: Evict,
        *,
        grace_s: float = 30.0,
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._gates = gates
        self._keys: Batches[WorkloadId] = Batches("tracker")
        self._rests = Rests(self._keys.add_after, _REST_OF_SLOT_S)
        self._phases = LastPhases(ledger)
        self._jobs = JobTracker(caches, ledger, self._phases, self._plan_after, reread, evict)
        self._groups = GroupTracker(
            api, caches, ledger, self._phases, self._plan_after, reread, grace_s=grace_s
        )
        self._replacements = ReplacementSlots(api, caches, ledger, trigger, self._plan_after, grace_s=grace_s)
        self._releases = PodReleases(gates, self._plan_after)
        self._writer = SlotWriter(ledger, trigger, self._releases)

    def resync(self) -> None:
        """Plan every live workload again, as at start and in a sweep,
        and forget what concerns workloads that ended.
        """
        self._phases.prune()
        self._rests.prune()
        self._groups.prune()
        self._gates.prune()
        self._releases.prune()
        self._replacements.prune()
        self._enqueue(self._ledger.all(), urgent=True)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._releases.run())
            group.create_task(self._keys.run(self._track, limit=_BATCH))

    # ---- events --------------------------------------------------------------------------------------------

    def namespace_changed(self, change: Change[Namespace]) -> None:
        """Free what waits for replacements in a namespace that ends: none comes."""
        if change.kind is ChangeKind.DELETED or change.obj.metadata.deletion_timestamp:
            self._replacements.note_ending_namespace(change.obj.metadata.name)
            self._enqueue(groups_in(change.obj.metadata.name, self._ledger), urgent=True)

    def job_changed(self, change: Change[Job]) -> None:
        """Compare the slots of a Job with its state."""
        job = change.obj
        if change.kind is ChangeKind.DELETED:
            self._phases.note_job(job)
        over = (
            change.kind is ChangeKind.DELETED
            or bool(job.metadata.deletion_timestamp)
            or job.finished
            or bool(job.spec.suspend)
        )
        self._enqueue(affected_by_job(job, self._ledger), urgent=over and self._ledger.left_waiting)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Compare the slots that a pod concerns, unless only probes and conditions changed."""
        pod = change.obj
        if change.kind is ChangeKind.DELETED:
            self._gates.forget(pod.metadata.uid)
            if self._phases.note_pod(pod):
                self._replacements.note_deleted(pod)
        elif change.old is not None and _of_slot(change.old) == _of_slot(pod):
            return  # probes and conditions: nothing that a plan reads
        over = change.kind is ChangeKind.DELETED or pod.terminal
        awaited = pod.held or bool(refusal(pod)) or (over and self._ledger.left_waiting)
        self._enqueue(affected_by_pod(pod, self._caches.named_group_of(pod), self._ledger), urgent=awaited)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Compare the slots of a workload."""
        workload = self._ledger.get(workload_id)
        if workload is not None:
            self._enqueue([workload])
            self._replacements.note_change(workload)
            if workload.state is State.PENDING and workload.reason is not Reason.NONE:
                self._keys.flush()  # a cycle has left it waiting: what has ended may be what it waits for

    def _enqueue(self, workloads: Iterable[Workload], *, urgent: bool = False) -> None:
        for workload in workloads:
            if workload.state is State.PENDING:
                continue
            if urgent or not released_at_creation(workload):
                self._keys.add(workload.id)
            else:
                self._keys.add_within(workload.id, _COLLECTED_S)

    def _plan_after(self, workload: WorkloadId, delay_s: float) -> None:
        if delay_s > 0:
            self._keys.add_after(workload, delay_s)
        else:
            self._keys.add(workload)

    # ---- planning ------------------------------------------------------------------------------------------

    async def _track(self, ids: list[WorkloadId]) -> None:
        """Plan workloads and carry the plans out; a workload that cannot be tracked keeps no release from
        being stored.
        """
        try:
            await self._carry_out(ids)
        except (StaleLeader, DatabaseUnavailable):
            raise
        except Exception:
            self._rests.end(ids)
            await self._ledger.store_released()
            raise
        self._rests.over(ids)

    async def _carry_out(self, ids: list[WorkloadId]) -> None:
        planned: list[PlannedChanges] = []
        endings: list[Ending] = []
        for workload_id in ids:
            workload, allocation = self._ledger.get(workload_id), self._ledger.allocation(workload_id)
            if workload is None or workload.state is State.PENDING:
                continue
            if allocation is None:
                if (end := await self._conclude(workload)) is not None:
                    endings.append(ending_within_limit(workload, end.state, end.outcome, end.message))
            elif (changes := await self._plan_if_due(workload, allocation)) is not None:
                planned.append(PlannedChanges(workload, allocation, changes))
        await self._ledger.finish(endings)
        planned = await self._replacements.settle(planned)
        for ended in await self._writer.write(planned):
            self._phases.forget(ended.uid)
            self._groups.forget(ended.id)

    async def _conclude(self, workload: Workload) -> Ending | None:
        """Return the end of a workload that has no slots any more; None if it goes on."""
        if workload.release_mode is ReleaseMode.GROUP:
            return self._groups.conclude(workload)
        return await self._jobs.conclude(workload)

    async def _plan_if_due(self, workload: Workload, allocation: Allocation) -> SlotChanges | None:
        due = self._ledger.is_released(allocation) and not self._rests.rests(
            workload.id, len(allocation.slots)
        )
        return await self._plan(workload, allocation) if due else None

    async def _plan(self, workload: Workload, allocation: Allocation) -> SlotChanges | None:
        """Plan the slots of a released workload; None if it is a suspended Job, which is evicted."""
        if workload.release_mode is ReleaseMode.POD:
            pod = self._caches.pods.get_by_uid(workload.uid)
            changes = plan_pod_slot(pod, allocation, self._phases.of_pod(workload.uid))
            return as_preempted(workload, pod, changes, self._ledger.clock())
        if workload.release_mode is ReleaseMode.GROUP:
            return await self._groups.plan(workload, allocation)
        return await self._jobs.plan(workload, allocation)


def _of_slot(pod: Pod) -> tuple[object, ...]:
    """Return everything of a pod that the plan of its slot depends on, and how urgent it is."""
    meta = pod.metadata
    return (
        meta.labels,
        meta.annotations,
        meta.owner_references,
        meta.deletion_timestamp,
        pod.spec,
        pod.status.phase,
        refusal(pod),
    )
