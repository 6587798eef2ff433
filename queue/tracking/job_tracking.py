"""Follows the slots of released Jobs: reads from the caches what `fluxqueue.queue.tracking.job_plan` needs.

A released Job that is suspended, or scaled to zero, is evicted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pinwindows import MARGIN, pin_until
from fluxqueue.api.pods import Pod
from fluxqueue.api.templatepins import is_pinned
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.changes import Ending, Eviction
from fluxqueue.queue.model.given_back import leaving_ranks
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tracking.job_plan import ClosedNodes, JobPhase, conclude_job, job_phase, plan_job_slots
from fluxqueue.queue.tracking.job_stops import eviction_at_zero, eviction_of_suspended, wants_no_pods
from fluxqueue.queue.tracking.last_phases import LastPhases
from fluxqueue.queue.tracking.slot_changes import SlotChanges, unplaced_pods

__all__ = ["Evict", "JobTracker"]

_MARGIN_S = 0.2
"""A Job is planned again so much later than its pin window closes."""

Evict = Callable[[Sequence[Eviction]], Awaitable[object]]


class JobTracker:
    """Plans the slots of Jobs.

    Parameters
    ----------
    caches, ledger
        The cluster and the queue.
    phases
        Of deleted Jobs.
    plan_after
        Has a workload planned again after so many seconds.
    reread
        Has the intake read an object (uid) again.
    evict
        Evicts Jobs that were suspended, or scaled to zero.
    """

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        phases: LastPhases,
        plan_after: Callable[[WorkloadId, float], None],
        reread: Callable[[str], None],
        evict: Evict,
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._phases = phases
        self._plan_after = plan_after
        self._reread = reread
        self._evict = evict

    async def plan(self, workload: Workload, allocation: Allocation) -> SlotChanges | None:
        """Plan the slots of a released Job; None if it is evicted,
        because it is suspended or holds a node for no pods.
        """
        job = self._caches.jobs.get_by_uid(workload.uid)
        if job is not None and job_phase(job) is JobPhase.SUSPENDED:
            await self._evict_suspended(workload, job, allocation)
            return None
        pods, elsewhere = self._pods(workload, allocation)
        last = self._phases.of_job(workload.uid)
        if job is None:
            return plan_job_slots(None, pods, allocation, last, elsewhere=elsewhere)
        pinned = is_pinned(job.spec.template.metadata)
        if pinned and wants_no_pods(workload, job, pods):
            # its slot cannot be freed before its template is cleared
            await self._evict([eviction_at_zero(workload)])
            return None
        wall, closes_at = self._ledger.wall(), pin_until(job.spec.template.metadata) + MARGIN
        started = workload.state is State.RUNNING
        refused = workload.refused_by(self._ledger.clock(), since=allocation.granted_at)
        closed = ClosedNodes(
            to_job=self._caches.closed_to_job(job, pods, started=started, refused=refused),
            to_all=self._caches.closed_to_job(job, pods, started=started),
        )
        changes = plan_job_slots(
            job,
            pods,
            allocation,
            last,
            elsewhere=elsewhere,
            closed=closed,
            pin_window_open=wall < closes_at,
            leaving=leaving_ranks(workload, allocation),
        )
        if changes.more_end_later and not pinned:
            self._plan_after(workload.id, (closes_at - wall).total_seconds() + _MARGIN_S)
        for pod in unplaced_pods(pods, allocation, changes):
            self._reread(pod.metadata.uid)
        return changes

    async def conclude(self, workload: Workload) -> Ending | None:
        """Return the end of a Job that has no slots any more; None if it goes on.

        Either its last index was done before the Job reported that it is finished, or it is suspended or
        wants no pods for now and is evicted, or all its pods are matched alone.
        """
        job, pods = self._caches.jobs.get_by_uid(workload.uid), self._caches.pods_of_job(workload.uid)
        if job is not None and job_phase(job) is JobPhase.SUSPENDED:
            await self._evict_suspended(workload, job, None)
            return None
        if job is not None and wants_no_pods(workload, job, pods):
            await self._evict([eviction_at_zero(workload)])
            return None
        end = conclude_job(job, pods, self._phases.of_job(workload.uid), workload.allocated_at)
        return (
            Ending(workload.id, end.state, end.outcome, end.message, end.began_at)
            if end.state is not None
            else None
        )

    async def _evict_suspended(self, workload: Workload, job: Job, allocation: Allocation | None) -> None:
        """Evict a Job that its user suspended; one that is cancelled ends instead
        (`fluxqueue.queue.requeue.cancellation`).
        """
        eviction = eviction_of_suspended(workload, job, allocation)
        if eviction is not None and not self._caches.is_cancelled(workload.uid):
            await self._evict([eviction])

    def _pods(self, workload: Workload, allocation: Allocation) -> tuple[list[Pod], list[Pod]]:
        """Return the pods for the slots of a Job, and its living pods that are matched alone.

        The first are those that the Job controls, and orphans that are stored in one of the slots.
        """
        owned: dict[str, Pod] = {}
        elsewhere: list[Pod] = []
        for pod in self._caches.pods_of_job(workload.uid):
            if self._ledger.by_uid(pod.metadata.uid) is None:
                owned[pod.metadata.uid] = pod
            elif not pod.terminal:
                elsewhere.append(pod)
        stored = [slot.pod_uid for slot in allocation.slots if slot.pod_uid and slot.pod_uid not in owned]
        orphans = [orphan for uid in stored if (orphan := self._caches.pods.get_by_uid(uid)) is not None]
        return [*owned.values(), *orphans], elsewhere
