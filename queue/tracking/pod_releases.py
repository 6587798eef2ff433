"""Releases the pods that got a slot, beside the planning: the first rank of a workload first, some pods of
each workload at a time.

A plan hands over all gated pods of a workload that have a slot. They are released in parts without another
plan: a plan reads all pods and slots, so one for each part would cost the square of a gang's size. Between
the parts of a large gang, the pods of others have their turn.

A pod that is refused keeps no other back. It is tried again after a pause of its own that doubles
(`PodGates.pause_s`), by way of another plan, because it may have been deleted or have lost its slot
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.release.pod_gates import PodGates

__all__ = ["PodReleases"]

_PART = 16
"""Pods of one workload that are released at once."""
_MARGIN_S = 0.05
"""A workload is planned again so much later than the pause of its pod ends."""


class _Due(NamedTuple):
    workload: Workload
    allocation: Allocation
    gang: int
    pods: list[tuple[int, Pod]]
    """With their ranks, the last first."""


class PodReleases:
    """The pods that are to be released.

    Parameters
    ----------
    gates
        Releases one pod.
    plan_after
        Has a workload planned again after so many seconds.
    """

    def __init__(self, gates: PodGates, plan_after: Callable[[WorkloadId, float], None]) -> None:
        self._gates = gates
        self._plan_after = plan_after
        self._due: dict[WorkloadId, _Due] = {}
        self._active: set[WorkloadId] = set()
        self._under_way: set[str] = set()
        self._plans_at: dict[WorkloadId, float] = {}
        """When workloads with pods that were refused are planned again."""
        self._wanted = asyncio.Event()

    def put(self, workload: Workload, allocation: Allocation, pods: Iterable[tuple[int, Pod]]) -> None:
        """Release these pods, each onto the slot of its rank, and no longer those of an earlier plan."""
        due: list[tuple[int, Pod]] = []
        pauses_s: list[float] = []
        for rank, pod in pods:
            if pod.metadata.uid in self._under_way or self._gates.removed(pod):
                continue
            if (pause_s := self._gates.pause_s(pod)) > 0:
                pauses_s.append(pause_s)
            else:
                due.append((rank, pod))
        self._plan_again(workload.id, pauses_s)
        if not due:
            self._due.pop(workload.id, None)
            return
        due.sort(key=itemgetter(0), reverse=True)
        self._due[workload.id] = _Due(workload, allocation, self._gates.gang_size(workload, allocation), due)
        self._wanted.set()
        reach(CrashPoint.SLOTS_TAKEN)

    def prune(self) -> None:
        """Forget the plans that have been made."""
        now = asyncio.get_running_loop().time()
        self._plans_at = {workload: at for workload, at in self._plans_at.items() if at > now}

    async def run(self) -> None:
        """Release pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for workload in self._due.keys() - self._active:
                    self._active.add(workload)
                    group.create_task(self._release(workload))
                self._wanted.clear()
                await self._wanted.wait()

    async def _release(self, workload: WorkloadId) -> None:
        pauses_s: list[float] = []
        try:
            while workload in self._due:
                pauses_s += await self._release_part(self._due[workload])
        finally:
            self._active.discard(workload)
        self._plan_again(workload, pauses_s)

    async def _release_part(self, due: _Due) -> list[float]:
        """Release the first of the pods, and return after which pauses those that were refused are to be
        tried again.
        """
        # The leader of a Flux cluster goes before its followers: they connect to it, and a failed attempt
        # costs them a whole time-out.
        count = 1 if _is_leader(*due.pods[-1]) else _PART
        part, due.pods[-count:] = due.pods[-count:], []
        if not due.pods:
            del self._due[due.workload.id]
        uids = {pod.metadata.uid for _, pod in part}
        self._under_way |= uids
        try:
            removals = (
                self._gates.remove(due.workload, due.allocation, rank, pod, due.gang)
                for rank, pod in reversed(part)
            )
            retries = await asyncio.gather(*removals)
        finally:
            self._under_way -= uids
        return [retry_s for retry_s in retries if retry_s is not None]

    def _plan_again(self, workload: WorkloadId, pauses_s: Iterable[float]) -> None:
        """Have a workload planned after the shortest of these pauses, unless it is planned earlier."""
        now, pause_s = asyncio.get_running_loop().time(), min(pauses_s, default=None)
        if pause_s is None or now < self._plans_at.get(workload, now) <= now + pause_s + 2 * _MARGIN_S:
            return
        self._plans_at[workload] = now + pause_s + _MARGIN_S
        self._plan_after(workload, pause_s + _MARGIN_S)


def _is_leader(rank: int, pod: Pod) -> bool:
    return rank == 0 and pod.metadata.annotation(names.MINICLUSTER_ANNOTATION) == "true"
