"""Evicts single pods: withdraws those that our own scheduler has not bound, and deletes the others.

A withdrawn pod waits for the queue again. A scheduling gate cannot be added to a pod again, so a pod that the
stock scheduler would bind can only be deleted. Our scheduler reads the node of a pod from its annotations,
and these can be removed. The patch carries the version of the pod that was read, and so does the scheduler's
bind: only one of them can succeed, and after the patch nothing binds the pod. Only then is its slot freed.

Between the two, the pod waits without a node while it is stored in a slot. A pod that is about to be released
looks the same. So `PodGates` keeps it from being released. If the process ends in between, the next leader
releases the pod to the same node, and the withdrawal starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pinwindows import MARGIN, pin_until
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.metrics import REQUEUES, WITHDRAWALS
from fluxqueue.queue.model.changes import Eviction, Requeue
from fluxqueue.queue.model.jobids import jobid_of
from fluxqueue.queue.model.records import FluxionJobId, ReleaseMode, WorkloadId
from fluxqueue.queue.release.patches import uncount_pod, withdraw_pod
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["PodEvictor", "is_counted"]

log = structlog.get_logger()

_TRIES = 4
_SHOWN_S = 10.0
"""The time in which the watch has to show a withdrawn pod."""
_AT_ONCE = 16
"""Pods of a group that are taken back together: other work needs the calls of the process too."""


class PodEvictor:
    """Withdraws pods and then frees their slots, or deletes pods.

    Parameters
    ----------
    api, caches, ledger, trigger
        The API server, the cluster, the queue and the control tasks.
    gates
        Keeps pods from being released meanwhile.
    reread
        Has the intake read an object (uid) again.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        trigger: Trigger,
        gates: PodGates,
        reread: Callable[[str], None],
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._reread = reread
        self._gates = gates
        self._awaited: dict[str, asyncio.Event] = {}

    def withdrawing(self, uid: str) -> bool:
        """True while a pod is being withdrawn and its slot is not free yet."""
        return self._gates.withdrawing(uid)

    async def withdraw(self, pod: Pod) -> bool:
        """Remove the allocation from a pod.

        Returns
        -------
        bool
            True once the watch shows the pod without it; False if the pod is bound, gone or released
            elsewhere by now.

        Raises
        ------
        ApiError
            The pod could not be patched.
        """
        meta = pod.metadata
        jobid = meta.annotation(names.ALLOCATION_ANNOTATION)
        for _ in range(_TRIES):
            if pod.metadata.uid != meta.uid or not (pod.revocable or (pod.fluxion_binds and pod.held)):
                break
            if jobid is not None and pod.metadata.annotation(names.ALLOCATION_ANNOTATION) not in (
                None,
                jobid,
            ):
                break
            try:
                body = withdraw_pod(pod)
                await self._api.patch(
                    PODS, meta.name, body, namespace=meta.namespace, patch_type=PatchType.STRATEGIC
                )
            except NotFound:
                break
            except Conflict:
                try:
                    pod = await self._api.get(PODS, meta.name, meta.namespace)
                except NotFound:
                    break
                continue
            reach(CrashPoint.WITHDRAWN)
            WITHDRAWALS.labels("withdrawn").inc()
            log.info("pod.withdrawn", pod=f"{meta.namespace}/{meta.name}", allocation=jobid)
            return await self._shown(meta.uid)
        WITHDRAWALS.labels("too-late").inc()
        return False

    async def evict(self, pods: Sequence[Pod], message: str) -> list[Pod]:
        """Evict pods of Jobs and groups without their siblings, and return those that were withdrawn.

        Replacements are created for the deleted ones, whose slots stay booked until they are gone. A pod that
        changed since it was read is left alone: it may be bound now.
        """
        withdrawn: list[Pod] = []
        for pod in pods:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            log.info("pod.evicted", pod=where, node=pod.spec.node_name, message=message)
            try:
                if pod.revocable:
                    withdrawn += await self.withdraw_alone([pod])
                else:
                    await self.delete(pod, unchanged=not pod.spec.node_name)
            except (Conflict, NotFound):
                continue  # it is another pod now, or gone
            except ApiError as error:
                log.warning("pod.not_evicted", pod=where, error=str(error))
                if not isinstance(error, Forbidden | Invalid):
                    break  # the API server is away or busy: the next check finds the rest again
        return withdrawn

    async def delete(self, pod: Pod, *, unchanged: bool = False) -> None:
        """Delete a pod, if ``unchanged`` only in the version that was read.

        Raises
        ------
        ApiError
            `Conflict` if it is another pod now, or changed; `NotFound` if it is gone.
        """
        meta = pod.metadata
        version = meta.resource_version if unchanged else None
        await self._api.delete(
            PODS, meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=version
        )

    async def end_of_job(self, pod: Pod) -> None:
        """End a pod that its Job does without, as the Job controller does when a Job is made smaller: it
        counts as no failure.

        The controller counts a pod with its finalizer. So that is taken away first, in the version of the pod
        that was read: a pod that has ended by then is counted. A pod without it is deleted, also if the
        process ended in between.

        Raises
        ------
        ApiError
            As for `delete`.
        """
        meta = pod.metadata
        if is_counted(pod):
            await self._api.patch(
                PODS, meta.name, uncount_pod(pod), namespace=meta.namespace, patch_type=PatchType.MERGE
            )
            reach(CrashPoint.POD_ENDED)
        await self.delete(pod)

    async def evict_single(self, eviction: Eviction) -> bool:
        """Withdraw the pod of a single-pod workload and requeue it;
        False if it is not Allocated, or its pod may run.
        """
        workload, allocation = self._ledger.get(eviction.workload), self._ledger.allocation(eviction.workload)
        if (
            workload is None
            or workload.release_mode is not ReleaseMode.POD
            or workload.state is not State.ALLOCATED
        ):
            return False
        pod = self._caches.pods.get_by_uid(workload.uid)
        if allocation is None or allocation.released_at is None or pod is None or not pod.revocable:
            return False
        with self._gates.kept_for_withdrawal([pod]):
            try:
                if not await self.withdraw(pod):
                    return False
            except ApiError as error:
                log.warning(
                    "pod.not_withdrawn", pod=f"{workload.namespace}/{workload.name}", error=str(error)
                )
                return False
            await self._requeue(eviction)
        return True

    async def withdraw_alone(self, pods: Sequence[Pod]) -> list[Pod]:
        """Withdraw pods whose siblings keep their slots, and return those that are matched alone now.

        Raises
        ------
        ApiError
            A pod could not be patched; it is withdrawn later.
        """
        with self._gates.kept_for_withdrawal(pods):
            withdrawn = [pod for pod in pods if await self.withdraw(pod)]
            await self._free_slots_of(withdrawn)
        return withdrawn

    async def evict_group(self, eviction: Eviction, pods: Sequence[Pod]) -> list[Pod]:
        """Take back all pods of a group and requeue it. If one was bound meanwhile, the others are matched
        alone.

        Pods of our own scheduler are withdrawn, and others are deleted in the version that was read.

        Parameters
        ----------
        eviction
            Of an Allocated group.
        pods
            All its released pods. Each can be withdrawn, or its owner replaces it.

        Returns
        -------
        list[Pod]
            Those that are matched alone, or their replacements are.

        Raises
        ------
        ApiError
            A pod could not be patched or deleted; the group keeps its slots, and replacements get those of
            the pods that are gone.
        """
        with self._gates.kept_for_withdrawal(pods):
            done: list[bool | BaseException] = []
            for first in range(0, len(pods), _AT_ONCE):
                done += await asyncio.gather(
                    *(self._take_back(pod) for pod in pods[first : first + _AT_ONCE]), return_exceptions=True
                )
            failed = [error for error in done if isinstance(error, BaseException)]
            if failed:
                raise failed[0]
            taken = [pod for pod, out in zip(pods, done, strict=True) if out]
            if len(taken) == len(pods):
                await self._requeue(eviction)
                return []
            await self._free_slots_of(taken)
        return taken

    async def _take_back(self, pod: Pod) -> bool:
        """Withdraw a pod, or delete it while it has no node; False if it is bound by now.
        A pod that is gone is taken back.
        """
        if pod.fluxion_binds:
            return await self.withdraw(pod)
        meta = pod.metadata
        for _ in range(_TRIES):
            try:
                await self.delete(pod, unchanged=True)
            except NotFound:
                return True
            except Conflict:
                try:
                    pod = await self._api.get(PODS, meta.name, meta.namespace)
                except NotFound:
                    return True
                if pod.metadata.uid != meta.uid:
                    return True
                if pod.spec.node_name:
                    return False
            else:
                return True
        return False

    async def _requeue(self, eviction: Eviction) -> None:
        """Requeue a workload whose pods were all withdrawn."""
        if eviction.requeue_state is not None:
            await self._ledger.set_requeue_states({eviction.workload: eviction.requeue_state})
        reach(CrashPoint.REFUSAL_NOTED)
        REQUEUES.labels(str(eviction.reason)).inc()
        await self._ledger.requeue(
            [Requeue(workload=eviction.workload, reason=eviction.reason, message=eviction.message)]
        )
        log.info(
            "workload.withdrawn",
            workload=eviction.workload,
            reason=str(eviction.reason),
            message=eviction.message,
        )
        if (workload := self._ledger.get(eviction.workload)) is not None:
            self._reread(workload.uid)
        self._trigger.schedule()

    async def _free_slots_of(self, pods: Sequence[Pod]) -> None:
        """End the slots of withdrawn pods.
        While the list in a Job's template still pins new pods to them, only empty the slots.
        """
        ended: list[tuple[FluxionJobId, int]] = []
        vacated: list[tuple[FluxionJobId, int, str]] = []
        holders: set[WorkloadId] = set()
        for pod in pods:
            jobid, uid = jobid_of(pod.metadata), pod.metadata.uid
            allocation = self._ledger.allocation_of_job(jobid) if jobid is not None else None
            slot = allocation.slot_of(uid) if allocation is not None else None
            if allocation is None or slot is None:
                continue
            holders.add(allocation.workload)
            if self._pins(allocation.workload):
                vacated.append((slot.jobid, slot.rank, uid))
            else:
                ended.append((slot.jobid, slot.rank))
        await self._ledger.vacate_slots(vacated)
        await self._ledger.end_slots(ended)
        for pod in pods:
            self._reread(pod.metadata.uid)
        self._ledger.notify(holders)

    def _pins(self, workload_id: WorkloadId) -> bool:
        workload = self._ledger.get(workload_id)
        job = self._caches.jobs.get_by_uid(workload.uid) if workload is not None else None
        if workload is None or job is None or workload.release_mode is not ReleaseMode.PIN:
            return False
        return pin_until(job.spec.template.metadata) + MARGIN > self._ledger.wall()

    async def _shown(self, uid: str) -> bool:
        """Wait until the cache has the pod without its allocation;
        False if that takes too long, or the pod is gone.
        """
        try:
            async with asyncio.timeout(_SHOWN_S):
                while (pod := self._caches.pods.get_by_uid(uid)) is not None and not pod.held:
                    await self._awaited.setdefault(uid, asyncio.Event()).wait()
        except TimeoutError:
            return False  # the pod waits in its slot, and is released there again
        finally:
            self._awaited.pop(uid, None)
        return pod is not None

    def pod_changed(self, change: Change[Pod]) -> None:
        """Go on with a pod whose change is awaited."""
        if self._awaited and (event := self._awaited.pop(change.obj.metadata.uid, None)) is not None:
            event.set()


def is_counted(pod: Pod) -> bool:
    """True if the Job controller counts how a pod of a Job ends."""
    return names.JOB_TRACKING_FINALIZER in (pod.metadata.finalizers or ())
