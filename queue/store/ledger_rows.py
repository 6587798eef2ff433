"""The rows of what is pending or live, in memory, with the indexes by which they are found.

They are one object, so a load fills another one and takes its place at once
(`fluxqueue.queue.store.ledger_state`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.given_back import given_back_message, leaving_ranks
from fluxqueue.queue.model.groups import GroupKey, group_of_workload
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Reservation, Workload, WorkloadId
from fluxqueue.queue.model.requeue_states import OwnerRequeueStates
from fluxqueue.queue.store.freed import Freed
from fluxqueue.queue.store.planned_end_index import PlannedEndIndex
from fluxqueue.queue.store.waiting_requests import WaitingRequests

__all__ = ["LedgerRows", "TableContents"]

_REMEMBERED_ENDED = 1_000
_Pair = tuple[Workload, Allocation]
_NO_PAIR = cast("_Pair", None)
"""Holds the place of a pair that is stale."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """What is pending or live, read from the tables or from memory."""

    workloads: Sequence[Workload]
    allocations: Sequence[Allocation]
    reservations: Sequence[Reservation]


class LedgerRows:
    """Pending and live workloads with their allocations and reservations."""

    def __init__(self) -> None:
        self.owner_requeue_states = OwnerRequeueStates()
        """Requeue states of pods that a controller replaces, of the last half hour."""
        self.requests = WaitingRequests()
        """What the requests of pending work come to."""
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
        """What is to be freed in the graph, which a load forgets."""

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
        self._set_workload(workload)
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
