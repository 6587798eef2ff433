"""Acts on pods that our own scheduler cannot bind, as soon as it reports that.

The scheduler checks a node when it is about to bind a pod, and writes the problem into the status of the pod.
The watch delivers that within milliseconds. Nothing is waited for, and no pod is deleted. What is done
depends on which pods are bound already:

- No pod of a Job: the Job is suspended and matched again as a whole.
- Some pods of a Job, a MiniCluster or a group: the refused pods are withdrawn, and each is matched alone.
- No pod of a group: all its pods are withdrawn, and it is matched again as a whole.
- A single pod, whatever its owner: it is withdrawn and matched again.

A refusal stays on the pod until it is acted upon, so a new leader and the sweep find it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.api.refusals import refusal
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.kube.kinds import JOBS, PODS
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.jobids import jobid_of
from fluxqueue.queue.model.records import Allocation, ReleaseMode, SlotState, Workload
from fluxqueue.queue.model.requeue_states import owner_and_revision
from fluxqueue.queue.requeue.evictions import evict_after_bind_refusal, state_after_bind_refusal
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.requeue.start_failures import StartFailure, find_bind_refusal
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.batches import Batches

__all__ = ["BindRefusals"]

log = structlog.get_logger()

_BATCH = 500
_RETRY_S = 0.05
_STORED_WITHIN_S = 5.0
"""A refused pod that is stored in no slot after this time has none.
Before that, its release may not be stored yet."""


class BindRefusals:
    """Reacts to refused pods.

    Parameters
    ----------
    caches, ledger
        The cluster and the queue.
    requeuer
        Evicts workloads and withdraws pods.
    recorder
        For Events on pods that are matched alone.
    """

    def __init__(self, caches: Caches, ledger: Ledger, requeuer: Requeuer, recorder: EventRecorder) -> None:
        self._caches = caches
        self._ledger = ledger
        self._requeuer = requeuer
        self._recorder = recorder
        self._keys: Batches[str] = Batches("refused binds")
        self._without_slot_since: dict[str, float] = {}

    def resync(self) -> None:
        """Enqueue all refused pods, as at start and in a sweep."""
        since = self._without_slot_since
        self._without_slot_since = {
            uid: at for uid, at in since.items() if self._caches.pods.get_by_uid(uid) is not None
        }
        for pod in self._caches.pods.list():
            self._enqueue(pod)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._keys.run(self._react, limit=_BATCH)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Enqueue a pod: its node may have refused it."""
        if change.new is not None:
            self._enqueue(change.new)

    def _enqueue(self, pod: Pod) -> None:
        if pod.fluxion_binds and refusal(pod):
            self._keys.add(pod.metadata.uid)

    # ---- carrying out --------------------------------------------------------------------------------------

    async def _react(self, uids: list[str]) -> None:
        by_allocation: dict[int, list[Pod]] = {}
        for uid in uids:
            pod = self._caches.pods.get_by_uid(uid)
            if pod is not None and refusal(pod) and not self._requeuer.pods.withdrawing(uid):
                by_allocation.setdefault(jobid_of(pod.metadata) or 0, []).append(pod)
        done = await asyncio.gather(
            *(self._react_to(pods) for pods in by_allocation.values()), return_exceptions=True
        )
        failed = [error for error in done if isinstance(error, BaseException)]
        if failed:
            raise failed[0]  # the keys are retried, one by one; what was done for the others is not repeated

    async def _react_to(self, pods: Sequence[Pod]) -> None:
        """Act on the refused pods of one allocation."""
        jobid = jobid_of(pods[0].metadata)
        allocation = self._ledger.allocation_of_job(jobid) if jobid is not None else None
        if jobid is None or allocation is None:
            # the allocation was freed: nothing else of it is there
            await self._match_alone(pods, find_bind_refusal(pods), None)
            return
        workload = self._ledger.get(allocation.workload)
        if workload is None or allocation.remnant or not workload.state.placed:
            return  # it is being evicted, or ends
        if (
            allocation.released_at is None
            or self._ledger.releasing(jobid)
            or self._awaits_slot(pods, allocation)
        ):
            for pod in pods:
                self._keys.add_after(pod.metadata.uid, _RETRY_S)
            return
        failure, now = find_bind_refusal(pods), self._ledger.clock()
        log.info(
            "bind.refused",
            workload=workload.id,
            allocation=jobid,
            pods=len(pods),
            nodes=failure.nodes,
            message=failure.message,
        )
        if workload.kind == "Job":
            job = self._caches.jobs.get_by_uid(workload.uid)
            if job is None or job.spec.suspend or job.finished:
                return
            if any(pod.active and pod.spec.node_name for pod in self._caches.pods_of_job(workload.uid)):
                await self._match_alone(pods, failure, workload)
            else:
                await self._requeuer.evict([evict_after_bind_refusal(workload, failure, now)])
        elif workload.release_mode is ReleaseMode.GROUP:
            await self._react_in_group(workload, allocation, pods, failure)
        else:
            await self._requeuer.evict(
                [evict_after_bind_refusal(workload, failure, now, owner_and_revision(pods[0]))]
            )

    async def _react_in_group(
        self, workload: Workload, allocation: Allocation, pods: Sequence[Pod], failure: StartFailure
    ) -> None:
        members = self._caches.members_of(workload, allocation)
        begun = workload.state is State.RUNNING or any(
            slot.state is SlotState.ENDED for slot in allocation.slots
        )
        if begun or any(pod.spec.node_name or not pod.active for pod in members):
            await self._match_alone(pods, failure, workload)
            return
        released = [pod for pod in members if pod.revocable and jobid_of(pod.metadata) == allocation.jobid]
        eviction = evict_after_bind_refusal(workload, failure, self._ledger.clock())
        self._report(await self._requeuer.pods.evict_group(eviction, released), failure)

    async def _match_alone(
        self, pods: Sequence[Pod], failure: StartFailure, workload: Workload | None
    ) -> None:
        """Withdraw pods whose siblings run on.
        Their nodes are stored first, so that they do not get a slot there again.
        """
        if workload is not None:
            state = state_after_bind_refusal(workload, failure, self._ledger.clock())
            await self._ledger.set_requeue_states({workload.id: state})
        self._report(await self._requeuer.pods.withdraw_alone(pods), failure)

    def _report(self, pods: Sequence[Pod], failure: StartFailure) -> None:
        for pod in pods:
            meta = pod.metadata
            text = (
                f"Pod {meta.namespace}/{meta.name} is planned again, alone: it could not be bound: "
                f"{refusal(pod) or failure.message}"
            )
            self._recorder.record(Subject.of(PODS, pod), "Requeued", text, severity=Severity.WARNING)
            owner = meta.controller
            job = self._caches.jobs.get_by_uid(owner.uid) if owner is not None else None
            if job is not None:
                self._recorder.record(
                    Subject.of(JOBS, job), str(Reason.BIND_FAILED), text, severity=Severity.WARNING
                )

    def _awaits_slot(self, pods: Sequence[Pod], allocation: Allocation) -> bool:
        """True if the tracker may still store in which slots the pods are."""
        stored = {slot.pod_uid for slot in allocation.open_slots}
        now = asyncio.get_running_loop().time()
        missing = [pod.metadata.uid for pod in pods if pod.metadata.uid not in stored]
        for pod in pods:
            if pod.metadata.uid in stored:
                self._without_slot_since.pop(pod.metadata.uid, None)
        return any(now - self._without_slot_since.setdefault(uid, now) < _STORED_WITHIN_S for uid in missing)
