"""Evicts workloads from their nodes, so that they wait again: the only way to do that.

`Requeuer.evict` stores that workloads drain, and the reason. That is enough, and it outlives the process.
Then their objects are brought step by step to where nothing of them runs
(`fluxqueue.queue.requeue.eviction_steps`), whatever happens in between, and the workloads are requeued. A Job
that its own user suspends is evicted in the same way.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog
from msgspec import structs

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.object_cache import Change, ChangeKind
from fluxqueue.kube.transport import Api
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.metrics import REQUEUES
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.jobids import jobid_of
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import (
    ReleaseMode,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import GivenBack
from fluxqueue.queue.model.requeue_states import owner_and_revision
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.eviction_steps import RETRY_S, EvictionSteps
from fluxqueue.queue.requeue.remnants import end_remnants
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["Requeuer"]

log = structlog.get_logger()

_NOTHING_GIVEN: Mapping[WorkloadId, GivenBack] = {}
_NOTHING_WITHDRAWN: Mapping[WorkloadId, str] = {}
_WORKERS = 8


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
        self._reread = reread
        self._steps = EvictionSteps(api, caches, ledger, trigger, gates, reread, recorder)
        self.owners = self._steps.owners
        self.pods = self._steps.pods
        self.parts = (self.pods,)
        self._repair_due = asyncio.Event()
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
            why = f"stops before its grace is over: {causes[each]}"
            self._steps.tell(row, self._ledger.allocation(each), "PreemptionNotice", why)

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
            self._steps.forget(workload_id)
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
            delay_s = (min(times) - now).total_seconds() + RETRY_S
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
            return RETRY_S
        if self._ledger.withdrawing(workload_id):
            return RETRY_S
        if workload_id in self._uncounted and not grace_left_s(workload, self._ledger.clock()):
            self._uncounted.discard(workload_id)
            REQUEUES.labels(str(workload.reason)).inc()
        return await self._steps.step(workload, allocation)

    async def _end_backoff(self, workload: Workload) -> None:
        self._set_timer(workload)
        self._reread(workload.uid)
        if not workload.backs_off(self._ledger.clock()):
            self._ledger.notify([workload.id])
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
