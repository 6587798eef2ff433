"""Starts with fewer slots than requested."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fluxion_builders import NOW, ask, check_books, engine, jobspec, node, nodes, slot, state_of

from fluxqueue.api.moldable import molded_duration
from fluxqueue.fluxion.changes import CancelJobs, SetAdvanceReservations
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.match.jobspec import read_jobspec
from fluxqueue.fluxion.match.molding import Molder
from fluxqueue.fluxion.messages import (
    AdvanceReservation,
    CallContext,
    JobMatchRequest,
    MatchResult,
    MatchVerdict,
)

EIGHT = jobspec(slot(8, cpu=100), duration=100)


def busy_until(end: int, cpu: int = 800, taken: int = 400, name: str = "a") -> Engine:
    """A node of which a job has some until a time."""
    made = engine(node(name, cpu=cpu))
    ask(made, jobspec(slot(taken // 100, cpu=100), duration=end - 1_000), 1)
    return made


def slots_of(result: MatchResult) -> int:
    return sum(count for share in result.shares for count in share.slots.values())


@pytest.mark.parametrize("reserve", [False, True])
def test_a_job_starts_smaller_where_that_ends_it_sooner(reserve: bool) -> None:
    made = busy_until(1_150)
    answer = ask(made, EIGHT, 2, reserve=reserve, min_slots=2)
    assert (answer.verdict, slots_of(answer), answer.at, answer.end) == (
        MatchVerdict.GRANTED,
        4,
        1_000,
        1_200,
    )
    check_books(made)


@pytest.mark.parametrize("reserve", [False, True])
def test_a_job_waits_where_all_its_slots_end_it_as_soon(reserve: bool) -> None:
    made = busy_until(1_100)
    answer = ask(made, EIGHT, 2, reserve=reserve, min_slots=2)
    wanted = MatchVerdict.RESERVED if reserve else MatchVerdict.BUSY
    assert (answer.verdict, answer.at) == (wanted, 1_100 if reserve else 0), "both ends are at 1200"


def test_a_job_never_starts_below_its_least_size() -> None:
    made = busy_until(2_000)
    assert ask(made, EIGHT, 2, min_slots=5).verdict is MatchVerdict.BUSY
    assert slots_of(ask(made, EIGHT, 3, min_slots=4)) == 4


def test_a_job_that_fits_starts_with_all_its_slots() -> None:
    assert slots_of(ask(engine(node("a", cpu=800)), EIGHT, 1, min_slots=1)) == 8


def test_a_smaller_start_delays_no_reservation() -> None:
    made = busy_until(1_150)
    reserved = ask(made, jobspec(slot(7, cpu=100), duration=2_000), 2, reserve=True)
    assert reserved.at == 1_150
    answer = ask(made, EIGHT, 3, reserve=True, min_slots=1)
    assert answer.verdict is MatchVerdict.GRANTED
    assert (slots_of(answer), answer.end) == (1, 1_800), (
        "from 1150 on all but one are reserved, and four would take until 1200"
    )
    assert made.job_info(2, NOW).at == 1_150
    check_books(made)


def test_a_longer_window_may_leave_only_a_much_smaller_start() -> None:
    made = engine(node("a", cpu=800), node("b", cpu=200))
    ask(made, jobspec(slot(1, cpu=100), duration=90), 1)
    assert ask(made, jobspec(nodes(1, slot(1, cpu=800)), duration=900), 2, reserve=True).at == 1_090
    answer = ask(made, jobspec(slot(10, cpu=100), duration=100), 3, min_slots=1)
    assert (slots_of(answer), {share.node for share in answer.shares}, answer.end) == (2, {"b"}, 1_500)


def test_an_improved_reservation_becomes_a_smaller_start_if_that_ends_sooner() -> None:
    made = busy_until(1_400, taken=500)
    ask(made, jobspec(slot(3, cpu=100), duration=400), 2)
    waiting = ask(made, EIGHT, 3, reserve=True, min_slots=3)
    assert (waiting.verdict, waiting.at) == (MatchVerdict.RESERVED, 1_400)
    made.apply([CancelJobs([2])], NOW)
    assert ask(made, EIGHT, 3, reserve=True, improve=True, min_slots=4) == waiting, "three are free"
    answer = ask(made, EIGHT, 3, reserve=True, improve=True, min_slots=3)
    assert (answer.verdict, slots_of(answer), answer.end) == (MatchVerdict.GRANTED, 3, 1_267)
    check_books(made)


def test_a_reservation_that_is_kept_stays_as_it_is() -> None:
    made = busy_until(1_100, taken=700)
    kept = ask(made, EIGHT, 2, reserve=True, min_slots=2)
    before = made.list_jobs(NOW, with_shares=True)
    assert ask(made, EIGHT, 2, reserve=True, improve=True, min_slots=2) == kept
    assert made.list_jobs(NOW, with_shares=True) == before


def test_a_job_larger_than_the_cluster_starts_with_what_there_is() -> None:
    made = busy_until(1_050, cpu=600)
    assert ask(made, EIGHT, 2, reserve=True, min_slots=5).verdict is MatchVerdict.BUSY, (
        "five fit as soon as others end"
    )
    assert ask(made, EIGHT, 3, reserve=True, min_slots=7).verdict is MatchVerdict.UNSATISFIABLE
    made.apply([CancelJobs([1])], NOW)
    answer = ask(made, EIGHT, 2, reserve=True, min_slots=5)
    assert (slots_of(answer), answer.end) == (6, 1_134)


def test_whole_nodes_and_one_slot_on_each_are_molded_too() -> None:
    for each in (nodes(4, slot(1, cpu=300)), slot(4, cpu=300)):
        made = engine(*(node(name, cpu=400) for name in "abcd"))
        ask(made, jobspec(nodes(1, slot(1, cpu=400)), duration=900), 1)
        answer = ask(made, jobspec(each, duration=100), 2, reserve=True, min_slots=2)
        assert (slots_of(answer), answer.end) == (3, 1_134)
        check_books(made)


def test_below_a_vertex_of_a_level_a_smaller_start_is_below_it_too() -> None:
    made = engine(*(node(f"{zone}{number}", zone=zone, cpu=400) for zone in "xy" for number in range(2)))
    for zone in "xy":
        ask(
            made,
            jobspec(nodes(1, slot(1, cpu=200)), duration=900, constraints={"hostlist": [f"{zone}1"]}),
            1 + (zone == "y"),
        )
    level = {"type": "zone", "count": 1, "label": "group", "with": [slot(8, cpu=100)]}
    answer = ask(made, jobspec(level, duration=100), 3, reserve=True, min_slots=2)
    assert (slots_of(answer), len({share.node[0] for share in answer.shares})) == (6, 1)


@pytest.mark.parametrize(
    "resources",
    [
        (slot({"min": 2, "max": 8, "operator": "+", "operand": 1}, cpu=100),),
        (slot(4, cpu=100), slot(1, "other", cpu=100)),
        (nodes(2, slot(1, cpu=100), slot(1, "b", cpu=100)),),
        ({"type": "zone", "count": 2, "label": "group", "with": [slot(4, cpu=100)]},),
    ],
    ids=["a range", "two kinds of slots", "two kinds in a node", "groups"],
)
def test_other_requests_are_not_moldable(resources: tuple[dict[str, Any], ...]) -> None:
    assert Molder().size(read_jobspec(jobspec(*resources))) == 0


def test_work_without_an_end_starts_with_all_its_slots_or_waits() -> None:
    assert (
        ask(busy_until(1_150), jobspec(slot(8, cpu=100), duration=0), 2, min_slots=1).verdict
        is MatchVerdict.BUSY
    )


def test_a_smaller_start_ends_before_a_maintenance() -> None:
    made = busy_until(1_900, taken=600)
    made.apply(
        [SetAdvanceReservations([AdvanceReservation("m", ("a",), ((1_300, 2_500),), maintenance=True)])], NOW
    )
    assert ask(made, EIGHT, 2, min_slots=1).verdict is MatchVerdict.BUSY, "two would take 400 s"
    made.apply(
        [SetAdvanceReservations([AdvanceReservation("m", ("a",), ((1_400, 2_500),), maintenance=True)])], NOW
    )
    assert slots_of(ask(made, EIGHT, 2, min_slots=1)) == 2


jobs = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([30, 70, 150, 400]), st.booleans()), max_size=8)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    jobs,
    st.integers(2, 12),
    st.integers(1, 6),
    st.booleans(),
)
def test_the_largest_start_that_fits_is_found(
    sizes: list[int], before: Any, size: int, least: int, apart: bool
) -> None:
    made = engine(*(node(f"n{number}", cpu=100 * cpu) for number, cpu in enumerate(sizes)))
    for number, (count, duration, reserve) in enumerate(before, 1):
        ask(made, jobspec(slot(count, cpu=100), duration=duration), number, reserve=reserve)

    def wanted(count: int) -> dict[str, Any]:
        return nodes(count, slot(1, cpu=100)) if apart else slot(count, cpu=100)

    def starts(count: int) -> bool:
        text = jobspec(wanted(count), duration=molded_duration(100, size, count))
        (answer,) = made.trial([JobMatchRequest(text, 99)], (), NOW).results
        return answer.verdict is MatchVerdict.GRANTED

    best = next((count for count in range(size, min(least, size) - 1, -1) if starts(count)), 0)
    (full,) = made.trial(
        [JobMatchRequest(jobspec(wanted(size), duration=100), 99, reserve=True)], (), NOW
    ).results
    answer = ask(
        made, jobspec(wanted(size), duration=100), 99, CallContext(now=1_000), reserve=True, min_slots=least
    )
    end = 1_000 + molded_duration(100, size, best) if best else None
    if end is not None and (best == size or full.verdict is not MatchVerdict.RESERVED or end < full.end):
        assert (answer.verdict, slots_of(answer), answer.end) == (MatchVerdict.GRANTED, best, end)
    else:
        assert (answer.verdict, answer.at) == (full.verdict, full.at) or full.verdict is MatchVerdict.BUSY
    assert all(job.start >= 0 for job in state_of(made).jobs.values())
    check_books(made)
