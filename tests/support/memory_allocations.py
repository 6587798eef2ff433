"""Allocations and slots of the store in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from support.memory_tables import AllocationRow, MemoryTables

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.changes import Replacement, TakenSlot
from fluxqueue.queue.model.records import (
    Allocation,
    Epoch,
    FluxionJobId,
    Grant,
    SlotState,
    Workload,
)
from fluxqueue.queue.model.states import LIVE
from fluxqueue.queue.store import PodAlreadyPlaced
from fluxqueue.queue.store.deltas import (
    AllocationUpdate,
    Delta,
    SlotUpdate,
    WorkloadUpdate,
    granted_allocation,
    granted_workload,
)

__all__ = ["MemoryAllocations"]


class MemoryAllocations(MemoryTables):
    """The part of the store about allocations, releases and slots."""

    async def next_jobids(self, n: int) -> list[FluxionJobId]:
        self._last_jobid += n
        return [FluxionJobId(jobid) for jobid in range(self._last_jobid - n + 1, self._last_jobid + 1)]

    async def skip_jobids(self, epoch: Epoch, last: FluxionJobId) -> None:
        self._hold(epoch)
        if self._last_jobid < last:
            self._last_jobid = last + 10_000

    async def grant(self, epoch: Epoch, grants: Sequence[Grant], claimed_s: float = 0.0) -> Delta:
        self._hold(epoch)
        updates, allocations, repeated = [], [], []
        for grant in grants:
            workload, row = self._rows.get(grant.workload), self._allocations.get(grant.jobid)
            if workload is None:
                continue
            if row is not None:
                repeated += (
                    [row.allocation] if row.allocation.live and row.allocation.workload == workload.id else []
                )
                continue
            if workload.state is not State.PENDING or grant.generation not in (None, workload.generation):
                continue
            now = self._clock()
            allocations.append(allocation := granted_allocation(grant, now, claimed=claimed_s > 0))
            reserved = self._reservations.get(workload.id)
            promised_at = (
                workload.promised_at
                or grant.promised_at
                or (reserved.first_start if reserved is not None else None)
            )
            updates.append(update := granted_workload(grant, now, promised_at))
            self._allocations[grant.jobid] = AllocationRow(allocation, now + timedelta(seconds=claimed_s))
            self._rows[workload.id] = update.of(workload)
            self._reservations.pop(workload.id, None)
            self._log(epoch, workload.id, State.PENDING, State.ALLOCATED, "", f"job {grant.jobid}")
        return Delta(
            workloads=tuple(self._rows[allocation.workload] for allocation in repeated),
            workload_updates=tuple(updates),
            allocations=(*allocations, *repeated),
            unreserved=tuple(update.id for update in updates),
        )

    async def claim_releases(
        self, epoch: Epoch, limit: int, retry_after_s: float
    ) -> list[tuple[Workload, Allocation]]:
        await asyncio.sleep(0)
        self._hold(epoch)
        now = self._clock()
        due = [
            row
            for row in self._releasable()
            if row.next_release_at is not None and row.next_release_at <= now
        ]
        claimed = sorted(due, key=lambda row: (row.next_release_at, row.allocation.jobid))[:limit]
        for row in claimed:
            row.next_release_at = now + timedelta(seconds=retry_after_s)
            row.allocation = replace(row.allocation, release_attempts=row.allocation.release_attempts + 1)
        claimed.sort(key=lambda row: (row.allocation.granted_at, row.allocation.jobid))
        return [(self._rows[row.allocation.workload], row.allocation) for row in claimed]

    async def next_release_at(self) -> datetime | None:
        return min(
            (row.next_release_at for row in self._releasable() if row.next_release_at is not None),
            default=None,
        )

    def _releasable(self) -> list[AllocationRow]:
        return [
            row
            for row in self._live_rows()
            if not row.allocation.remnant and self._rows[row.allocation.workload].state is State.ALLOCATED
        ]

    async def void_claims(self, epoch: Epoch) -> list[FluxionJobId]:
        self._hold(epoch)
        now = self._clock()
        claimed = [
            row
            for row in self._allocations.values()
            if row.next_release_at is not None and row.next_release_at > now
        ]
        for row in claimed:
            row.next_release_at = now
        return [row.allocation.jobid for row in claimed]

    async def mark_released(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> Delta:
        self._hold(epoch)
        released, recovered = [], []
        for row in self._unreleased(jobids):
            released.append(update := AllocationUpdate(jobid=row.allocation.jobid, released_at=self._clock()))
            row.allocation, row.next_release_at, row.release_error = update.of(row.allocation), None, ""
            if self._rows[row.allocation.workload].reason is Reason.RELEASE_FAILED:
                recovered.append(WorkloadUpdate(id=row.allocation.workload, reason=Reason.NONE, message=""))
        self._updated(recovered)
        return Delta(allocation_updates=tuple(released), workload_updates=tuple(recovered))

    async def mark_release_failed(self, epoch: Epoch, jobid: FluxionJobId, message: str) -> Delta:
        self._hold(epoch)
        failed = []
        for row in self._unreleased([jobid]):
            row.release_error = message
            if self._rows[row.allocation.workload].state is State.ALLOCATED:
                failed.append(
                    WorkloadUpdate(id=row.allocation.workload, reason=Reason.RELEASE_FAILED, message=message)
                )
        return self._updated(failed)

    def _unreleased(self, jobids: Sequence[FluxionJobId]) -> list[AllocationRow]:
        named = set(jobids)
        return [
            row
            for row in self._live_rows()
            if row.allocation.jobid in named and row.allocation.released_at is None
        ]

    async def retry_releases(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> list[FluxionJobId]:
        self._hold(epoch)
        now = self._clock()
        rows = [
            row
            for row in self._unreleased(jobids)
            if row.release_error and row.next_release_at and row.next_release_at > now
        ]
        for row in rows:
            row.next_release_at = now
        return [row.allocation.jobid for row in rows]

    async def retry_releases_soon(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> list[FluxionJobId]:
        self._hold(epoch)
        rows = [row for row in self._unreleased(jobids) if row.next_release_at is not None]
        for row in rows:
            pause_s = 2.0 ** (min(row.allocation.release_attempts, 10) - 1)
            assert row.next_release_at is not None
            row.next_release_at = min(row.next_release_at, self._clock() + timedelta(seconds=pause_s))
        return [row.allocation.jobid for row in rows]

    async def live_allocations(self) -> list[Allocation]:
        return [row.allocation for row in self._live_rows()]

    async def allocations(self, jobids: Sequence[FluxionJobId]) -> list[Allocation]:
        return [
            self._allocations[jobid].allocation for jobid in sorted(set(jobids)) if jobid in self._allocations
        ]

    async def move_ends(self, epoch: Epoch, ends: Sequence[tuple[FluxionJobId, datetime]]) -> Delta:
        self._hold(epoch)
        moved = []
        for jobid, end in dict(ends).items():
            row = self._allocations.get(jobid)
            if row is not None and row.allocation.live and row.allocation.end != end:
                moved.append(update := AllocationUpdate(jobid=jobid, end=end))
                row.allocation = update.of(row.allocation)
        return Delta(allocation_updates=tuple(moved))

    async def take_slots(self, epoch: Epoch, taken: Sequence[TakenSlot]) -> Delta:
        self._hold(epoch)
        holders = {
            slot.pod_uid
            for row in self._live_rows()
            for slot in row.allocation.slots
            if slot.pod_uid is not None
        }
        free = [
            each
            for each in taken
            if self._slot_state(each.jobid, each.rank) is SlotState.FREE and each.pod_uid not in holders
        ]
        twice = [uid for uid, count in Counter(each.pod_uid for each in free).items() if count > 1]
        if twice:
            raise PodAlreadyPlaced(f"no slot was taken: Key (pod_uid)=({twice[0]}) already exists.")
        self._set_slots([_taken(each.jobid, each.rank, each.pod_uid, each.pod_name) for each in free])
        held = {
            (slot.jobid, slot.rank, slot.pod_uid): slot
            for row in self._live_rows()
            for slot in row.allocation.slots
        }
        taken_slots = {
            key: held[key] for each in taken if (key := (each.jobid, each.rank, each.pod_uid)) in held
        }
        return Delta(
            slot_updates=tuple(
                _taken(slot.jobid, slot.rank, slot.pod_uid, slot.pod_name)
                for _, slot in sorted(taken_slots.items())
            )
        )

    async def vacate_slots(self, epoch: Epoch, vacated: Sequence[tuple[FluxionJobId, int, str]]) -> Delta:
        self._hold(epoch)
        named = set(vacated)
        free = [
            SlotUpdate(jobid=slot.jobid, rank=slot.rank, state=SlotState.FREE)
            for row in self._live_rows()
            for slot in row.allocation.slots
            if slot.pod_uid is not None and (slot.jobid, slot.rank, slot.pod_uid) in named
        ]
        self._set_slots(free)
        return Delta(slot_updates=tuple(free))

    async def end_slots(self, epoch: Epoch, ended: Sequence[tuple[FluxionJobId, int]]) -> Delta:
        self._hold(epoch)
        updates = [
            SlotUpdate(jobid=jobid, rank=rank, state=SlotState.ENDED) for jobid, rank in dict.fromkeys(ended)
        ]
        self._set_slots(updates)
        rows = [
            self._allocations[jobid]
            for jobid in dict.fromkeys(jobid for jobid, _ in ended)
            if jobid in self._allocations
        ]
        freed = [row for row in rows if row.allocation.live and not row.allocation.open_slots]
        for row in freed:
            self._free(row)
        return Delta(slot_updates=tuple(updates), freed=tuple(row.allocation.jobid for row in freed))

    async def replace(self, epoch: Epoch, replacements: Sequence[Replacement]) -> Delta:
        self._hold(epoch)
        ended, updates, passed, slots = [], [], [], []
        for each in {each.replacement: each for each in replacements}.values():
            former, new = self._rows.get(each.replaced), self._rows.get(each.replacement)
            rows = (row for row in self._live_rows() if row.allocation.workload == each.replaced)
            row = next((row for row in rows if not row.allocation.remnant), None)
            if former is None or former.state not in LIVE or row is None:
                continue
            if new is None or new.state is not State.PENDING:
                continue
            now, jobid = self._clock(), row.allocation.jobid
            passed.append(
                change := AllocationUpdate(
                    jobid=jobid, workload=new.id, granted_at=now, released_at=None, release_attempts=0
                )
            )
            self._charge(row.allocation)
            row.allocation, row.next_release_at, row.release_error = change.of(row.allocation), now, ""
            emptied = [slot for slot in row.allocation.slots if slot.state is SlotState.TAKEN]
            slots += [SlotUpdate(jobid=jobid, rank=slot.rank, state=SlotState.FREE) for slot in emptied]
            self._end(epoch, former, each.state, each.outcome, each.message)
            ended.append(former.id)
            updates.append(
                WorkloadUpdate(
                    id=new.id,
                    state=State.ALLOCATED,
                    reason=Reason.NONE,
                    message="",
                    allocated_at=now,
                    jobid=jobid,
                    hosts=former.hosts,
                )
            )
            self._reservations.pop(new.id, None)
            self._log(
                epoch,
                new.id,
                State.PENDING,
                State.ALLOCATED,
                "",
                f"job {jobid}, taken over from workload {former.id}",
            )
        self._set_slots(slots)
        self._updated(updates)
        return Delta(
            ended=tuple(ended),
            workload_updates=tuple(updates),
            allocation_updates=tuple(passed),
            slot_updates=tuple(slots),
            unreserved=tuple(update.id for update in updates),
        )


def _taken(jobid: FluxionJobId, rank: int, pod_uid: str | None, pod_name: str | None) -> SlotUpdate:
    return SlotUpdate(jobid=jobid, rank=rank, state=SlotState.TAKEN, pod_uid=pod_uid, pod_name=pod_name)
