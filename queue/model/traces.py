"""The way of a workload as spans: the whole, and below it one span for each state that it was in.

Ids are derived from the uid of the object. So two leaders that export the same workload write the same spans,
and whoever knows an object's uid finds its trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import FluxionJobId, Transition, Workload

__all__ = ["EndedWorkload", "Span", "SpanEvent", "spans_of", "trace_id"]

_NAMES = {"Job": "k8s.job", "Pod": "k8s.pod"}
"""Prefix of an object's attributes in OpenTelemetry's semantic conventions; for other kinds, ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedWorkload:
    """A workload that has ended, with what is known of its way.

    Attributes
    ----------
    transitions
        Oldest first; of very many, the newest.
    releases
        Job id and time of the releases of its allocations.
    """

    workload: Workload
    transitions: tuple[Transition, ...]
    releases: tuple[tuple[FluxionJobId, datetime], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """What happened at a time within a span."""

    name: str
    at: datetime
    attributes: dict[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span of OpenTelemetry.

    Attributes
    ----------
    id, parent
        64 bits; None as parent: this is the whole.
    error
        Why the workload failed; empty, if it did not.
    """

    id: int
    parent: int | None
    name: str
    start: datetime
    end: datetime
    attributes: dict[str, str | int]
    events: tuple[SpanEvent, ...] = ()
    error: str = ""


def trace_id(uid: str) -> int:
    """Return the 128 bits of the trace of an object: those of its uid, if it is a UUID."""
    digits = uid.replace("-", "")
    try:
        value = int(digits, 16) if len(digits) == 32 else 0
    except ValueError:
        value = 0
    return value or int.from_bytes(hashlib.sha256(uid.encode()).digest()[:16])


def spans_of(ended: EndedWorkload) -> list[Span]:
    """Return the spans of a workload, the whole first."""
    workload, transitions = ended.workload, ended.transitions
    times = [workload.submitted_at, *(each.at for each in transitions)]
    start, end = min(times), max([*times, workload.finished_at or workload.submitted_at])
    failed = workload.state is State.FAILED
    root = Span(
        id=_span_id(workload.uid, "workload"),
        parent=None,
        name=workload.kind,
        start=start,
        end=end,
        attributes=_attributes(workload),
        error=(workload.message or workload.outcome.value) if failed else "",
    )
    return [
        root,
        *(_state_span(ended, root.id, *pair) for pair in pairwise(transitions) if not pair[0].after.ended),
    ]


def _state_span(ended: EndedWorkload, parent: int, begun: Transition, left: Transition) -> Span:
    told = {"fluxqueue.reason": begun.reason, "fluxqueue.message": begun.detail}
    return Span(
        id=_span_id(ended.workload.uid, f"{begun.after} {begun.at.isoformat()}"),
        parent=parent,
        name=begun.after.value,
        start=begun.at,
        end=max(begun.at, left.at),
        attributes={key: value for key, value in told.items() if value},
        events=tuple(_releases(ended, begun, left)) if begun.after is State.ALLOCATED else (),
    )


def _releases(ended: EndedWorkload, begun: Transition, left: Transition) -> Iterator[SpanEvent]:
    """Yield the releases of an allocation.
    They are stored with what follows, so their time may be a little after the end of the state.
    """
    next_at = min(
        (each.at for each in ended.transitions if each.after is State.ALLOCATED and each.at > begun.at),
        default=None,
    )
    for jobid, at in ended.releases:
        if begun.at <= at and (next_at is None or at < next_at):
            yield SpanEvent(
                name="released", at=min(at, max(begun.at, left.at)), attributes={"fluxqueue.jobid": jobid}
            )


def _attributes(workload: Workload) -> dict[str, str | int]:
    prefix = _NAMES.get(workload.kind, f"fluxqueue.{workload.kind.lower()}")
    known: dict[str, str | int | None] = {
        "k8s.namespace.name": workload.namespace,
        f"{prefix}.name": workload.name,
        f"{prefix}.uid": workload.uid,
        "fluxqueue.queue": workload.queue,
        "fluxqueue.priority": workload.priority,
        "fluxqueue.pods": workload.pods,
        "fluxqueue.requeues": workload.requeues,
        "fluxqueue.outcome": workload.outcome.value,
        "fluxqueue.jobid": workload.jobid,
        "fluxqueue.nodes": workload.hosts,
    }
    return {key: value for key, value in known.items() if value is not None and value != ""}


def _span_id(uid: str, part: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{uid} {part}".encode()).digest()[:8]) or 1
