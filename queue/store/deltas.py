"""What one change did to the tables, as rows.

Every write of the store that changes pending or live work returns a `Delta`, and the leader's copy of the
tables applies it (`fluxqueue.queue.store.ledger_state`). So a transition is written once, in SQL, and nothing
repeats it in Python.

A delta holds whole rows of what is new, and only the changed columns of what was there: a jobspec may have
many kilobytes. The database returns what it decides itself, such as times and counters. What a statement
writes as it was given is taken from the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.jobspecs import labels_of
from fluxqueue.queue.model.records import (
    Allocation,
    FluxionJobId,
    Grant,
    Reservation,
    Slot,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState

__all__ = [
    "AllocationUpdate",
    "Delta",
    "SlotUpdate",
    "WorkloadUpdate",
    "granted_allocation",
    "granted_workload",
]


class WorkloadUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Changed columns of a pending or live workload; ``UNSET`` is unchanged."""

    id: WorkloadId
    state: State | UnsetType = UNSET
    reason: Reason | UnsetType = UNSET
    message: str | UnsetType = UNSET
    promised_at: datetime | UnsetType | None = UNSET
    allocated_at: datetime | UnsetType | None = UNSET
    started_at: datetime | UnsetType | None = UNSET
    requeues: int | UnsetType = UNSET
    jobid: FluxionJobId | UnsetType | None = UNSET
    hosts: str | UnsetType = UNSET
    generation: int | UnsetType = UNSET
    requeue_state: RequeueState | UnsetType = UNSET

    def of(self, workload: Workload) -> Workload:
        """Return the row after the change."""
        return replace(workload, **_changed(self))


class AllocationUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Changed columns of a live allocation; ``UNSET`` is unchanged."""

    jobid: FluxionJobId
    workload: WorkloadId | UnsetType = UNSET
    """Its new owner, after a replacement."""
    granted_at: datetime | UnsetType = UNSET
    end: datetime | UnsetType | None = UNSET
    released_at: datetime | UnsetType | None = UNSET
    release_attempts: int | UnsetType = UNSET
    remnant: bool | UnsetType = UNSET

    def of(self, allocation: Allocation) -> Allocation:
        """Return the row after the change."""
        return replace(allocation, **_changed(self))


class SlotUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """State and pod of a slot. An ended slot has no pod."""

    jobid: FluxionJobId
    rank: int
    state: SlotState
    pod_uid: str | None = None
    pod_name: str | None = None

    def of(self, slot: Slot) -> Slot:
        """Return the row after the change."""
        return replace(slot, state=self.state, pod_uid=self.pod_uid, pod_name=self.pod_name)


def _changed(update: WorkloadUpdate | AllocationUpdate) -> Mapping[str, Any]:
    return {name: value for name in update.__struct_fields__ if (value := getattr(update, name)) is not UNSET}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """The rows that one change wrote; it is empty if the change had no effect.

    Attributes
    ----------
    workloads
        New, edited or resubmitted ones, as whole rows.
    workload_updates
        Changed columns of others.
    ended
        Workloads that have ended, by this change or before.
    endings
        How and when some of them ended, by this change, and when they began.
    allocations
        Live ones that the caller may not know, as whole rows.
    allocation_updates
        Changed columns of others that stay live.
    slot_updates
        Slots of allocations that stay live, or whose last slots ended by this change.
    freed
        Allocations that hold nothing from now on. Their slots have ended with them.
    reservations
        Set or moved.
    unreserved
        Workloads that have no reservation from now on.
    """

    workloads: tuple[Workload, ...] = ()
    workload_updates: tuple[WorkloadUpdate, ...] = ()
    ended: tuple[WorkloadId, ...] = ()
    endings: tuple[tuple[Ending, datetime], ...] = ()
    allocations: tuple[Allocation, ...] = ()
    allocation_updates: tuple[AllocationUpdate, ...] = ()
    slot_updates: tuple[SlotUpdate, ...] = ()
    freed: tuple[FluxionJobId, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    unreserved: tuple[WorkloadId, ...] = ()

    @property
    def changed(self) -> list[WorkloadId]:
        """Workloads of which the row or the reservation changed, each once;
        a change of an allocation alone does not count.
        """
        ids = [
            *(workload.id for workload in self.workloads),
            *(update.id for update in self.workload_updates),
            *self.ended,
            *(reservation.workload for reservation in self.reservations),
            *self.unreserved,
        ]
        return list(dict.fromkeys(ids))


def granted_allocation(grant: Grant, granted_at: datetime, *, claimed: bool = False) -> Allocation:
    """Return the allocation that a new grant becomes.
    A slot without a node, of an index that is done, has ended.
    """
    labels = labels_of(grant.shares, len(grant.hosts))
    slots = tuple(
        Slot(
            jobid=grant.jobid,
            rank=rank,
            node=node,
            state=SlotState.ENDED if node == names.NO_NODE else SlotState.FREE,
            label=label,
        )
        for rank, (node, label) in enumerate(zip(grant.hosts, labels, strict=True))
    )
    return Allocation(
        jobid=grant.jobid,
        workload=grant.workload,
        shares=grant.shares,
        granted_at=granted_at,
        start=grant.start,
        end=grant.end,
        release_attempts=1 if claimed else 0,
        slots=slots,
    )


def granted_workload(grant: Grant, allocated_at: datetime, promised_at: datetime | None) -> WorkloadUpdate:
    """Return what a new grant changes of its workload."""
    return WorkloadUpdate(
        id=grant.workload,
        state=State.ALLOCATED,
        reason=Reason.NONE,
        message="",
        promised_at=promised_at,
        allocated_at=allocated_at,
        jobid=grant.jobid,
        hosts=hostlists.encode(grant.hosts),
    )
