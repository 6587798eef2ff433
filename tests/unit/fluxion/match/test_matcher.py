"""Requests of several different slots, and how long a later start is searched."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from support.fluxion_builders import NOW, ask, check_books, engine, jobspec, nodes, slot
from support.fluxion_builders import node as plain_node

from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.match.matcher import Matcher
from fluxqueue.fluxion.messages import GraphNodeSpec, JobMatchRequest, MatchVerdict, Pool

ZONES: dict[str, Any] = {"type": "zone", "count": 2, "with": [nodes(1, slot(1, cpu=800))]}
"""All of two zones, which only a traversal finds."""


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


def busy_zones() -> Engine:
    """Two zones of a node each, full of jobs of a core that end one after the other."""
    made = engine(plain_node("n1", "z1", cpu=800), plain_node("n2", "z2", cpu=800))
    for number in range(16):
        assert ask(made, jobspec(slot(1, cpu=100), duration=60 + number)).verdict is MatchVerdict.GRANTED
    return made


def slow(monkeypatch: pytest.MonkeyPatch, module: str, step_s: float) -> None:
    """Let all that is between two looks at the clock of a module take so long."""
    clock = itertools.count()
    monkeypatch.setattr(module, lambda: next(clock) * step_s)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The starts at which a placement was searched."""
    starts: list[int] = []
    place = Matcher._try

    def counted(self: Matcher, wanted: Any, window: Any) -> Any:
        starts.append(window.start)
        return place(self, wanted, window)

    monkeypatch.setattr(Matcher, "_try", counted)
    return starts


def test_a_start_is_searched_for_a_while_and_the_answer_tells_how_far(
    monkeypatch: pytest.MonkeyPatch, tried: list[int]
) -> None:
    made = busy_zones()
    tried.clear()
    slow(monkeypatch, "fluxqueue.fluxion.match.matcher.work_time", 0.1)
    answer = ask(made, jobspec(ZONES), reserve=True)
    assert answer.verdict is MatchVerdict.BUSY
    assert answer.reason.endswith("; its start was not searched further ahead than 1970-01-01T00:17:42Z")
    assert [start for start in tried if start > 1_000] == [1_060, 1_061, 1_062]


def test_a_start_that_is_found_in_time_is_reserved() -> None:
    assert ask(busy_zones(), jobspec(ZONES), reserve=True).at == 1_075


def test_a_better_start_is_searched_no_longer_than_the_first(
    monkeypatch: pytest.MonkeyPatch, tried: list[int]
) -> None:
    made = busy_zones()
    assert ask(made, jobspec(ZONES), 99, reserve=True).at == 1_075
    tried.clear()
    slow(monkeypatch, "fluxqueue.fluxion.match.matcher.work_time", 0.1)
    again = ask(made, jobspec(ZONES), 99, improve=True)
    assert (again.verdict, again.at) == (MatchVerdict.RESERVED, 1_075)
    assert len(tried) == 4


def test_a_batch_that_takes_long_answers_its_first_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    made = busy_zones()
    requests = [JobMatchRequest(jobspec(ZONES, duration=60 + number), reserve=True) for number in range(5)]
    slow(monkeypatch, "fluxqueue.fluxion.engine.engine.work_time", 0.2)
    assert len(made.match_batch(requests, NOW).results) == 3
    slow(monkeypatch, "fluxqueue.fluxion.engine.engine.work_time", 9.0)
    assert len(made.match_batch(requests, NOW).results) == 1
    assert len(made.trial(requests, (), NOW).results) == 5, "a trial is answered whole"
