"""The leader's copy of what is pending or live, kept in memory so that a cycle over a hundred thousand
workloads reads no table.

`LedgerState` is the reading half of the ledger: the rows (`fluxqueue.queue.store.ledger_rows`), subscriptions
and one method that changes them. `apply` takes the `Delta` that the store returned for a change and knows
nothing of transitions. After every change the copy equals what a new leader would load, which the model tests
compare step by step.

What a change frees in the graph is collected here for the caller that speaks to Fluxion. If that is lost, the
sweep finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter

import structlog
from msgspec import UNSET

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.idleness import waits_last
from fluxqueue.queue.model.records import (
    UNUSED_LAST,
    Allocation,
    FluxionJobId,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.spending import Spending
from fluxqueue.queue.store.deltas import AllocationUpdate, Delta, SlotUpdate
from fluxqueue.queue.store.freed import Freed
from fluxqueue.queue.store.ledger_rows import LedgerRows, TableContents

__all__ = ["LedgerState", "Listener"]

_PART = 2_000
"""Rows that are loaded before others get a turn."""
log = structlog.get_logger()

Listener = Callable[[WorkloadId], None]


class LedgerState(LedgerRows):
    """The rows, with all that follows when they change.

    Parameters
    ----------
    clock
        The time of the queue, which is in its rows and never goes back.
    wall
        The time of day, for what people write; the same as `clock` if it is not given.
    """

    def __init__(self, clock: Callable[[], datetime], wall: Callable[[], datetime] | None = None) -> None:
        super().__init__()
        self.clock = clock
        self.wall = wall or clock
        self.spending = Spending()
        """What accounts with budgets used by allocations that are freed."""
        self._untold: list[WorkloadId] = []
        """Workloads that were loaded, or are gone since, of which the listeners do not know yet."""
        self._listeners: list[Listener] = []
        self._slot_listeners: list[Listener] = []
        self._order_listeners: list[Listener] = []
        self.added_priority: Callable[[Workload], int] = lambda _workload: 0
        """What is added to the priority of a workload; whoever sets it calls `reprioritise` for those that
        are known."""
        self._first: Mapping[WorkloadId, int] = {}

    # ---- subscriptions and freed resources -----------------------------------------------------------------

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with the id of each workload that changes, after the change is stored."""
        self._listeners.append(listener)

    def subscribe_slots(self, listener: Listener) -> None:
        """Call the listener with the id of each workload of which a slot changes."""
        self._slot_listeners.append(listener)

    def subscribe_order(self, listener: Listener) -> None:
        """Call the listener with the id of each pending workload whose place in the order changed,
        and nothing else of it.
        """
        self._order_listeners.append(listener)

    def notify(self, ids: Iterable[WorkloadId]) -> None:
        """Call the listeners for those of the workloads that are pending or live,
        although their rows did not change.
        """
        _call(self._listeners, [workload for workload in ids if workload in self._workloads])

    @property
    def freed(self) -> Freed:
        """What is to be freed in the graph, to look at."""
        return self._freed

    def take_freed(self) -> Freed:
        """Return what is to be freed in the graph, and forget it;
        the caller returns it with `return_freed` if that failed.
        """
        freed, self._freed = self._freed, Freed()
        return freed

    def return_freed(self, freed: Freed) -> None:
        """Keep for the next `take_freed` what could not be freed in the graph."""
        self._freed.add(freed)

    # ---- changing ------------------------------------------------------------------------------------------

    def apply(self, delta: Delta) -> None:
        """Make the changes that the store has made, then call the listeners."""
        self._live = None
        slot_owners = {
            owner for update in delta.slot_updates if (owner := self._by_jobid.get(update.jobid)) is not None
        }
        for workload in delta.workloads:
            self._put_workload(self._prioritised(workload))
        for update in delta.workload_updates:
            if (known := self._workloads.get(update.id)) is not None:
                now = update.of(known)
                self._set_workload(self._prioritised(now) if known.requeue_state.unused else now)
                if update.requeue_state is not UNSET:
                    self.owner_requeue_states.record(update.requeue_state, self.clock(), known.requeue_state)
        for allocation in delta.allocations:
            self._put_allocation(allocation)
        for change in delta.allocation_updates:
            self._update_allocation(change)
        freed = set(delta.freed)
        for jobid, updates in groupby(
            sorted(delta.slot_updates, key=attrgetter("jobid")), key=attrgetter("jobid")
        ):
            self._update_slots(jobid, list(updates), freed=jobid in freed)
        for jobid in delta.freed:
            self._free(jobid)
        for ending, finished_at in delta.endings:
            self._remember_ended(ending, finished_at)
        for workload_id in delta.ended:
            self._drop_workload(workload_id)
        for workload_id in delta.unreserved:
            self._reservations.pop(workload_id, None)
        for reservation in delta.reservations:
            self._reservations[reservation.workload] = reservation
            self._first_starts.setdefault(reservation.workload, reservation.first_start)
        _call(self._slot_listeners, slot_owners)
        _call(self._listeners, delta.changed)

    def reprioritise(self, ids: Iterable[WorkloadId]) -> bool:
        """Add to the priorities of these workloads what `added_priority` says now;
        return True if the order of pending ones changed.
        """
        moved: list[WorkloadId] = []
        for workload_id in ids:
            workload = self._workloads.get(workload_id)
            if workload is None or (now := self._prioritised(workload)) is workload:
                continue
            self._live = None
            self._set_workload(now)
            if workload.state is State.PENDING:
                moved.append(workload_id)
        _call(self._order_listeners, moved)
        return bool(moved)

    def put_first(self, added: Mapping[WorkloadId, int]) -> bool:
        """Add these to the priorities of workloads, and no longer what was added before;
        return True if the order of pending ones changed.
        """
        changed = {each for each, _ in self._first.items() ^ added.items()}
        self._first = added
        return self.reprioritise(changed)

    def _prioritised(self, workload: Workload) -> Workload:
        added = self.added_priority(workload) + self._first.get(workload.id, 0)
        if waits_last(workload):
            added = UNUSED_LAST
        return workload if added == workload.added_priority else replace(workload, added_priority=added)

    def loading_contents(
        self, contents: TableContents, owner_requeue_states: Iterable[tuple[RequeueState, datetime]]
    ) -> Iterator[None]:
        """Forget everything, and hold these rows instead; yield after each part of them. Until the end, this
        copy is the one of before. The listeners are to be told (`tell_loaded`) of the workloads of before and
        after.
        """
        fresh = LedgerRows()
        for requeue_state, at in owner_requeue_states:
            fresh.owner_requeue_states.record(requeue_state, at)
        for number, workload in enumerate(contents.workloads, start=1):
            fresh._put_workload(self._prioritised(workload))
            fresh.owner_requeue_states.note_taken(workload)
            if number % _PART == 0:
                yield
        for number, allocation in enumerate(contents.allocations, start=1):
            fresh._put_allocation(allocation)
            if number % _PART == 0:
                yield
        fresh._reservations = {each.workload: each for each in contents.reservations}
        fresh._first_starts = {each.workload: each.first_start for each in contents.reservations}
        self._untold = [*(self._workloads.keys() | fresh._workloads.keys()).union(self._untold)]
        vars(self).update(vars(fresh))
        self.spending.stale = True

    def tell_loaded(self, most: int) -> bool:
        """Call the listeners for some of what was loaded; return True if there is more.
        What a load that was broken off left is told with the next one.
        """
        told = self._untold[-most:]
        del self._untold[-most:]
        self.reprioritise(told)  # what is added may have changed while they were loaded
        _call(self._listeners, told)
        return bool(self._untold)

    def _update_allocation(self, update: AllocationUpdate) -> None:
        if (known := self.allocation_of_job(update.jobid)) is None:
            return
        allocation = update.of(known)
        if allocation.granted_at > known.granted_at:
            self._charge(known, allocation.granted_at)
        if (allocation.workload, allocation.remnant) != (known.workload, known.remnant):
            self._pop_allocation(known.workload)
        self._put_allocation(allocation)

    def _update_slots(self, jobid: FluxionJobId, updates: Sequence[SlotUpdate], *, freed: bool) -> None:
        if (allocation := self.allocation_of_job(jobid)) is None:
            return
        slots = list(allocation.slots)
        for update in updates:
            if update.rank >= len(slots):
                continue
            before, slots[update.rank] = slots[update.rank], update.of(slots[update.rank])
            if update.state is SlotState.ENDED and before.state is not SlotState.ENDED and not freed:
                self._freed.slots.setdefault(jobid, []).append(slots[update.rank])
        self._put_allocation(replace(allocation, slots=tuple(slots)))

    def _free(self, jobid: FluxionJobId) -> None:
        self._freed.jobs.add(jobid)
        self._freed.slots.pop(jobid, None)
        self._unreleased.discard(jobid)
        if (allocation := self.allocation_of_job(jobid)) is not None:
            self._charge(allocation, self.clock())
            self._freed.nodes.update(slot.node for slot in allocation.slots if slot.state is SlotState.TAKEN)
        self._ends.drop(jobid)
        owner = self._by_jobid.pop(jobid, None)
        if self._remnants.pop(jobid, None) is None and owner is not None:
            self._pop_allocation(owner)

    def _charge(self, allocation: Allocation, until: datetime) -> None:
        """Count as used what an allocation had.
        Its end as stored is earlier by a moment, and the next read of the tables corrects that.
        """
        if (owner := self._workloads.get(allocation.workload)) is not None:
            self.spending.add(owner.account, allocation.shares, allocation.granted_at, until)


def _call(listeners: Sequence[Listener], ids: Iterable[WorkloadId]) -> None:
    """Call every listener for every id; one that fails for a workload keeps no other from being called."""
    for workload in list(ids):
        for listener in listeners:
            try:
                listener(workload)
            except Exception:
                log.exception("ledger.listener_failed", workload=workload)
