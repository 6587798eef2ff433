"""The rows of the store in memory, its fence, and the constraints that the tables of Postgres have too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.records import (
    Allocation,
    Epoch,
    FluxionJobId,
    Reservation,
    SlotState,
    Transition,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.states import TRANSITIONS
from fluxqueue.queue.store import StaleLeader, StalledTask, Store
from fluxqueue.queue.store.deltas import Delta, SlotUpdate, WorkloadUpdate

__all__ = ["AllocationRow", "MemoryTables"]

_T = TypeVar("_T")


@dataclass(slots=True)
class AllocationRow:
    """A row of the table ``allocation`` with its slots."""

    allocation: Allocation
    next_release_at: datetime | None
    release_error: str = ""


class MemoryTables(Store):
    """The tables as dicts, and the leader's part of the store.

    Parameters
    ----------
    clock
        The time, timezone-aware.
    """

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._epoch = Epoch(0)
        self._rows: dict[WorkloadId, Workload] = {}
        self._id_of: dict[str, WorkloadId] = {}
        self._described: dict[WorkloadId, tuple[Reason, str]] = {}
        self._history: dict[WorkloadId, Workload] = {}
        self._allocations: dict[FluxionJobId, AllocationRow] = {}
        self._reservations: dict[WorkloadId, Reservation] = {}
        self._reserved_nodes: dict[str, tuple[str, ...]] = {}
        self._transitions: list[Transition] = []
        self._spent: list[tuple[str, Allocation, datetime]] = []
        """Account, allocation and end of each time that an allocation was held."""
        self._last_id = 0
        self._last_jobid = 0

    async def acquire_leadership(
        self, holder: str, shard: str = "default", *, stalled_s: float = 3.0
    ) -> Epoch:
        return self.raise_epoch()

    def raise_epoch(self) -> Epoch:
        """Begin the epoch of a new leader."""
        self._epoch = Epoch(max(self._epoch + 1, int(self._clock().timestamp())))
        return self._epoch

    def put(self, workload: Workload, allocation: Allocation | None = None) -> None:
        """Store a row as a test wants it; an allocation that is not released is due for release."""
        self._rows[workload.id] = workload
        self._id_of[workload.uid] = workload.id
        if allocation is not None:
            due = self._clock() if allocation.released_at is None else None
            self._allocations[allocation.jobid] = AllocationRow(allocation, due)

    async def now(self) -> datetime:
        return self._clock()

    async def read_clocks(self) -> tuple[datetime, datetime | None]:
        return self._clock(), None

    async def keep_clock(self, epoch: Epoch, time: datetime) -> None:
        self._hold(epoch)

    async def stalled_tasks(self, shard: str = "default") -> list[StalledTask]:
        return []

    async def requeue_tasks(self, epoch: Epoch, tasks: Sequence[int]) -> int:
        self._hold(epoch)
        return 0

    def _hold(self, epoch: Epoch) -> None:
        if epoch != self._epoch:
            raise StaleLeader(f"epoch {epoch} is not the newest of its shard: another leader has taken over")

    # ---- rows ----------------------------------------------------------------------------------------------

    def _by_uid(self, uid: str) -> Workload | None:
        known = self._id_of.get(uid)
        return None if known is None else self._rows.get(known) or self._history.get(known)

    def _end(
        self, epoch: Epoch, workload: Workload, state: State, outcome: Outcome, message: str
    ) -> list[AllocationRow]:
        """End a workload, and return the allocations that this freed."""
        self._log(epoch, workload.id, workload.state, state, outcome, message)
        self._rows[workload.id] = replace(
            workload,
            state=state,
            outcome=outcome,
            reason=Reason.NONE,
            message=message,
            finished_at=self._clock(),
        )
        self._reservations.pop(workload.id, None)
        held = [row for row in self._live_rows() if row.allocation.workload == workload.id]
        for row in held:
            self._free(row)
        return held

    def _live_rows(self) -> list[AllocationRow]:
        return [row for _, row in sorted(self._allocations.items()) if row.allocation.live]

    def _charge(self, held: Allocation) -> None:
        """Record what the account of a workload used until now."""
        if (account := self._rows[held.workload].account) and held.live:
            self._spent.append((account, held, self._clock()))

    def _free(self, row: AllocationRow) -> None:
        self._charge(row.allocation)
        slots = tuple(
            replace(slot, state=SlotState.ENDED, pod_uid=None, pod_name=None) for slot in row.allocation.slots
        )
        row.allocation = replace(row.allocation, freed_at=self._clock(), slots=slots)
        row.next_release_at = None

    def _slot_state(self, jobid: FluxionJobId, rank: int) -> SlotState | None:
        row = self._allocations.get(jobid)
        return (
            row.allocation.slots[rank].state if row is not None and rank < len(row.allocation.slots) else None
        )

    def _set_slots(self, updates: Iterable[SlotUpdate]) -> None:
        for update in updates:
            row = self._allocations.get(update.jobid)
            if row is not None and update.rank < len(row.allocation.slots):
                slots = list(row.allocation.slots)
                slots[update.rank] = update.of(slots[update.rank])
                row.allocation = replace(row.allocation, slots=tuple(slots))

    def _named(self, changes: Mapping[WorkloadId, _T], states: Sequence[State]) -> list[tuple[Workload, _T]]:
        """Return the rows of these workloads that are in one of these states, by id,
        with the value given for each.
        """
        rows = [(self._rows[each], change) for each, change in sorted(changes.items()) if each in self._rows]
        return [(workload, change) for workload, change in rows if workload.state in states]

    def _updated(self, updates: Sequence[WorkloadUpdate]) -> Delta:
        for update in updates:
            self._rows[update.id] = update.of(self._rows[update.id])
        return Delta(workload_updates=tuple(updates))

    def _log(
        self,
        epoch: Epoch,
        workload: WorkloadId,
        before: State | None,
        after: State,
        reason: str = "",
        detail: str = "",
    ) -> None:
        if after not in TRANSITIONS[before]:
            raise AssertionError(f"workload {workload} cannot go from {before} to {after}")
        self._transitions.append(
            Transition(
                workload=workload,
                at=self._clock(),
                before=before,
                after=after,
                reason=str(reason),
                detail=detail,
                epoch=epoch,
            )
        )
