"""From rows to records and back.

Rows come as dicts of column to value, so a table may have columns this version does not know: the version before goes on reading
while a newer one has migrated. JSON arrives as its bytes and is decoded here, where its type is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.jobspecs import labels_of
from fluxqueue.queue.records import (
    NO_SETBACKS,
    NO_WISHES,
    Allocation,
    Epoch,
    FluxionJobId,
    ReleaseMode,
    Setbacks,
    Slot,
    SlotState,
    Transition,
    Wishes,
    Workload,
    WorkloadId,
)

__all__ = [
    "Counts",
    "QueueRow",
    "Row",
    "StalledTask",
    "allocation_of",
    "column",
    "setbacks_text",
    "shares_of",
    "shares_text",
    "transition_of",
    "wishes_text",
    "workload_of",
]

Row = dict[str, Any]
_T = TypeVar("_T")

_shares = msgspec.json.Decoder(tuple[NodeShare, ...])
_wishes = msgspec.json.Decoder(Wishes)
_setbacks = msgspec.json.Decoder(Setbacks)
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A FluxQueue; ``spec`` is its specification as JSON text."""

    name: str
    generation: int
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many workloads of a queue stand in a state for a reason, and how many slots they want."""

    queue: str
    state: State
    reason: Reason
    workloads: int
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledTask:
    """A control task marked as being done."""

    id: int
    task: str
    started_at: datetime


def column(records: Sequence[_T], value: Callable[[_T], Any]) -> list[Any]:
    """One value of each record: a column of an ``unnest``."""
    return [value(record) for record in records]


def shares_text(shares: Sequence[NodeShare]) -> str:
    """What an allocation has on its nodes, as JSON."""
    return _encoder.encode(shares).decode()


def shares_of(text: bytes) -> tuple[NodeShare, ...]:
    """What `shares_text` wrote."""
    return _shares.decode(text)


def workload_of(row: Row) -> Workload:
    """A row of ``workload`` or ``history``."""
    return Workload(
        id=WorkloadId(row["id"]),
        uid=row["uid"],
        api_version=row["api_version"],
        kind=row["kind"],
        namespace=row["namespace"],
        name=row["name"],
        queue=row["queue"],
        priority=row["priority"],
        jobspec=row["jobspec"],
        shape=row["shape"],
        pods=row["pods"],
        duration_s=row["duration_s"],
        duration_assumed=row["duration_assumed"],
        release_mode=ReleaseMode(row["release_mode"]),
        generation=row["generation"],
        state=State(row["state"]),
        reason=Reason(row["reason"]),
        message=row["message"],
        submitted_at=row["submitted_at"],
        allocated_at=row["allocated_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        outcome=Outcome(row["outcome"]),
        requeues=row["requeues"],
        jobid=row["jobid"],
        hosts=row["hosts"],
        wishes=_wishes_of(row.get("wishes")),
        done_indexes=row.get("done_indexes", ""),
        setbacks=_setbacks_of(row.get("setbacks")),
    )


def _wishes_of(text: bytes | None) -> Wishes:
    """Hardly anything has wishes, and what has ended has none left."""
    return NO_WISHES if text is None or text == b"{}" else _wishes.decode(text)


def _setbacks_of(text: bytes | None) -> Setbacks:
    return NO_SETBACKS if text is None or text == b"{}" else _setbacks.decode(text)


def setbacks_text(setbacks: Setbacks | None) -> str | None:
    """As JSON; None stays None."""
    return None if setbacks is None else _encoder.encode(setbacks).decode()


def wishes_text(wishes: Wishes) -> str:
    """As JSON."""
    return _encoder.encode(wishes).decode()


def allocation_of(row: Row) -> Allocation:
    """Columns ``a_*`` of ``allocation`` with the slots' columns as arrays by rank."""
    jobid = FluxionJobId(row["a_jobid"])
    shares = _shares.decode(row["a_shares"])
    labels = labels_of(shares, len(row["ranks"] or ()))
    slots = zip(row["ranks"] or (), row["nodes"] or (), row["states"] or (), row["pod_uids"] or (), row["pod_names"] or (), strict=True)
    return Allocation(
        jobid=jobid,
        workload=WorkloadId(row["a_workload"]),
        shares=shares,
        granted_at=row["a_granted_at"],
        start=row["a_starts_at"],
        end=row["a_ends_at"],
        released_at=row["a_released_at"],
        freed_at=row["a_freed_at"],
        release_attempts=row["a_release_attempts"],
        remnant=row["a_kind"] == "remnant",
        slots=tuple(
            Slot(
                jobid=jobid,
                rank=rank,
                node=node,
                state=SlotState(state),
                pod_uid=uid,
                pod_name=name,
                label=labels[rank],
            )
            for rank, node, state, uid, name in slots
        ),
    )


def transition_of(row: Row) -> Transition:
    """A row of ``transition``."""
    return Transition(
        workload=WorkloadId(row["workload"]),
        at=row["at"],
        before=None if row["before"] is None else State(row["before"]),
        after=State(row["after"]),
        reason=row["reason"],
        detail=row["detail"],
        epoch=Epoch(row["epoch"]),
    )
