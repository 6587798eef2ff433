"""From rows to records and back.

Rows are dicts of column to value, so a table may have columns that this version does not have: the version
before goes on reading after a newer one has migrated. JSON arrives as bytes and is decoded here, where its
type is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import Any, TypeVar

import msgspec

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.sharedparts import one_text
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.jobspecs import labels_of
from fluxqueue.queue.model.prices import Rates
from fluxqueue.queue.model.records import (
    Allocation,
    Epoch,
    FluxionJobId,
    ReleaseMode,
    Slot,
    SlotState,
    Transition,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import NO_REQUEUE_STATE, RequeueState
from fluxqueue.queue.model.spec_overrides import NO_OVERRIDES, SpecOverrides
from fluxqueue.queue.model.start_conditions import NO_START_CONDITIONS, StartConditions

__all__ = [
    "Counts",
    "Row",
    "StalledTask",
    "allocation_of",
    "column",
    "overrides_text",
    "rates_text",
    "requeue_state_of",
    "requeue_state_text",
    "shares_of",
    "shares_text",
    "start_conditions_text",
    "transition_of",
    "workload_of",
]

Row = dict[str, Any]
_T = TypeVar("_T")

_shares = msgspec.json.Decoder(tuple[NodeShare, ...])
_overrides = msgspec.json.Decoder(SpecOverrides)
_requeue_state = msgspec.json.Decoder(RequeueState)
_start_conditions = msgspec.json.Decoder(StartConditions)
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many workloads of a queue are in a state for a reason, and how many slots they request."""

    queue: str
    state: State
    reason: Reason
    workloads: int
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledTask:
    """A control task that is marked as running."""

    id: int
    task: str
    started_at: datetime


def column(records: Sequence[_T], value: Callable[[_T], Any]) -> list[Any]:
    """Return one value of each record: a column of an ``unnest``."""
    return [value(record) for record in records]


def shares_text(shares: Sequence[NodeShare]) -> str:
    """Write what an allocation holds on its nodes as JSON."""
    return _encoder.encode(shares).decode()


def rates_text(rates: Rates) -> str | None:
    """Write what an allocation costs an hour as JSON; None for nothing."""
    if not rates:
        return None
    return _encoder.encode(
        [
            {
                "since": "-infinity" if rate.since is None else rate.since.isoformat(),
                "per_hour": f"{rate.per_hour:f}",
            }
            for rate in rates
        ]
    ).decode()


def shares_of(text: bytes) -> tuple[NodeShare, ...]:
    """Read what `shares_text` wrote."""
    return _shares.decode(text)


def workload_of(row: Row) -> Workload:
    """Read a row of ``workload`` or ``history``. What many rows have in common is one text in memory."""
    return Workload(
        id=WorkloadId(row["id"]),
        uid=row["uid"],
        api_version=intern(row["api_version"]),
        kind=intern(row["kind"]),
        namespace=intern(row["namespace"]),
        name=row["name"],
        queue=intern(row["queue"]),
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
        message=one_text(row["message"]),
        submitted_at=row["submitted_at"],
        promised_at=row.get("promised_at"),
        allocated_at=row["allocated_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        outcome=Outcome(row["outcome"]),
        requeues=row["requeues"],
        jobid=row["jobid"],
        hosts=row["hosts"],
        overrides=_overrides_of(row.get("overrides")),
        account=intern(row.get("account", "")),
        submitted_by=intern(row.get("submitted_by", "")),
        done_indexes=row.get("done_indexes", ""),
        requeue_state=requeue_state_of(row.get("requeue_state")),
        start_conditions=_start_conditions_of(row.get("start_conditions")),
    )


def _overrides_of(text: bytes | None) -> SpecOverrides:
    """Read overrides; few workloads have any, and none in ``history``."""
    return NO_OVERRIDES if text is None or text == b"{}" else _overrides.decode(text)


def requeue_state_of(text: bytes | None) -> RequeueState:
    """Read a requeue state; few workloads have one."""
    return NO_REQUEUE_STATE if text is None or text == b"{}" else _requeue_state.decode(text)


def requeue_state_text(requeue_state: RequeueState | None) -> str | None:
    """Write a requeue state as JSON; None stays None."""
    return None if requeue_state is None else _encoder.encode(requeue_state).decode()


def _start_conditions_of(text: bytes | None) -> StartConditions:
    """Read start conditions; few workloads have any."""
    return NO_START_CONDITIONS if text is None or text == b"{}" else _start_conditions.decode(text)


def start_conditions_text(start_conditions: StartConditions) -> str:
    """Write start conditions as JSON."""
    return _encoder.encode(start_conditions).decode()


def overrides_text(overrides: SpecOverrides) -> str:
    """Write overrides as JSON."""
    return _encoder.encode(overrides).decode()


def allocation_of(row: Row) -> Allocation:
    """Read columns ``a_*`` of ``allocation``, with the slots' columns as arrays by rank.

    The table keeps the last pod of an ended slot, for people. A `Slot` that has ended has none: its pod may
    get another slot.
    """
    jobid = FluxionJobId(row["a_jobid"])
    shares = _shares.decode(row["a_shares"])
    labels = labels_of(shares, len(row["ranks"] or ()))
    slots = zip(
        row["ranks"] or (),
        row["nodes"] or (),
        row["states"] or (),
        row["pod_uids"] or (),
        row["pod_names"] or (),
        strict=True,
    )
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
                pod_uid=uid if state != SlotState.ENDED else None,
                pod_name=name if state != SlotState.ENDED else None,
                label=labels[rank],
            )
            for rank, node, state, uid, name in slots
        ),
    )


def transition_of(row: Row) -> Transition:
    """Read a row of ``transition``."""
    return Transition(
        workload=WorkloadId(row["workload"]),
        at=row["at"],
        before=None if row["before"] is None else State(row["before"]),
        after=State(row["after"]),
        reason=row["reason"],
        detail=row["detail"],
        epoch=Epoch(row["epoch"]),
    )
