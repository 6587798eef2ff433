"""Evicts workloads from their nodes, so that they wait again: the only way to do that.

`Requeuer.evict` stores that workloads drain, and the reason. That is enough, and it outlives the process.
Then their objects are brought step by step to where nothing of them runs (`fluxqueue.queue.requeue.steps`),
whatever happens in between, and the workloads are requeued. A Job that its own user suspends is evicted in
the same way.

A pod that is bound, or that the stock scheduler binds, can only be deleted. So the eviction of a bare Pod or
of a group is refused, unless it is preempted: no owner would create it again. The pod of another owner is
deleted, and its replacement is a workload of its own. A pod that our own scheduler has not bound yet is
withdrawn and waits again itself, whatever its owner (`fluxqueue.queue.requeue.pod_evictions`).

Pods that are preempted are evicted through the API for that, so that budgets of disruption are respected. A
preempted group keeps its slots until none of its pods lives (`fluxqueue.queue.requeue.group_steps`). Then it
waits for the pods that its owner creates instead. If none come, it ends
(`fluxqueue.queue.intake.controller`).

Slots of pods on nodes that are missing or NotReady stay booked (a *remnant*). They end once the pod objects
are gone (`fluxqueue.queue.requeue.remnants`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import structlog
from msgspec import structs

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.object_cache import Change, ChangeKind
from fluxqueue.kube.transport import Api
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.metrics import REQUEUES
from fluxqueue.queue.model.changes import Ending, Eviction, Requeue
from fluxqueue.queue.model.groups import REPLACED_WITHIN
from fluxqueue.queue.model.jobids import jobid_of
from fluxqueue.queue.model.pods import controlling_job
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import (
    Allocation,
    FluxionJobId,
    GivenBack,
    ReleaseMode,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_states import owner_and_revision
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.disruptions import Disruptor
from fluxqueue.queue.requeue.group_steps import GroupStep, next_group_step
from fluxqueue.queue.requeue.job_suspension import JobSuspender
from fluxqueue.queue.requeue.owner_suspension import OwnerSuspender, Suspension
from fluxqueue.queue.requeue.pod_evictions import PodEvictor
from fluxqueue.queue.requeue.remnants import end_remnants
from fluxqueue.queue.requeue.steps import RequeueStep, next_step
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["Requeuer"]

log = structlog.get_logger()

_NOTHING_GIVEN: Mapping[WorkloadId, GivenBack] = {}
_NOTHING_WITHDRAWN: Mapping[WorkloadId, str] = {}
_WORKERS = 8
_RETRY_S = 0.1
_RECHECK_S = 2.0
_STOPS = "stops before its grace is over"
_GOES_ON = (
    "was to be preempted and goes on: its owner cannot be suspended, and pods of Jobs are not evicted, "
    "because each would count as a failure of its Job; suspend the owner, or let the queue do that"
)


class Requeuer:
    """Carries evictions out, until the workloads are requeued.

    Parameters
    ----------
    api, caches, ledger, trigger
        The API server, the cluster, the queue and the control tasks.
    gates
        Keeps pods from being released while they are withdrawn.
    reread
        Has the intake read an object (uid) again: a requeued workload is matched as its object is by then.
    recorder
        For Events about work that cannot be stopped.

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
        recorder: EventRecorder | None = None,
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._gates = gates
        self._reread = reread
        self._jobs = JobSuspender(api)
        self.owners = OwnerSuspender(api, caches, ledger)
        self._recorder = recorder
        self._disruptions = Disruptor(api, ledger)
        self._unstoppable: set[WorkloadId] = set()
        self._repair_due = asyncio.Event()
        self.pods = PodEvictor(api, caches, ledger, trigger, gates, reread)
        self.parts = (self.pods,)
        self._keys: WorkQueue[WorkloadId] = WorkQueue("requeues")
        self._evicting: set[WorkloadId] = set()
        self._uncounted: set[WorkloadId] = set()
        """What this process evicted and did not count yet: it may go on while it is in its grace."""
        self._timers: dict[WorkloadId, asyncio.TimerHandle] = {}

    async def evict(
        self,
        evictions: Sequence[Eviction],
        given_back: Mapping[WorkloadId, GivenBack] = _NOTHING_GIVEN,
        withdrawn: Mapping[WorkloadId, str] = _NOTHING_WITHDRAWN,
    ) -> list[WorkloadId]:
        """Evict live workloads.

        Returns once that is stored. Their pods end in their own time, and until then their nodes stay booked.
        To evict a workload again changes nothing.

        Parameters
        ----------
        evictions
            Of workloads that are Allocated or Running, each with the reason and the message that people see
            until it is matched again.
        given_back
            What other workloads give back while they go on; stored together with the evictions.
        withdrawn
            Work that was told to stop and goes on if its grace is not over, each with why; stored with the
            others, before them.

        Returns
        -------
        list[WorkloadId]
            The refused ones: bare Pods and groups that may run, unless they are preempted. No owner would
            create them again.
        """
        at_once = await asyncio.gather(*(self.pods.evict_single(each) for each in evictions))
        left = [each for each, done in zip(evictions, at_once, strict=True) if not done]
        refused = [
            each.workload
            for each in left
            if each.reason is not Reason.PREEMPTED and self._is_bare(each.workload)
        ]
        accepted = [self._for_replacement(each) for each in left if each.workload not in refused]
        await self._ledger.evict(accepted, given_back, withdrawn)
        if withdrawn:
            reach(CrashPoint.PREEMPTION_WITHDRAWN)
            log.info("workload.preemption_withdrawn", workloads=list(withdrawn))
        if given_back:
            reach(CrashPoint.GIVEN_BACK)
        if accepted:
            reach(CrashPoint.EVICTED)
        for each in accepted:
            log.info(
                "workload.evicted", workload=each.workload, reason=str(each.reason), message=each.message
            )
            if each.workload in self._evicting:
                self._uncounted.add(each.workload)
            self._keys.add(each.workload)
        return refused

    async def end_graces(self, causes: Mapping[WorkloadId, str]) -> None:
        """Stop preempted work before its grace is over, each for a cause,
        for which it would be evicted anyway.

        What goes on by now, or is being stopped, is left alone, and so is what is evicted for nothing but a
        preemption.
        """
        now = self._ledger.clock()
        rows = {
            row.id: row
            for row in map(self._ledger.get, causes)
            if row is not None
            and grace_left_s(row, now)
            and not self._ledger.withdrawing(row.id)
            and not self._is_bare(row.id)
        }
        for each in await self._ledger.end_graces(rows.keys()):
            row = rows[each]
            log.info("workload.grace_ended", workload=each, uid=row.uid, cause=causes[each])
            self._tell(row, self._ledger.allocation(each), "PreemptionNotice", f"{_STOPS}: {causes[each]}")

    def _for_replacement(self, eviction: Eviction) -> Eviction:
        """Return the eviction of a preempted pod with what the pod begins with that its owner creates
        instead.
        """
        workload = self._ledger.get(eviction.workload)
        if (
            eviction.reason is not Reason.PREEMPTED
            or workload is None
            or workload.release_mode is not ReleaseMode.POD
        ):
            return eviction
        pod = self._caches.pods.get_by_uid(workload.uid)
        if pod is None or not (owner := owner_and_revision(pod)):
            return eviction
        state = eviction.requeue_state or workload.requeue_state
        return replace(
            eviction, requeue_state=structs.replace(state, owner=owner, submitted_at=workload.submitted_at)
        )

    def schedule(self) -> None:
        """Request a scheduling cycle: nodes were freed."""
        self._trigger.schedule()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repair_owners())
            group.create_task(run_workers(self._keys, _WORKERS, self._proceed))

    async def _repair_owners(self) -> None:
        while True:
            await self._repair_due.wait()
            self._repair_due.clear()
            if await self.owners.repair():
                self._trigger.schedule()  # there may be more victims

    def resync(self) -> None:
        """Enqueue all workloads that are evicted, back off or have a remnant, as at start and in a sweep."""
        for workload in self._ledger.all():
            self.workload_changed(workload.id)
        for remnant in self._ledger.remnants():
            self._keys.add(remnant.workload)
        self._repair_due.set()

    # ---- events --------------------------------------------------------------------------------------------

    def job_changed(self, change: Change[Job]) -> None:
        """Enqueue an evicted Job: it may have stopped."""
        self._enqueue(change.obj.metadata.uid)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Enqueue the evicted work of a pod: the pod may be gone."""
        pod = change.obj
        owner = pod.metadata.controller
        self._enqueue(owner.uid if owner is not None else pod.metadata.uid)
        if (
            self._evicting
            and (jobid := jobid_of(pod.metadata)) is not None
            and (row := self._ledger.by_jobid(jobid)) is not None
        ):
            self._enqueue(row.uid)
        if change.kind is ChangeKind.DELETED or pod.terminal:
            jobid = jobid_of(pod.metadata)
            allocation = self._ledger.allocation_of_job(jobid) if jobid is not None else None
            if allocation is not None and allocation.remnant:
                self._keys.add(allocation.workload)

    def node_changed(self, change: Change[Node]) -> None:
        """Enqueue all evicted workloads if a node is lost:
        those that wait for pods on it do not wait any longer.
        """
        if change.new is not None and change.new.status.ready:
            return
        for workload_id in self._evicting:
            self._keys.add(workload_id)

    def _enqueue(self, uid: str) -> None:
        workload = self._ledger.by_uid(uid)
        if workload is not None and workload.evicting:
            self._keys.add(workload.id)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Enqueue a workload that was evicted, and time one that waits for its next start."""
        workload = self._ledger.get(workload_id)
        if workload is not None and workload.evicting:
            self._evicting.add(workload_id)
        else:
            self._evicting.discard(workload_id)
            self._uncounted.discard(workload_id)
            self._disruptions.forget(workload_id)
            self._unstoppable.discard(workload_id)
        if workload is None or workload.state is not State.PENDING:
            if (timer := self._timers.pop(workload_id, None)) is not None:
                timer.cancel()
            if workload is not None and workload.evicting:
                self._keys.add(workload_id)
        elif workload.requeue_state.not_before is not None or workload.requeue_state.refused:
            self._set_timer(workload)

    def _set_timer(self, workload: Workload) -> None:
        """Enqueue a workload again when its backoff ends, or when it avoids a node no longer."""
        now = self._ledger.clock()
        ends = (refusal.until for refusal in workload.requeue_state.refused.values())
        times = [at for at in (workload.requeue_state.not_before, *ends) if at is not None and at > now]
        if (former := self._timers.pop(workload.id, None)) is not None:
            former.cancel()
        if times:
            delay_s = (min(times) - now).total_seconds() + _RETRY_S
            self._timers[workload.id] = asyncio.get_running_loop().call_later(
                delay_s, self._keys.add, workload.id
            )

    # ---- carrying out --------------------------------------------------------------------------------------

    async def _proceed(self, workload_id: WorkloadId) -> float | None:
        """Do the next step for a workload; the seconds after which another one is due,
        None if an event follows.
        """
        if await end_remnants(self._ledger, self._caches, workload_id):
            self._trigger.schedule()
        workload = self._ledger.get(workload_id)
        if workload is None:
            return None
        if workload.state is State.PENDING:
            await self._end_backoff(workload)
            return None
        if not workload.evicting:
            return None
        allocation = self._ledger.allocation(workload_id)
        if allocation is not None and self._ledger.releasing(allocation.jobid):
            return _RETRY_S
        if self._ledger.withdrawing(workload_id):
            return _RETRY_S
        if workload_id in self._uncounted and not grace_left_s(workload, self._ledger.clock()):
            self._uncounted.discard(workload_id)
            REQUEUES.labels(str(workload.reason)).inc()
        if workload.release_mode is ReleaseMode.GROUP:
            return await self._evict_group(workload, allocation)
        return await (
            self._evict_job(workload, allocation)
            if workload.kind == "Job"
            else self._evict_pod(workload, allocation)
        )

    async def _end_backoff(self, workload: Workload) -> None:
        self._set_timer(workload)
        self._reread(workload.uid)
        if not workload.backs_off(self._ledger.clock()):
            self._ledger.notify([workload.id])
            self._trigger.schedule()

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
                return None if await self._jobs.suspend(job) else _RETRY_S
            case RequeueStep.WAIT:
                return _RECHECK_S
            case RequeueStep.END:
                if allocation is not None and allocation.released_at is None:
                    await self._end(workload, "was deleted before it was released")
                return None  # else the tracker ends it, also when its last slot ended before
            case RequeueStep.CLEAR:
                assert job is not None
                if not await self._jobs.clear(job):
                    return _RETRY_S
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
                    return _RETRY_S
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
            return _RETRY_S
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
        self._tell(workload, allocation, "NotPreempted", why)

    def _tell(self, workload: Workload, allocation: Allocation | None, reason: str, what: str) -> None:
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

    def _is_bare(self, workload_id: WorkloadId) -> bool:
        """True for a pod group, and for a pod that no owner would create again."""
        workload = self._ledger.get(workload_id)
        if workload is not None and workload.release_mode is ReleaseMode.GROUP:
            return True
        if workload is None or workload.kind != "Pod":
            return False
        pod = self._caches.pods.get_by_uid(workload.uid)
        return pod is not None and pod.metadata.controller is None
