from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from support.builders import make_reservation
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxreservations import FluxReservation, ReservationState
from fluxqueue.queue.model.occurrences import Occurrence
from fluxqueue.queue.model.reservation_plans import BookedReservation, plan_of
from fluxqueue.queue.status.fluxreservation_status import (
    conflicts_of,
    reservation_status,
    usage_by_reservation,
)
from fluxqueue.queue.status.usage import WorkUsage

NINE = 1_796_115_600
JOBSPEC = '{"attributes":{"system":{"reservation":"course"}}}'


def reservation(name: str = "course", **spec: Any) -> FluxReservation:
    return msgspec.convert(
        make_reservation(name, **{"start": "2026-12-01T09:00:00", "nodes": ["n1", "n2"], **spec}),
        FluxReservation,
    )


def booked(*nodes: str, name: str = "course", start: int = NINE, **spec: Any) -> BookedReservation:
    return BookedReservation(plan_of(reservation(name, **spec)), nodes, (Occurrence(start, start + 3_600),))


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_work_counts_for_the_reservation_that_it_names() -> None:
    waiting, running = a_workload(jobspec=JOBSPEC), a_workload(jobspec=JOBSPEC, state=State.RUNNING, jobid=7)
    live = [(running, an_allocation(["n1"]))]
    assert usage_by_reservation([waiting, running, a_workload()], live) == {"course": WorkUsage(1, 1, 1)}


def test_a_status_shows_nodes_and_the_present_or_next_time() -> None:
    status = reservation_status(reservation(), booked("n1", "n2"), WorkUsage(1, 2, 3), ["one"], at(NINE - 1))
    assert (status.state, status.nodes, status.node_count) == (ReservationState.PLANNED, "n[1-2]", 2)
    assert (status.start, status.end) == ("2026-12-01T09:00:00Z", "2026-12-01T10:00:00Z")
    assert (status.pending, status.running, status.nodes_in_use, status.conflicts) == (1, 2, 3, ["one"])
    assert [(each.type, each.status) for each in status.conditions or ()] == [("Ready", "True")]
    assert (
        reservation_status(reservation(), booked("n1"), WorkUsage(), (), at(NINE)).state
        is ReservationState.ACTIVE
    )


def test_a_reservation_that_is_over_or_not_valid_says_so() -> None:
    over = BookedReservation(plan_of(reservation()))
    status = reservation_status(reservation(), over, WorkUsage(), (), at(NINE))
    assert (status.state, status.start, status.nodes, status.conflicts) == (
        ReservationState.OVER,
        None,
        "",
        None,
    )
    invalid = BookedReservation(plan_of(reservation(start="soon")))
    status = reservation_status(reservation(), invalid, WorkUsage(), (), at(NINE))
    assert status.state is ReservationState.INVALID
    assert "spec.start" in (status.conditions or [])[0].message


def test_what_is_in_the_way_is_named() -> None:
    mine = booked("n1", "n9")
    others = {
        "course": mine,
        "power": booked("n1", name="power", start=NINE + 600, maintenance=True),
        "far": booked("n3", name="far"),
    }
    endless, own = (
        a_workload(state=State.RUNNING, jobid=7),
        a_workload(state=State.RUNNING, jobid=8, jobspec=JOBSPEC),
    )
    live = [(endless, an_allocation(["n1"])), (own, an_allocation(["n1"], jobid=8))]
    assert list(conflicts_of(mine, others, live, {"n1", "n2"})) == [
        "spec.nodes.names: there is no node n9: correct the name, or add the node",
        "the reservation power has nodes of it at 2026-12-01T09:10:00Z: no work of either runs there then",
        f"work of the namespace {endless.namespace} runs on n1 without an end",
    ]


def test_too_few_nodes_are_a_conflict() -> None:
    (few,) = conflicts_of(booked("n1", nodes={"count": 3}), {}, (), {"n1"})
    assert few.startswith("spec.nodes: 1 of 3 nodes are there")
    (none,) = conflicts_of(booked(nodes={"selector": {"rack": "z"}}), {}, (), {"n1"})
    assert none == "spec.nodes.selector: no node has these labels"
    assert list(conflicts_of(BookedReservation(plan_of(reservation())), {}, (), ())) == []
