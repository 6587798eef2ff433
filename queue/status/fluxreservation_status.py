"""What a FluxReservation's status shows: its present or next time, its nodes, the work that names it, and
what is in its way.

A conflict stops nothing: it tells the administrator what the reservation will not get. The condition
``Ready`` is false while the spec cannot be read, or names nodes that are not there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice

from fluxqueue.api.fluxreservations import FluxReservation, FluxReservationStatus, ReservationState
from fluxqueue.api.formatting import some_of
from fluxqueue.api.hostlists import encode
from fluxqueue.api.metadata import ObjectCondition
from fluxqueue.queue.model.conditions import dated
from fluxqueue.queue.model.jobspecs import reservation_in
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.model.reservation_plans import BookedReservation
from fluxqueue.queue.status.usage import WorkUsage, usage_by

__all__ = ["conflicts_of", "reservation_status", "usage_by_reservation"]

_MOST_CONFLICTS = 16
_LONGEST_NODES = 65_536


def usage_by_reservation(
    workloads: Iterable[Workload], live: Iterable[tuple[Workload, Allocation]]
) -> dict[str, WorkUsage]:
    """Count the work that names a reservation, by its name."""
    return usage_by(_name_of, workloads, live)


def _name_of(workload: Workload) -> tuple[str, ...]:
    name = reservation_in(workload.jobspec)
    return (name,) if name else ()


def reservation_status(
    reservation: FluxReservation,
    booked: BookedReservation,
    usage: WorkUsage,
    conflicts: Iterable[str],
    now: datetime,
) -> FluxReservationStatus:
    """Return the status that a FluxReservation should show.

    Parameters
    ----------
    reservation
        As it is now, with its present status.
    booked
        Its nodes and times.
    usage
        Of the work that names it.
    conflicts
        What is in its way, each in a sentence.
    now
        Transition time of a condition that changes.
    """
    time = booked.times[0] if booked.times else None
    nodes = encode(booked.nodes)
    return FluxReservationStatus(
        observed_generation=reservation.metadata.generation,
        pending=usage.pending,
        running=usage.running,
        nodes_in_use=usage.nodes,
        state=_state(booked, int(now.timestamp())),
        nodes=nodes if len(nodes) <= _LONGEST_NODES else "",
        node_count=len(booked.nodes),
        start=_utc(time.start) if time is not None else None,
        end=_utc(time.end) if time is not None else None,
        conflicts=list(islice(conflicts, _MOST_CONFLICTS)) or None,
        conditions=dated((_ready(booked),), reservation.status.conditions, now),
    )


def _state(booked: BookedReservation, now: int) -> ReservationState:
    if booked.problem:
        return ReservationState.INVALID
    if not booked.times:
        return ReservationState.OVER
    return ReservationState.ACTIVE if booked.active(now) else ReservationState.PLANNED


def _ready(booked: BookedReservation) -> ObjectCondition:
    if booked.problem:
        reason = "Invalid" if booked.plan.problem else "TooMany"
        return ObjectCondition(type="Ready", status="False", reason=reason, message=booked.problem)
    return ObjectCondition(
        type="Ready", status="True", reason="Ready", message="its spec takes effect as it is written"
    )


def conflicts_of(
    booked: BookedReservation,
    others: Mapping[str, BookedReservation],
    live: Iterable[tuple[Workload, Allocation]],
    nodes: Collection[str],
) -> Iterator[str]:
    """Yield what is in the way of a reservation, each in a sentence."""
    if not booked.times:
        return
    if booked.missing:
        yield (
            f"spec.nodes: {len(booked.nodes)} of {booked.plan.count} nodes are there: "
            "others are down, reserved or lack the labels"
        )
    elif not booked.nodes:
        yield "spec.nodes.selector: no node has these labels"
    if away := [name for name in booked.nodes if name not in nodes]:
        yield f"spec.nodes.names: there is no node {some_of(away, 1)}: correct the name, or add the node"
    for name, other in sorted(others.items()):
        if name != booked.plan.name and (common := booked.meets(other)) is not None:
            yield (
                f"the reservation {name} has nodes of it at {_utc(common.start)}: "
                "no work of either runs there then"
            )
    yield from _overlapping(booked, live)


def _overlapping(booked: BookedReservation, live: Iterable[tuple[Workload, Allocation]]) -> Iterator[str]:
    """Yield whose work still runs on its nodes when it begins.
    Who reads it need not know the names of others' work.
    """
    start, reserved = booked.times[0].start, set(booked.nodes)
    for workload, allocation in live:
        end = allocation.end
        if reservation_in(workload.jobspec) == booked.plan.name or (
            end is not None and end.timestamp() <= start
        ):
            continue
        if here := sorted(reserved.intersection(slot.node for slot in allocation.open_slots)):
            until = f"until {end.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if end is not None else "without an end"
            yield f"work of the namespace {workload.namespace} runs on {here[0]} {until}"


def _utc(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
