"""Carries planned changes out: stores them, and then has the gated pods that got a slot released.

A slot is stored before its pod is released, so a crash in between repeats the same patch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.metrics import SLOTS_ENDED
from fluxqueue.queue.model.changes import SlotWrites, TakenSlot
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.time_limits import ending_within_limit
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger
from fluxqueue.queue.tracking.pod_releases import PodReleases
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
            ending = ending_within_limit(workload, changes.state, changes.outcome, changes.message)
            writes.endings.append(replace(ending, began_at=changes.began_at))
            writes.finished.add(jobid)
    return writes


_NOBODY_WAITS_S = 0.5
"""How long the matcher may hold what nobody waits for.
The next arrival requests a cycle at once, and that returns it first."""


class SlotWriter:
    """Writes slots."""

    def __init__(self, ledger: Ledger, trigger: Trigger, releases: PodReleases) -> None:
        self._ledger = ledger
        self._trigger = trigger
        self._releases = releases

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
        for each in planned:
            self._releases.put(each.workload, each.allocation, each.changes.assign)
        return [each.workload for each in planned if each.allocation.jobid in writes.finished]
