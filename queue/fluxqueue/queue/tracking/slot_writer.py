"""Carries planned changes out: stores them, and then releases the gated pods that got a slot.

A slot is stored before its pod is released, so a crash in between repeats the same patch. Of a large gang some pods are released at a time,
and the others with the next plan: the pods of others that are planned together wait only for those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.metrics import SLOTS_ENDED
from fluxqueue.queue.model.changes import SlotWrites, TakenSlot
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.model.time_limits import ending_within_limit
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger
from fluxqueue.queue.tracking.slot_changes import PlannedChanges

__all__ = ["SlotWriter", "writes_for"]


def writes_for(planned: Iterable[PlannedChanges]) -> SlotWrites:
    """Return the rows to write."""
    writes = SlotWrites()
    for each in planned:
        workload, allocation, changes = each.workload, each.allocation, each.changes
        jobid = allocation.jobid
        by_rank = {slot.rank: slot for slot in allocation.slots}
        writes.vacated += [(jobid, rank, uid) for rank in changes.vacate if (uid := by_rank[rank].pod_uid)]
        writes.taken += [
            TakenSlot(jobid, rank, pod.metadata.uid, pod.metadata.name)
            for rank, pod in (*changes.take, *changes.assign)
            if by_rank[rank].pod_uid != pod.metadata.uid
        ]
        writes.ended += [(jobid, rank) for rank in changes.end]
        if changes.running and workload.state is State.ALLOCATED:
            writes.started.append(workload.id)
        if changes.state is None:
            continue
        if len(allocation.open_slots) > len(changes.end):
            writes.draining.append(workload.id)
        else:
            writes.endings.append(ending_within_limit(workload, changes.state, changes.outcome, changes.message))
            writes.finished.add(jobid)
    return writes


_PODS_AT_ONCE, _PODS_OF_EACH = 128, 16
"""Pods of large gangs that are released before these are planned again: together, and of each at least."""
_NOBODY_WAITS_S = 0.5
"""How long the matcher may hold what nobody waits for. The next arrival requests a cycle at once, and that returns it first."""


class SlotWriter:
    """Writes slots and releases pods.

    Parameters
    ----------
    ledger, trigger
        The queue and the control tasks.
    gates
        Releases gated pods.
    plan_after
        Has a workload planned again after so many seconds.
    """

    def __init__(self, ledger: Ledger, trigger: Trigger, gates: PodGates, plan_after: Callable[[WorkloadId, float], None]) -> None:
        self._ledger = ledger
        self._trigger = trigger
        self._gates = gates
        self._plan_after = plan_after

    async def write(self, planned: Sequence[PlannedChanges]) -> list[Workload]:
        """Carry the changes out, and return the workloads that ended."""
        writes = writes_for(planned)
        await self._ledger.write_slots(writes)
        if writes.ended:
            reach(CrashPoint.SLOTS_ENDED)
        if writes.endings:
            reach(CrashPoint.FINISHED)
        if writes.ended or writes.endings:
            SLOTS_ENDED.inc(len(writes.ended))
            self._trigger.schedule(0.0 if self._ledger.waiting else _NOBODY_WAITS_S)
        await self._release_pods(planned)
        return [each.workload for each in planned if each.allocation.jobid in writes.finished]

    async def _release_pods(self, planned: Sequence[PlannedChanges]) -> None:
        gated = [(each, [found for found in each.changes.assign if not self._gates.removed(found[1])]) for each in planned]
        large = sum(len(pods) > _PODS_OF_EACH for _, pods in gated)
        at_once = max(_PODS_AT_ONCE // max(large, 1), _PODS_OF_EACH)
        due: list[_DuePod] = []
        goes_on: set[WorkloadId] = set()
        for each, pods in gated:
            if not pods:
                continue
            gang = self._gates.gang_size(each.workload, each.allocation)
            now = sorted(pods, key=itemgetter(0))[:at_once]
            due += [_DuePod(each.workload, each.allocation, rank, pod, gang) for rank, pod in now]
            if len(pods) > at_once:
                goes_on.add(each.workload.id)
        if not due:
            return
        reach(CrashPoint.SLOTS_TAKEN)
        # The leader of a Flux cluster goes before its followers: they connect to it, and a failed attempt costs them a whole time-out.
        failed = await self._release_together([each for each in due if _is_leader(each.rank, each.pod)])
        failed |= await self._release_together([each for each in due if not _is_leader(each.rank, each.pod)])
        for workload in goes_on - failed:
            self._plan_after(workload, 0)

    async def _release_together(self, due: Sequence[_DuePod]) -> set[WorkloadId]:
        """Release pods, and return the workloads of which some were not: each is planned again after a pause."""
        retries = await asyncio.gather(*(self._gates.remove(*each) for each in due))
        failed: set[WorkloadId] = set()
        for each, retry_s in zip(due, retries, strict=True):
            if retry_s is not None:
                self._plan_after(each.workload.id, retry_s)
                failed.add(each.workload.id)
        return failed


class _DuePod(NamedTuple):
    workload: Workload
    allocation: Allocation
    rank: int
    pod: Pod
    gang: int


def _is_leader(rank: int, pod: Pod) -> bool:
    return rank == 0 and pod.metadata.annotation(names.MINICLUSTER_ANNOTATION) == "true"
