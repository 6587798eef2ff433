"""The leader's copy of what is pending or live, kept in memory so that a cycle over a hundred thousand
workloads reads no table.

`LedgerState` is the reading half of the ledger: indexes over the rows, subscriptions, and one method that
changes it. `apply` takes the `Delta` that the store returned for a change and knows nothing of transitions.
After every change the copy equals what a new leader would load, which the model tests compare step by step.

What a change frees in the graph is collected here for the caller that speaks to Fluxion. If that is lost, the
sweep finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import cast

import structlog
from msgspec import UNSET

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.given_back import given_back_message, leaving_ranks
from fluxqueue.queue.model.groups import GroupKey, group_of_workload
from fluxqueue.queue.model.idleness import waits_last
from fluxqueue.queue.model.records import (
    UNUSED_LAST,
    Allocation,
    FluxionJobId,
    RequeueState,
    Reservation,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_states import OwnerRequeueStates
from fluxqueue.queue.model.spending import Spending
from fluxqueue.queue.store.deltas import AllocationUpdate, Delta, SlotUpdate
from fluxqueue.queue.store.freed import Freed
from fluxqueue.queue.store.planned_end_index import PlannedEndIndex
from fluxqueue.queue.store.waiting_requests import WaitingRequests

__all__ = ["LedgerState", "Listener", "TableContents"]

_REMEMBERED_ENDED = 1_000
_PART = 2_000
"""Rows that are loaded before others get a turn."""
_CONTENTS = (
    "requests",
    "owner_requeue_states",
    "_workloads",
    "_by_uid",
    "_by_group",
    "_described",
    "_allocations",
    "_remnants",
    "_pairs",
    "_stale_pairs",
    "_by_jobid",
    "_ends",
    "_pending",
    "_evicting",
    "_given_back",
    "_moved",
    "_room",
    "_ended",
    "_unreleased",
    "_reservations",
    "_first_starts",
    "_freed",
)
"""What is loaded."""

log = structlog.get_logger()

Listener = Callable[[WorkloadId], None]
_Pair = tuple[Workload, Allocation]
_NO_PAIR = cast("_Pair", None)
"""Holds the place of a pair that is stale."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """What is pending or live, read from the tables or from memory."""

    workloads: Sequence[Workload]
    allocations: Sequence[Allocation]
    reservations: Sequence[Reservation]


class LedgerState:
    """Pending and live workloads with their allocations and reservations.

    Parameters
    ----------
    clock
        The time of the queue, which is in its rows and never goes back.
    wall
        The time of day, for what people write; the same as `clock` if it is not given.
    """

    def __init__(self, clock: Callable[[], datetime], wall: Callable[[], datetime] | None = None) -> None:
        self.clock = clock
        self.wall = wall or clock
        self.owner_requeue_states = OwnerRequeueStates()
        """Requeue states of pods that a controller replaces, of the last half hour."""
        self.spending = Spending()
        """What accounts with budgets used by allocations that are freed."""
        self._workloads: dict[WorkloadId, Workload] = {}
        self._by_uid: dict[str, WorkloadId] = {}
        self._by_group: dict[GroupKey, WorkloadId] = {}
        self._described: dict[WorkloadId, int] = {}
        """Hash of what the intake described last: a hundred thousand jobspecs would be kept twice."""
        self._allocations: dict[WorkloadId, Allocation] = {}
        self._remnants: dict[FluxionJobId, Allocation] = {}
        self._live: tuple[_Pair, ...] | None = None
        self._pairs: dict[WorkloadId, _Pair] = {}
        """What `live` returns of allocations, in their order, but for the stale pairs."""
        self._stale_pairs: set[WorkloadId] = set()
        self._by_jobid: dict[FluxionJobId, WorkloadId] = {}
        self._ends = PlannedEndIndex()
        self.requests = WaitingRequests()
        """What the requests of pending work come to."""
        self._pending: set[WorkloadId] = set()
        self._evicting: set[WorkloadId] = set()
        self._given_back: set[WorkloadId] = set()
        self._moved: set[WorkloadId] = set()
        self._room: set[WorkloadId] = set()
        self._ended: dict[WorkloadId, Workload] = {}
        """Rows of the last that ended, oldest first: their FluxJobs are written soon."""
        self._unreleased: set[FluxionJobId] = set()
        self._reservations: dict[WorkloadId, Reservation] = {}
        self._first_starts: dict[WorkloadId, datetime] = {}
        self._freed = Freed()
        self._untold: list[WorkloadId] = []
        """Workloads that were loaded, or are gone since, of which the listeners do not know yet."""
        self._listeners: list[Listener] = []
        self._slot_listeners: list[Listener] = []
        self._order_listeners: list[Listener] = []
        self.added_priority: Callable[[Workload], int] = lambda _workload: 0
        """What is added to the priority of a workload; whoever sets it calls `reprioritise` for those that
        are known."""
        self._first: Mapping[WorkloadId, int] = {}

    # ---- reading -------------------------------------------------------------------------------------------

    def get(self, workload: WorkloadId) -> Workload | None:
        """Return a pending or live workload; None once it has ended."""
        return self._workloads.get(workload)

    def by_uid(self, uid: str) -> Workload | None:
        """Return the pending or live workload of an object."""
        workload = self._by_uid.get(uid)
        return self._workloads[workload] if workload is not None else None

    def group(self, key: GroupKey) -> Workload | None:
        """Return the pending or live workload of a pod group."""
        workload = self._by_group.get(key)
        return self._workloads[workload] if workload is not None else None

    def all(self) -> list[Workload]:
        """Return every pending and live workload."""
        return list(self._workloads.values())

    @property
    def waiting(self) -> bool:
        """True if any workload is pending."""
        return bool(self._pending)

    def pending(self) -> list[Workload]:
        """Return pending workloads in policy order: priority, submit time, id."""
        waiting = [self._workloads[workload] for workload in self._pending]
        return sorted(
            waiting, key=lambda workload: (-workload.order_priority, workload.submitted_at, workload.id)
        )

    def allocation(self, workload: WorkloadId) -> Allocation | None:
        """Return the live allocation of a workload; remnants do not count."""
        return self._allocations.get(workload)

    def allocation_of_job(self, jobid: FluxionJobId) -> Allocation | None:
        """Return the live allocation of this id, which may be a remnant."""
        if (remnant := self._remnants.get(jobid)) is not None:
            return remnant
        owner = self._by_jobid.get(jobid)
        return self._allocations.get(owner) if owner is not None else None

    def by_jobid(self, jobid: FluxionJobId) -> Workload | None:
        """Return the workload that a live allocation belongs to."""
        owner = self._by_jobid.get(jobid)
        return self._workloads.get(owner) if owner is not None else None

    def live(self) -> Sequence[tuple[Workload, Allocation]]:
        """Return allocations that hold something, with their workloads; a requeued workload may have remnants
        too.

        A cycle asks several times, so pairs are kept, and only those of changed workloads are made again.
        """
        if self._live is None:
            for workload_id in self._stale_pairs:
                self._pairs[workload_id] = self._workloads[workload_id], self._allocations[workload_id]
            self._stale_pairs.clear()
            remnants = [(self._workloads[remnant.workload], remnant) for remnant in self._remnants.values()]
            self._live = (*self._pairs.values(), *remnants)
        return self._live

    def evicting(self) -> list[tuple[Workload, Allocation]]:
        """Return workloads that free their nodes because they are to wait again, with their allocations."""
        found = (
            (self._workloads[workload_id], self._allocations.get(workload_id))
            for workload_id in sorted(self._evicting)
        )
        return [(workload, allocation) for workload, allocation in found if allocation is not None]

    def gave_back(self) -> list[tuple[Workload, Allocation]]:
        """Return workloads that gave back slots of their allocation, or pods by which they grew, with it."""
        found = (
            (self._workloads[workload_id], self._allocations.get(workload_id))
            for workload_id in sorted(self._given_back)
        )
        return [(workload, allocation) for workload, allocation in found if allocation is not None]

    def moved(self) -> list[Workload]:
        """Return workloads that were moved, or are to move, so that other work starts."""
        return [self._workloads[workload_id] for workload_id in sorted(self._moved)]

    def got_room(self) -> list[Workload]:
        """Return workloads for which others were moved, or gave pods back."""
        return [self._workloads[workload_id] for workload_id in sorted(self._room)]

    def giving_back(self) -> list[tuple[Workload, Allocation]]:
        """Return those of them whose slots are not all free yet."""
        return [held for held in self.gave_back() if leaving_ranks(*held)]

    def planned_to_end(self, until: datetime) -> list[tuple[Workload, Allocation]]:
        """Return allocations that hold something and were to end until a time, with their workloads."""
        found = (
            (jobid, self.by_jobid(jobid), self.allocation_of_job(jobid)) for jobid in self._ends.until(until)
        )
        return [
            (row, each)
            for jobid, row, each in found
            if row is not None and each is not None and each.jobid == jobid
        ]

    def next_planned_end(self, after: datetime) -> datetime | None:
        """Return the first planned end of a live allocation after a time; None if there is none."""
        return self._ends.first_after(after)

    def remnants(self) -> list[Allocation]:
        """Return what requeued workloads still hold, for pods on nodes that are missing or NotReady."""
        return list(self._remnants.values())

    def reservation(self, workload: WorkloadId) -> Reservation | None:
        """Return where and when a pending workload is to start."""
        return self._reservations.get(workload)

    def reservations(self) -> list[Reservation]:
        """Return all reservations by their start."""
        return sorted(self._reservations.values(), key=lambda each: (each.start, each.workload))

    def first_start(self, workload: WorkloadId) -> datetime | None:
        """Return the start of a pending workload's first reservation, even if that was dropped since."""
        return self._first_starts.get(workload)

    def contents(self) -> TableContents:
        """Return everything that is pending or live."""
        return TableContents(self.all(), [allocation for _, allocation in self.live()], self.reservations())

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
            self._put_workload(workload)
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

    def load_contents(
        self, contents: TableContents, owner_requeue_states: Iterable[tuple[RequeueState, datetime]]
    ) -> None:
        """Forget everything, and hold these rows instead;
        the listeners are to be told (`tell_loaded`) of the workloads of before and after.
        """
        for _ in self.loading_contents(contents, owner_requeue_states):
            pass

    def loading_contents(
        self, contents: TableContents, owner_requeue_states: Iterable[tuple[RequeueState, datetime]]
    ) -> Iterator[None]:
        """Do so, and yield after each part of the rows; until the end, this copy is the one of before."""
        fresh = LedgerState(self.clock, self.wall)
        fresh.added_priority, fresh._first = self.added_priority, self._first
        for requeue_state, at in owner_requeue_states:
            fresh.owner_requeue_states.record(requeue_state, at)
        for number, workload in enumerate(contents.workloads, start=1):
            fresh._put_workload(workload)
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
        for name in _CONTENTS:
            setattr(self, name, getattr(fresh, name))
        self._live = None
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

    def _set_workload(self, workload: Workload) -> None:
        self.requests.change(self._workloads.get(workload.id), workload)
        self._workloads[workload.id] = workload
        (self._pending.add if workload.state is State.PENDING else self._pending.discard)(workload.id)
        (self._evicting.add if workload.evicting else self._evicting.discard)(workload.id)
        (self._given_back.add if given_back_message(workload) else self._given_back.discard)(workload.id)
        (self._moved.add if workload.requeue_state.moved else self._moved.discard)(workload.id)
        (self._room.add if workload.requeue_state.room else self._room.discard)(workload.id)
        if workload.id in self._pairs:
            self._stale_pairs.add(workload.id)

    def _pop_allocation(self, workload_id: WorkloadId) -> None:
        if (allocation := self._allocations.pop(workload_id, None)) is not None:
            self._ends.drop(allocation.jobid)
        self._pairs.pop(workload_id, None)
        self._stale_pairs.discard(workload_id)

    def _remember_ended(self, ending: Ending, finished_at: datetime) -> None:
        if (workload := self._workloads.get(ending.workload)) is None:
            return
        self._ended[workload.id] = replace(
            workload,
            state=ending.state,
            outcome=ending.outcome,
            reason=Reason.NONE,
            message=ending.message,
            started_at=ending.began_at,
            finished_at=finished_at,
        )
        if len(self._ended) > _REMEMBERED_ENDED:
            del self._ended[next(iter(self._ended))]

    def _put_workload(self, workload: Workload) -> None:
        self._ended.pop(workload.id, None)
        self._set_workload(self._prioritised(workload))
        self._described.pop(workload.id, None)
        self._by_uid[workload.uid] = workload.id
        if (key := group_of_workload(workload)) is not None:
            self._by_group[key] = workload.id

    def _drop_workload(self, workload_id: WorkloadId) -> None:
        self._described.pop(workload_id, None)
        self._first_starts.pop(workload_id, None)
        self._pop_allocation(workload_id)
        self._pending.discard(workload_id)
        self._evicting.discard(workload_id)
        self._given_back.discard(workload_id)
        self._moved.discard(workload_id)
        self._room.discard(workload_id)
        if (workload := self._workloads.pop(workload_id, None)) is None:
            return
        self.requests.change(workload, None)
        self._by_uid.pop(workload.uid, None)
        if (key := group_of_workload(workload)) is not None and self._by_group.get(key) == workload_id:
            del self._by_group[key]

    def _put_allocation(self, allocation: Allocation) -> None:
        self._by_jobid[allocation.jobid] = allocation.workload
        self._ends.put(allocation.jobid, allocation.end)
        (self._unreleased.add if allocation.released_at is None else self._unreleased.discard)(
            allocation.jobid
        )
        if allocation.remnant:
            self._remnants[allocation.jobid] = allocation
        else:
            self._allocations[allocation.workload] = allocation
            self._pairs.setdefault(allocation.workload, _NO_PAIR)
            self._stale_pairs.add(allocation.workload)
            self._first_starts.pop(allocation.workload, None)

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
