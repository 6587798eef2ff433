"""Takes work back from its nodes, so that it waits again: the one way there is to do that.

`Requeuer.requeue` notes in the table that workloads drain, and why; that is all it takes, and it outlives the process. From then on their
objects are brought step by step to where nothing of them runs (`fluxqueue.queue.requeues`), whatever happens in between, and then the
workloads are put back. A Job that its own user suspends goes the same way.

A pod of its own cannot be taken back, only deleted. So a bare Pod is refused: nobody would make it anew. The pod of another owner is
deleted, and its successor comes gated and is a workload of its own.

Slots of pods on nodes nobody hears from stay booked (a *remnant*); they end here once the pod objects are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.objects import Job, Node, Pod
from fluxqueue.kube.errors import ApiError, Conflict, Invalid, NotFound
from fluxqueue.kube.kinds import JOBS, PODS
from fluxqueue.kube.store import Change, ChangeKind
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.ledger import Ending, Ledger
from fluxqueue.queue.metrics import REQUEUES
from fluxqueue.queue.records import Allocation, FluxionJobId, PutBack, ReleaseMode, SlotState, TakeBack, Workload, WorkloadId
from fluxqueue.queue.releases import clear_job, clear_start_time, suspend_job
from fluxqueue.queue.requeues import Step, next_turn
from fluxqueue.queue.tasks import Trigger

__all__ = ["Requeuer"]

log = structlog.get_logger()

_WORKERS = 8
_AGAIN_S = 0.1
_SOON_S = 2.0


class Requeuer:
    """Carries requeues out.

    Parameters
    ----------
    api, caches, ledger, trigger
        Where Jobs are suspended, what is there, the queue, and how a scheduling cycle is asked for.
    reread
        Tells the intake to look at an object (uid) again: what was put back is matched as it is by then.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, trigger: Trigger, reread: Callable[[str], None]) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._reread = reread
        self._keys: WorkQueue[WorkloadId] = WorkQueue("requeues")
        self._draining: set[WorkloadId] = set()
        self._timers: dict[WorkloadId, asyncio.TimerHandle] = {}
        caches.jobs.add_handler(self._job_changed)
        caches.pods.add_handler(self._pod_changed)
        caches.nodes.add_handler(self._node_changed)
        ledger.subscribe(self._workload_changed)

    async def requeue(self, wanted: Sequence[TakeBack]) -> list[WorkloadId]:
        """Let live workloads give their nodes back and wait again.

        Returns once that is noted; their pods end in their own time, and until then their nodes stay taken. Saying it again of the same
        workload changes nothing.

        Parameters
        ----------
        wanted
            Workloads that are Allocated or Running, each with the reason and the sentence people are to see until it is matched again.

        Returns
        -------
        list[WorkloadId]
            Those that are refused, because they are bare Pods or pod groups: nobody would make them anew.
        """
        refused = [each.workload for each in wanted if self._bare(each.workload)]
        accepted = [each for each in wanted if each.workload not in refused]
        await self._ledger.take_back(accepted)
        if accepted:
            reach(Point.TAKEN_BACK)
        for each in accepted:
            log.info("taken back", workload=each.workload, reason=str(each.reason), message=each.message)
            REQUEUES.labels(str(each.reason)).inc()
            self._keys.add(each.workload)
        return refused

    async def replace(self, pods: Sequence[Pod]) -> None:
        """Delete pods of Jobs on lost nodes, so that others are made for them; their places stay booked until they are gone."""
        for pod in pods:
            meta = pod.metadata
            log.info("made anew for a lost node", pod=f"{meta.namespace}/{meta.name}", node=pod.spec.node_name)
            try:
                await self._api.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid)
            except (Conflict, NotFound):
                continue  # it is another one by now, or gone
            except ApiError as error:
                log.warning("a pod on a lost node could not be deleted", pod=f"{meta.namespace}/{meta.name}", error=str(error))
                return  # whoever found it looks again

    async def stopped(self, workload: Workload, job: Job, allocation: Allocation) -> None:
        """A released Job was suspended: by us, then it goes its way, or by its user, then that is why it waits."""
        if workload.taken_back:
            return
        if job.metadata.label(names.JOBID_LABEL) != str(allocation.jobid) and workload.state is not State.DRAINING:
            return  # read before the release was: the label came with it
        message = f"Job {workload.namespace}/{workload.name} was suspended by its user: set spec.suspend to false and it is matched"
        await self.requeue([TakeBack(workload=workload.id, reason=Reason.USER_SUSPENDED, message=message)])

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._go_on)

    def look_at_everything(self) -> None:
        """Look at all that drains, waits for its time, or stays booked, as at start and in a sweep."""
        for workload in self._ledger.all():
            self._workload_changed(workload.id)
        for remnant in self._ledger.remnants():
            self._keys.add(remnant.workload)

    # ---- events ----------------------------------------------------------------------------------------------------------------

    def _job_changed(self, change: Change[Job]) -> None:
        self._touch(change.obj.metadata.uid)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.obj
        owner = pod.metadata.controller
        self._touch(owner.uid if owner is not None else pod.metadata.uid)
        if change.kind is ChangeKind.DELETED or pod.terminal:
            jobid = pod.metadata.annotation(names.ALLOCATION_ANNOTATION) or ""
            holding = self._ledger.holding(FluxionJobId(int(jobid))) if jobid.isdecimal() and len(jobid) < 19 else None
            if holding is not None and holding.remnant:
                self._keys.add(holding.workload)

    def _node_changed(self, change: Change[Node]) -> None:
        """What waits for pods on a node waits no longer once nobody hears from it."""
        if change.new is not None and change.new.status.ready:
            return
        for found in self._draining:
            self._keys.add(found)

    def _touch(self, uid: str) -> None:
        workload = self._ledger.by_uid(uid)
        if workload is not None and workload.taken_back:
            self._keys.add(workload.id)

    def _workload_changed(self, found: WorkloadId) -> None:
        workload = self._ledger.get(found)
        if workload is not None and workload.taken_back:
            self._draining.add(found)
        else:
            self._draining.discard(found)
        if workload is None or workload.state is not State.PENDING:
            if (timer := self._timers.pop(found, None)) is not None:
                timer.cancel()
            if workload is not None and workload.taken_back:
                self._keys.add(found)
        elif workload.setbacks.not_before is not None or workload.setbacks.avoided:
            self._set_alarm(workload)

    def _set_alarm(self, workload: Workload) -> None:
        """Look again when it need not wait any longer, or need not avoid a node any longer."""
        now = self._ledger.clock()
        times = [at for at in (workload.setbacks.not_before, *workload.setbacks.avoided.values()) if at is not None and at > now]
        if (former := self._timers.pop(workload.id, None)) is not None:
            former.cancel()
        if times:
            delay_s = (min(times) - now).total_seconds() + _AGAIN_S
            self._timers[workload.id] = asyncio.get_running_loop().call_later(delay_s, self._keys.add, workload.id)

    # ---- carrying out ------------------------------------------------------------------------------------------------------------

    async def _go_on(self, found: WorkloadId) -> float | None:
        await self._end_remnants(found)
        workload = self._ledger.get(found)
        if workload is None:
            return None
        if workload.state is State.PENDING:
            await self._its_time_came(workload)
            return None
        if not workload.taken_back:
            return None
        allocation = self._ledger.allocation(found)
        if allocation is not None and self._ledger.releasing(allocation.jobid):
            return _AGAIN_S
        return await (self._take_job_back(workload, allocation) if workload.kind == "Job" else self._take_pod_back(workload, allocation))

    async def _its_time_came(self, workload: Workload) -> None:
        self._set_alarm(workload)
        self._reread(workload.uid)
        if not workload.backs_off(self._ledger.clock()):
            self._ledger.look_again([workload.id])
            await self._trigger.schedule()

    async def _take_job_back(self, workload: Workload, allocation: Allocation | None) -> float | None:
        job = self._caches.jobs.get_by_uid(workload.uid)
        pods = self._caches.pods_of_job(workload.uid)
        turn = next_turn(job, pods, allocation, self._caches.lost)
        match turn.step:
            case Step.SUSPEND:
                assert job is not None
                return None if await self._patch_job(job, suspend_job(job)) else _AGAIN_S
            case Step.WAIT:
                return _SOON_S
            case Step.END:
                if job is not None and allocation is not None and job.metadata.label(names.JOBID_LABEL) != str(allocation.jobid):
                    await self._put_back(workload, turn.kept)  # cleared already: the intake sees it to its end
                elif allocation is None or allocation.released_at is None:
                    await self._end(workload, "was deleted before it was released")
                return None  # else the tracker does
            case Step.CLEAR:
                assert job is not None
                if not await self._clear(job):
                    return _AGAIN_S
        await self._put_back(workload, turn.kept)
        return None

    async def _take_pod_back(self, workload: Workload, allocation: Allocation | None) -> float | None:
        """Delete a pod that has an owner to make another; its place goes back when it is gone, as that of any pod does."""
        pod = self._caches.pods.get_by_uid(workload.uid)
        if pod is None or not pod.staying:
            if allocation is None or allocation.released_at is None:
                await self._end(workload, "was deleted before it was released")
            return None
        if pod.spec.gated_by(names.GATE) and (allocation is None or allocation.released_at is None):
            await self._put_back(workload, ())  # nothing of it runs: it can wait as it is
            return None
        meta = pod.metadata
        try:
            await self._api.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid)
        except (Conflict, NotFound):
            return _AGAIN_S
        return _SOON_S

    async def _clear(self, job: Job) -> bool:
        """Take the allocation out of a stopped Job; False if it has to be read again first."""
        patch = clear_job(job)
        if patch is None:
            return True
        try:
            return await self._patch_job(job, patch)
        except Invalid:
            # Before Kubernetes 1.36 the template of a Job that has a startTime may not change.
            if job.status.start_time is None:
                raise
            await self._patch_job(job, clear_start_time(job), subresource="status")
            return False

    async def _patch_job(self, job: Job, patch: dict[str, object], subresource: str | None = None) -> bool:
        """Whether it was taken: not if somebody changed or deleted the Job, of which the watch tells."""
        meta = job.metadata
        kind = PatchType.STRATEGIC if subresource is None else PatchType.MERGE
        try:
            await self._api.patch(JOBS, meta.name, patch, namespace=meta.namespace, patch_type=kind, subresource=subresource)
        except (Conflict, NotFound):
            return False
        return True

    async def _put_back(self, workload: Workload, kept: tuple[tuple[FluxionJobId, int], ...]) -> None:
        message = workload.message
        reach(Point.CLEARED)
        await self._ledger.requeue([PutBack(workload=workload.id, reason=workload.reason, message=message, kept=kept)])
        reach(Point.PUT_BACK)
        log.info("put back", workload=workload.id, uid=workload.uid, reason=str(workload.reason), kept=len(kept))
        self._reread(workload.uid)
        await self._trigger.schedule()

    async def _end(self, workload: Workload, what: str) -> None:
        message = f"{workload.kind} {workload.namespace}/{workload.name} {what}"
        await self._ledger.finish([Ending(workload.id, State.CANCELLED, Outcome.CANCELLED, message)])
        await self._trigger.schedule()

    async def _end_remnants(self, found: WorkloadId) -> None:
        """Give back the slots of remnants whose pods are gone, or have ended after all."""
        over: list[tuple[FluxionJobId, int]] = []
        for remnant in self._ledger.remnants():
            if remnant.workload == found:
                over += [
                    (slot.jobid, slot.rank) for slot in remnant.slots if slot.state is not SlotState.ENDED and self._gone(slot.pod_uid)
                ]
        if over:
            await self._ledger.end_slots(over)
            log.info("slots of lost pods went back", workload=found, slots=len(over))
            await self._trigger.schedule()

    def _gone(self, uid: str | None) -> bool:
        pod = self._caches.pods.get_by_uid(uid) if uid is not None else None
        return pod is None or pod.terminal

    def _bare(self, found: WorkloadId) -> bool:
        workload = self._ledger.get(found)
        if workload is not None and workload.release_mode is ReleaseMode.GROUP:
            return True
        if workload is None or workload.kind != "Pod":
            return False
        pod = self._caches.pods.get_by_uid(workload.uid)
        return pod is not None and pod.metadata.controller is None
