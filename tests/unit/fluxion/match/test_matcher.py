"""Requests of several different slots."""

from __future__ import annotations

from support.fluxion_builders import ask, check_books, engine, jobspec, slot

from fluxqueue.fluxion.messages import GraphNodeSpec, MatchVerdict, Pool


def node(name: str, ports: int) -> GraphNodeSpec:
    return GraphNodeSpec(name, (Pool("cpu", 100, 100), Pool("ports", ports, 1)))


def test_a_part_that_finds_no_place_on_what_others_left_is_tried_before_them() -> None:
    made = engine(node("n1", 2), node("n2", 1))
    text = jobspec(slot(1, "one", cpu=100, ports=1), slot(1, "both", ports=2))
    assert {share.node: dict(share.slots) for share in ask(made, text).shares} == {
        "n1": {"both": 1},
        "n2": {"one": 1},
    }
    check_books(made)


def test_a_part_that_fits_nowhere_is_refused_in_any_order() -> None:
    made = engine(node("n1", 2), node("n2", 1))
    text = jobspec(slot(1, "one", cpu=100, ports=1), slot(1, "all", ports=3))
    assert ask(made, text).verdict is MatchVerdict.UNSATISFIABLE
