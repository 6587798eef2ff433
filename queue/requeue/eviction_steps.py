"""The steps by which evicted work frees its nodes: its object is suspended, its pods are withdrawn, deleted
or evicted, and once nothing of it runs, it is requeued.

Which step is next is decided from the objects each time (`fluxqueue.queue.requeue.steps`,
`fluxqueue.queue.requeue.group_steps`), so each may be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog
from msgspec import structs

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.model.groups import REPLACED_WITHIN
from fluxqueue.queue.model.pods import controlling_job
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import Allocation, FluxionJobId, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.disruptions import Disruptor
from fluxqueue.queue.requeue.group_steps import GroupStep, next_group_step
from fluxqueue.queue.requeue.job_suspension import JobSuspender
from fluxqueue.queue.requeue.owner_suspension import OwnerSuspender, Suspension
from fluxqueue.queue.requeue.pod_evictions import PodEvictor
from fluxqueue.queue.requeue.steps import RequeueStep, next_step
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["RETRY_S", "EvictionSteps"]

log = structlog.get_logger()

RETRY_S = 0.1
"""After what another program changed meanwhile."""
_RECHECK_S = 2.0
_GOES_ON = (
    "was to be preempted and goes on: its owner cannot be suspended, and pods of Jobs are not evicted, "
    "because each would count as a failure of its Job; suspend the owner, or let the queue do that"
)


class EvictionSteps:
    """Does the next step for an evicted workload; for the parameters see `Requeuer`.

    Attributes
    ----------
    pods, owners
        Evict single pods, and suspend owners of gangs.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        trigger: Trigger,
        gates: PodGates,
        reread: Callable[[str], None],
        recorder: EventRecorder | None,
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._gates = gates
        self._reread = reread
        self._recorder = recorder
        self._jobs = JobSuspender(api)
        self._disruptions = Disruptor(api, ledger)
        self._unstoppable: set[WorkloadId] = set()
        self.owners = OwnerSuspender(api, caches, ledger)
        self.pods = PodEvictor(api, caches, ledger, trigger, gates, reread)

    def forget(self, workload_id: WorkloadId) -> None:
        """Forget a workload that is not evicted any more."""
        self._disruptions.forget(workload_id)
        self._unstoppable.discard(workload_id)

    async def step(self, workload: Workload, allocation: Allocation | None) -> float | None:
        """Do the next step; the seconds after which another one is due, None if an event follows."""
        if workload.release_mode is ReleaseMode.GROUP:
            return await self._evict_group(workload, allocation)
        if workload.kind == "Job":
            return await self._evict_job(workload, allocation)
        return await self._evict_pod(workload, allocation)

    async def _evict_job(self, workload: Workload, allocation: Allocation | None) -> float | None:
        if self._caches.is_cancelled(workload.uid):
            return _RECHECK_S  # it ends instead of waiting again (`fluxqueue.queue.requeue.cancellation`)
        job = self._caches.jobs.get_by_uid(workload.uid)
        step = next_step(job, self._caches.pods_of_job(workload.uid), allocation, self._caches.lost)
        match step.step:
            case RequeueStep.SUSPEND:
                assert job is not None
                if left_s := grace_left_s(workload, self._ledger.clock()):
                    return left_s  # a preempted Job saves what it has
                return None if await self._jobs.suspend(job) else RETRY_S
            case RequeueStep.WAIT:
                return _RECHECK_S
            case RequeueStep.END:
                if allocation is not None and allocation.released_at is None:
                    await self._end(workload, "was deleted before it was released")
                return None  # else the tracker ends it, also when its last slot ended before
            case RequeueStep.CLEAR:
                assert job is not None
                if not await self._jobs.clear(job):
                    return RETRY_S
        await self._requeue(workload, step.kept)
        return None

    async def _evict_pod(self, workload: Workload, allocation: Allocation | None) -> float | None:
        """Withdraw a pod, or delete it so that its owner creates another.
        The slot of a deleted pod ends when the pod is gone.
        """
        pod = self._caches.pods.get_by_uid(workload.uid)
        if pod is None or not pod.active:
            if allocation is None or allocation.released_at is None:
                await self._end(workload, "was deleted before it was released")
            return None
        if pod.held and (allocation is None or allocation.released_at is None):
            await self._requeue_itself(workload)  # it was never released: it waits as it is
            return None
        if pod.revocable or (pod.fluxion_binds and pod.held):
            with self._gates.kept_for_withdrawal([pod]):
                if not await self.pods.withdraw(pod):
                    return RETRY_S
                await self._requeue_itself(workload)
            return None
        end: Callable[[Pod], Awaitable[None]] = self.pods.delete
        if workload.reason is Reason.PREEMPTED:
            if left_s := grace_left_s(workload, self._ledger.clock()):
                return left_s
            if controlling_job(pod) is None:
                return await self._disrupt(workload, allocation, [pod])
            end = self.pods.end_of_job
        try:
            await end(pod)
        except (Conflict, NotFound):
            return RETRY_S
        return _RECHECK_S

    async def _evict_group(self, workload: Workload, allocation: Allocation | None) -> float | None:
        """Suspend the owner of a group, or evict its pods, and requeue it once none of them lives."""
        if allocation is None or is_over_time_limit(workload):
            return None  # the tracker ends it: all its slots ended before, or it is ended at its limit
        found = (self._caches.pods.get_by_uid(slot.pod_uid or "") for slot in allocation.open_slots)
        pods = [pod for pod in found if pod is not None]
        if pods and (left_s := grace_left_s(workload, self._ledger.clock())):
            return left_s
        with self._gates.kept_for_requeue(allocation.jobid):
            step = next_group_step(pods, allocation, self._caches.lost)
            if step.step is GroupStep.EVICT:
                return await self._stop_group(workload, allocation, step.pods)
            if step.step is not GroupStep.REQUEUE or not await self.owners.resume(workload):
                return _RECHECK_S
            until = self._ledger.clock() + REPLACED_WITHIN
            await self._ledger.set_requeue_states(
                {workload.id: structs.replace(workload.requeue_state, not_before=until)}
            )
            await self._requeue(workload, step.kept)
        return None

    async def _stop_group(self, workload: Workload, allocation: Allocation, pods: Sequence[Pod]) -> float:
        """Suspend the owner of a group, or evict its pods; return the seconds after which that is looked at
        again.

        If a Job controls one of them, none is evicted: that would count as a failure, and the others could do
        nothing without it.
        """
        if (left_s := self._disruptions.paused_s(workload.id)) > 0:
            return left_s
        if await self.owners.suspend(workload, allocation) is not Suspension.NONE:
            return _RECHECK_S
        if not any(map(controlling_job, pods)):
            return await self._disrupt(workload, allocation, pods)
        self._tell_unstoppable(workload, allocation, _GOES_ON)
        return self._disruptions.pause(workload.id)

    async def _disrupt(self, workload: Workload, allocation: Allocation | None, pods: Sequence[Pod]) -> float:
        left_s = await self._disruptions.disrupt(workload.id, pods)
        if why := self._disruptions.why_refused(workload.id):
            self._tell_unstoppable(
                workload, allocation, f"was to be preempted and goes on until its eviction is allowed: {why}"
            )
        return left_s

    def _tell_unstoppable(self, workload: Workload, allocation: Allocation | None, why: str) -> None:
        if workload.id in self._unstoppable:
            return
        self._unstoppable.add(workload.id)
        log.warning("workload.not_stopped", workload=workload.id, uid=workload.uid)
        self.tell(workload, allocation, "NotPreempted", why)

    def tell(self, workload: Workload, allocation: Allocation | None, reason: str, what: str) -> None:
        """Say of a workload what became of it, by Events."""
        if self._recorder is not None:
            for subject in subjects_of(workload, self._caches, allocation):
                self._recorder.record(subject, reason, f"{workload.ref} {what}", severity=Severity.WARNING)

    async def _requeue_itself(self, workload: Workload) -> None:
        """Requeue a pod that waits again itself: no replacement gets its submit time."""
        if workload.requeue_state.submitted_at is not None:
            state = structs.replace(workload.requeue_state, owner="", submitted_at=None)
            await self._ledger.set_requeue_states({workload.id: state})
        await self._requeue(workload, ())

    async def _requeue(self, workload: Workload, kept: tuple[tuple[FluxionJobId, int], ...]) -> None:
        reach(CrashPoint.CLEARED)
        await self._ledger.requeue(
            [Requeue(workload=workload.id, reason=workload.reason, message=workload.message, kept=kept)]
        )
        reach(CrashPoint.REQUEUED)
        log.info(
            "workload.requeued",
            workload=workload.id,
            uid=workload.uid,
            reason=str(workload.reason),
            kept=len(kept),
        )
        self._reread(workload.uid)
        self._trigger.schedule()

    async def _end(self, workload: Workload, what: str) -> None:
        await self._ledger.finish(
            [Ending(workload.id, State.CANCELLED, Outcome.CANCELLED, f"{workload.ref} {what}")]
        )
        self._trigger.schedule()
