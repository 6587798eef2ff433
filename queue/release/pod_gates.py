"""Removes our scheduling gate from single pods, so that the pods go to their slot's node.

The slot is stored before its pod is released, so a crash in between repeats the same patch. Two kinds of pods
are left alone: one whose slot was freed meanwhile, and one from which the queue takes its allocation just now
(`PodGates.kept_for_withdrawal`). A pod is not patched again before the watch shows a later version of it,
unless the patch was refused: then it is tried again after a pause that doubles each time, and a later version
at once. A refusal that is no outage is reported after some attempts (`PodGates.refusals`).

A large gang does not take all connections to the API server: only so many pods are patched at once, those of
each namespace in turn, and other work goes on beside them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import structlog

from fluxqueue.api.pods import Pod
from fluxqueue.kube.backoff import exponential_s
from fluxqueue.kube.errors import ApiError, Conflict, NotFound
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.metrics import OBJECT_FAILURES, RELEASES
from fluxqueue.queue.model.gangs import gang_size
from fluxqueue.queue.model.jobids import jobid_of
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.release.patches import release_pod
from fluxqueue.queue.release.release_slots import ReleaseSlots
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PodGates"]

log = structlog.get_logger()

_CONCURRENT = 16
"""Half of what one process may have under way."""
_CONFLICT_RETRY_S = 0.2
_ERROR_RETRY_S = 1.0
_BROKEN_RETRY_S = 10.0
_LONGEST_RETRY_S = 60.0
_MOST_REFUSALS = 3


class _Refused(NamedTuple):
    """How often a version of a pod was refused, when it may be tried again, and what the API server says if
    it would refuse it again.
    """

    workload: WorkloadId
    resource_version: str
    times: int
    until: float
    message: str


class PodGates:
    """Releases pods by their gate.

    Parameters
    ----------
    api
        Where pods are patched.
    ledger
        Says whose slot it is at that time.
    pod_of
        Returns the pod of a uid; None if it is unknown.
    """

    def __init__(self, api: Api, ledger: Ledger, pod_of: Callable[[str], Pod | None]) -> None:
        self._api = api
        self._ledger = ledger
        self._pod_of = pod_of
        self._removed: dict[str, str] = {}
        self._refused: dict[str, _Refused] = {}
        self._kept: Counter[str] = Counter()
        self._room = ReleaseSlots(_CONCURRENT)
        self._kept_allocations: Counter[FluxionJobId] = Counter()

    def note_removed(self, uid: str, resource_version: str) -> None:
        """Note that the gate of a pod, read at this version, was removed."""
        self._removed[uid] = resource_version

    def removed(self, pod: Pod) -> bool:
        """True if the gate of this version of the pod was removed already."""
        return self._removed.get(pod.metadata.uid) == pod.metadata.resource_version

    def pause_s(self, pod: Pod) -> float:
        """Return how long this version of a pod is not to be tried again, because it was refused."""
        refused = self._refused.get(pod.metadata.uid)
        if refused is None or refused.resource_version != pod.metadata.resource_version:
            return 0.0
        return max(refused.until - asyncio.get_running_loop().time(), 0.0)

    def refusals(self) -> dict[WorkloadId, tuple[str, str]]:
        """Return a pod (its name) that the API server refuses to release, and its message, by workload."""
        found: dict[WorkloadId, tuple[str, str]] = {}
        for uid, refused in self._refused.items():
            pod = self._pod_of(uid)
            if (
                refused.message
                and refused.times >= _MOST_REFUSALS
                and pod is not None
                and pod.metadata.resource_version == refused.resource_version
            ):
                found.setdefault(refused.workload, (pod.metadata.name, refused.message))
        return found

    def forget(self, uid: str) -> None:
        """Forget a pod that was deleted."""
        self._removed.pop(uid, None)
        self._refused.pop(uid, None)

    def prune(self) -> None:
        """Forget the pods that are gone."""
        self._removed = {
            uid: version for uid, version in self._removed.items() if self._pod_of(uid) is not None
        }
        self._refused = {
            uid: refused for uid, refused in self._refused.items() if self._pod_of(uid) is not None
        }

    def withdrawing(self, uid: str) -> bool:
        """True while the allocation is taken from a pod:
        its slot is not free yet, and the pod is not released.
        """
        return uid in self._kept

    @contextmanager
    def kept_for_withdrawal(self, pods: Iterable[Pod]) -> Iterator[None]:
        """Keep pods from being released while their allocation is taken from them and their slots are freed.

        No other pod is released onto these allocations meanwhile: it may replace one of the pods.
        """
        pods = list(pods)
        uids = [pod.metadata.uid for pod in pods]
        jobids = [jobid for jobid in {jobid_of(pod.metadata) for pod in pods} if jobid is not None]
        self._kept.update(uids)
        self._kept_allocations.update(jobids)
        try:
            yield
        finally:
            self._kept -= Counter(uids)
            self._kept_allocations -= Counter(jobids)

    @contextmanager
    def kept_for_requeue(self, jobid: FluxionJobId) -> Iterator[None]:
        """Release no pod onto an allocation while it is found that nothing of it lives any more,
        and while it is freed.
        """
        self._kept_allocations[jobid] += 1
        try:
            yield
        finally:
            self._kept_allocations -= Counter([jobid])

    async def remove(
        self, workload: Workload, allocation: Allocation, rank: int, pod: Pod, gang: int
    ) -> float | None:
        """Release a pod onto its slot; ``gang`` pods of its allocation are bound together (`gang_size`).

        Returns
        -------
        float or None
            The seconds after which the workload is to be planned again; None if the pod was released.
        """
        async with self._room.of(workload.namespace):
            return await self._remove(workload, allocation, rank, pod, gang)

    async def _remove(
        self, workload: Workload, allocation: Allocation, rank: int, pod: Pod, gang: int
    ) -> float | None:
        meta = pod.metadata
        where = f"{meta.namespace}/{meta.name}"
        if not self._has_slot(allocation, rank, pod):
            return _CONFLICT_RETRY_S
        try:
            patch = release_pod(pod, allocation.jobid, allocation.slots[rank].node, gang)
            await self._api.patch(
                PODS, meta.name, patch, namespace=meta.namespace, patch_type=PatchType.STRATEGIC
            )
        except (Conflict, NotFound):
            # It was changed or deleted. The watch shows that, and the workload is planned again; it may have
            # shown it already.
            RELEASES.labels("gate", "conflict").inc()
            return self._refuse(workload, pod, _CONFLICT_RETRY_S)
        except ApiError as error:
            RELEASES.labels("gate", "failed").inc()
            log.warning("gate.not_removed", pod=where, workload=workload.id, error=str(error))
            return self._refuse(workload, pod, _ERROR_RETRY_S, str(error) if error.is_refusal else "")
        except Exception:  # of one pod: the others are released all the same
            RELEASES.labels("gate", "broken").inc()
            OBJECT_FAILURES.labels("pods").inc()
            log.exception("gate.removal_broken", pod=where, workload=workload.id)
            return self._refuse(workload, pod, _BROKEN_RETRY_S)
        reach(CrashPoint.UNGATED)
        RELEASES.labels("gate", "released").inc()
        self._refused.pop(meta.uid, None)
        self.note_removed(meta.uid, meta.resource_version)
        return None

    def _refuse(self, workload: Workload, pod: Pod, first_s: float, message: str = "") -> float:
        """Note that a pod was refused, and return the pause before it is tried again."""
        meta, before = pod.metadata, self._refused.get(pod.metadata.uid)
        times = before.times if before is not None and before.resource_version == meta.resource_version else 0
        pause_s = exponential_s(times, base_s=first_s, cap_s=_LONGEST_RETRY_S)
        until = asyncio.get_running_loop().time() + pause_s
        self._refused[meta.uid] = _Refused(workload.id, meta.resource_version, times + 1, until, message)
        return pause_s

    def _has_slot(self, allocation: Allocation, rank: int, pod: Pod) -> bool:
        """True if the slot is still the pod's: pods may be evicted while a plan is carried out."""
        current = self._ledger.allocation_of_job(allocation.jobid)
        if self.withdrawing(pod.metadata.uid) or allocation.jobid in self._kept_allocations:
            return False
        return current is not None and current.slots[rank].pod_uid == pod.metadata.uid

    def gang_size(self, workload: Workload, allocation: Allocation) -> int:
        """Count the pods that are bound together, with the slots as they are stored now:
        once for all pods that are released together.
        """
        workload = self._ledger.get(workload.id) or workload
        allocation = self._ledger.allocation(workload.id) or allocation
        return gang_size(workload, allocation, self._pod_of)
