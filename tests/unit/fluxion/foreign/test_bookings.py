"""The check of an answer against what is held."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.fluxion_builders import ask, engine, jobspec, node, slot

from fluxqueue.fluxion.changes import SetAdvanceReservations
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.foreign.bookings import (
    accepting_nodes,
    never_fits,
    problem_of,
    shares_of,
    slots_on,
)
from fluxqueue.fluxion.foreign.parts import Part
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.match.jobspec import read_jobspec
from fluxqueue.fluxion.messages import AdvanceReservation, CallContext, JobMatchRequest, NodeShare

UNITS = ForeignUnits(memory_mib=256)
ONE = jobspec(slot(1, cpu=1_000))


def cluster() -> Engine:
    return engine(
        node("a", cpu=2_000, labels=("fast",)), node("b", cpu=4_000), node("c", cpu=4_000, down=True)
    )


def problem(made: Engine, *shares: NodeShare, text: str = ONE, **request: Any) -> str:
    return problem_of(made.state, read_jobspec(text), JobMatchRequest(text, **request), shares)


def test_what_is_free_may_be_taken() -> None:
    assert (
        problem(cluster(), NodeShare("a", amounts={"cpu": 2_000}), NodeShare("b", amounts={"cpu": 4_000}))
        == ""
    )


@pytest.mark.parametrize(
    ("share", "why"),
    [
        (NodeShare("a", amounts={"cpu": 2_100}), "2100 cpu of node a, where 2000 are free"),
        (NodeShare("c", amounts={"cpu": 100}), "may not have now"),
        (NodeShare("x", amounts={"cpu": 100}), "the cluster has not"),
        (NodeShare("a", amounts={"nvidia.com:gpu": 1}), "1 nvidia.com/gpu of node a, where 0 are free"),
    ],
)
def test_what_is_not_free_is_refused(share: NodeShare, why: str) -> None:
    assert why in problem(cluster(), share)


def test_what_another_job_holds_is_refused() -> None:
    made = cluster()
    ask(made, jobspec(slot(1, cpu=3_000), constraints={"hostlist": ["b"]}), 1)
    assert "takes 2000 cpu of node b, where 1000 are free" in problem(
        made, NodeShare("b", amounts={"cpu": 2_000})
    )


def test_nodes_against_a_constraint_or_excluded_are_refused() -> None:
    wanted = jobspec(slot(1, cpu=1_000), constraints={"properties": ["fast"]})
    assert problem(cluster(), NodeShare("a", amounts={"cpu": 1_000}), text=wanted) == ""
    assert problem(cluster(), NodeShare("b", amounts={"cpu": 1_000}), text=wanted)
    assert problem(cluster(), NodeShare("a", amounts={"cpu": 1_000}), exclude=("a",))


def test_a_node_that_is_set_aside_before_the_end_is_refused() -> None:
    made = cluster()
    made.apply(
        [SetAdvanceReservations([AdvanceReservation("r", ("a",), ((2_000, 3_000),))])], CallContext(now=1_000)
    )
    assert problem(made, NodeShare("a", amounts={"cpu": 1_000}), duration_s=500) == ""
    assert problem(made, NodeShare("a", amounts={"cpu": 1_000}), duration_s=1_500)


def test_a_request_is_on_the_nodes_of_the_flavor_that_our_own_placement_is_in() -> None:
    made, spec = cluster(), json.loads(ONE)
    placement = [made.state.graph.by_name["a"]]
    assert (plain := read_jobspec(ONE)).in_flavor_of(placement) is plain
    spec["attributes"]["system"]["flavors"] = [
        {"name": name, "wait": 0, "labels": [name]} for name in ("slow", "fast")
    ]
    chosen = read_jobspec(json.dumps(spec)).in_flavor_of(placement)
    request = JobMatchRequest(ONE)
    assert accepting_nodes(made.state, chosen, request, Part("w", 1, {"cpu": 1_000})) == {"a"}


def test_nodes_that_hold_one_slot_accept_a_part() -> None:
    made, text = cluster(), jobspec(slot(2, cpu=3_000))
    assert accepting_nodes(
        made.state, read_jobspec(text), JobMatchRequest(text), Part("w", 2, {"cpu": 3_000})
    ) == {"b"}


def test_slots_are_counted_by_node() -> None:
    part = Part("pod", 3, {"cpu": 1_500})
    assert slots_on(part, {"a": {"core": 4}, "b": {"core": 2}}, UNITS) == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("taken", "why"),
    [
        ({"a": {"core": 3}}, "no whole slots"),
        ({"a": {"core": 2}}, "1 slots, and 2 were asked for"),
        ({"a": {"core": 4}}, "each was to have its own"),
        ({"a": {"core": 2, "memory": 1}, "b": {"core": 2}}, "no whole slots"),
        ({"a": {"gpu": 2}}, "no whole slots"),
    ],
)
def test_an_answer_of_another_shape_is_refused(taken: dict[str, dict[str, int]], why: str) -> None:
    found = slots_on(Part("pod", 2, {"cpu": 1_500}, apart=True), taken, UNITS)
    assert isinstance(found, str)
    assert why in found


def test_shares_add_up_over_parts() -> None:
    placed = [(Part("x", 2, {"cpu": 100}), {"a": 1, "b": 1}), (Part("y", 1, {"cpu": 50, "gpu": 1}), {"b": 1})]
    assert shares_of(placed) == (
        NodeShare("a", {"x": 1}, {"cpu": 100}),
        NodeShare("b", {"x": 1, "y": 1}, {"cpu": 150, "gpu": 1}),
    )


def test_what_no_empty_node_has_in_whole_pieces_never_fits() -> None:
    made = engine(node("a", cpu=3_900))
    assert "core" in never_fits(made.state, read_jobspec(ONE), (Part("w", 1, {"cpu": 3_500}),), UNITS)
    assert never_fits(made.state, read_jobspec(ONE), (Part("w", 3, {"cpu": 900}),), UNITS) == ""
    assert never_fits(made.state, read_jobspec(ONE), (Part("w", 2, {"cpu": 900}, apart=True),), UNITS)
