"""Advance reservations: nodes that are set aside for the jobs that name the reservation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fluxion_builders import (
    NOW,
    ask,
    check_books,
    engine,
    holdings,
    jobspec,
    node,
    nodes,
    slot,
    state_of,
)

from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    Change,
    ExtendJob,
    RemoveNodes,
    RestoreJobs,
    SetAdvanceReservations,
)
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.match import matcher as matching
from fluxqueue.fluxion.messages import (
    AdvanceReservation,
    CallContext,
    JobInfo,
    JobMode,
    MatchVerdict,
    NodeShare,
    RestoredJob,
)

TWO = (node("a", cpu=400), node("b", cpu=400))
RELAXED = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def at(now: int) -> CallContext:
    return CallContext(now=now)


def reserved(
    made: Engine, *times: tuple[int, int], name: str = "course", on: tuple[str, ...] = ("a",), **more: Any
) -> tuple[int, ...]:
    """Set one advance reservation and no others; return what was displaced."""
    answer = made.apply([SetAdvanceReservations([AdvanceReservation(name, on, times, **more)])], NOW)
    assert answer.done, answer.reason
    return answer.displaced


def modes(made: Engine, mode: JobMode) -> list[JobInfo]:
    return [job for job in made.list_jobs(NOW, with_shares=True) if job.mode is mode]


# ---- work of others ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration", "host"), [(100, "a"), (101, "b"), (0, "b")], ids=["ends as it begins", "overlaps", "no end"]
)
def test_only_what_ends_before_a_reserved_time_starts_on_its_nodes(duration: int, host: str) -> None:
    made = engine(*TWO)
    reserved(made, (1_100, 1_200))
    assert ask(made, jobspec(slot(1, cpu=100), duration=duration)).shares[0].node == host
    check_books(made)


def test_a_refusal_names_the_reservation_that_alone_is_in_the_way() -> None:
    made = engine(node("a", cpu=400))
    reserved(made, (4_600, 8_200), name="weekly", maintenance=True)
    answer = ask(made, jobspec(slot(1, cpu=100), duration=7_200))
    assert (answer.verdict, answer.blocked_by) == (MatchVerdict.BUSY, "weekly")
    assert answer.reason == "would overlap the maintenance weekly at 1970-01-01T01:16:40Z"
    during = ask(made, jobspec(slot(1, cpu=100), duration=10), call=at(5_000))
    assert during.reason == "waits for the end of the maintenance weekly, at 1970-01-01T02:16:40Z"


@pytest.mark.parametrize("reserve", [False, True])
def test_work_that_waits_for_its_own_reservation_is_told_when_that_begins(reserve: bool) -> None:
    made = engine(node("a", cpu=400))
    reserved(made, (4_600, 8_200))
    own = jobspec(slot(1, cpu=100), duration=100, reservation="course")
    answer = ask(made, own, 1, reserve=reserve)
    assert (answer.blocked_by, answer.reason) == (
        "course",
        "waits for its reservation course, which begins at 1970-01-01T01:16:40Z",
    )
    assert ask(made, own, 2, call=at(5_000)).verdict is MatchVerdict.GRANTED


def test_a_refusal_for_want_of_nodes_names_no_reservation() -> None:
    made = engine(node("a", cpu=400))
    ask(made, jobspec(slot(4, cpu=100), duration=500), 1)
    reserved(made, (1_100, 1_200))
    answer = ask(made, jobspec(slot(1, cpu=100), duration=300))
    assert (answer.verdict, answer.blocked_by) == (MatchVerdict.BUSY, "")


def test_work_is_planned_after_a_reserved_time_and_told_why() -> None:
    made = engine(node("a", cpu=400))
    reserved(made, (1_100, 1_200), (1_300, 1_400))
    answer = ask(made, jobspec(slot(1, cpu=100), duration=150), 1, reserve=True)
    assert (answer.verdict, answer.at, answer.blocked_by) == (MatchVerdict.RESERVED, 1_400, "course")
    fits = ask(made, jobspec(slot(1, cpu=100), duration=100), 2, reserve=True)
    assert (fits.verdict, fits.at) == (MatchVerdict.GRANTED, 1_000)
    check_books(made)


def test_nothing_is_planned_behind_a_reserved_time_without_an_end() -> None:
    made = engine(node("a", cpu=400))
    reserved(made, (1_100, 0))
    assert ask(made, jobspec(slot(1, cpu=100), duration=150), 1, reserve=True).verdict is MatchVerdict.BUSY


def test_running_work_stays_when_its_nodes_are_set_aside_and_can_run_over() -> None:
    made = engine(*TWO)
    ask(made, jobspec(slot(4, cpu=100), duration=60), 1)
    assert reserved(made, (1_010, 1_100)) == ()
    assert made.apply([ExtendJob(1, 1_090)], NOW).displaced == ()
    assert [job.jobid for job in modes(made, JobMode.ALLOCATED)] == [1]
    assert len(modes(made, JobMode.ADVANCE)) == 1
    check_books(made)


def test_planned_work_that_overlaps_a_new_reservation_is_dropped() -> None:
    made = engine(*TWO)
    for jobid, host in ((1, "a"), (2, "b")):
        made.reserve_at(jobid, jobspec(slot(1, cpu=100)), 2_000, [host], NOW)
    made.reserve_at(3, jobspec(slot(1, cpu=100)), 3_000, ["a"], NOW)
    assert reserved(made, (2_059, 2_500)) == (1,)
    assert [job.jobid for job in modes(made, JobMode.RESERVED)] == [2, 3]


def test_whole_nodes_keep_off_reserved_times_too() -> None:
    made = engine(*TWO)
    reserved(made, (1_030, 1_100))
    assert ask(made, jobspec(nodes(1, slot(1, cpu=100), exclusive=True))).shares[0].node == "b"
    assert ask(made, jobspec(nodes(2, slot(1, cpu=100))), 2, reserve=True).at == 1_100


# ---- own work ----------------------------------------------------------------------------------------------


def test_own_work_runs_on_the_reserved_nodes_within_the_time() -> None:
    made = engine(*TWO)
    reserved(made, (1_000, 1_100), on=("b",))
    own = ask(made, jobspec(slot(1, cpu=100), reservation="course"), 1)
    assert (own.verdict, own.shares[0].node) == (MatchVerdict.GRANTED, "b")
    assert ask(made, jobspec(slot(1, cpu=100)), 2).shares[0].node == "a"
    check_books(made)


def test_own_work_is_planned_at_the_start_of_its_reservation() -> None:
    made = engine(*TWO)
    reserved(made, (1_500, 1_600), (2_500, 2_700))
    text = jobspec(slot(3, cpu=100), reservation="course", duration=80)
    answers = [ask(made, text, jobid, reserve=True) for jobid in (1, 2, 3)]
    assert [(answer.verdict, answer.at) for answer in answers] == [
        (MatchVerdict.RESERVED, at) for at in (1_500, 2_500, 2_580)
    ]
    assert {share.node for answer in answers for share in answer.shares} == {"a"}
    started = ask(made, text, 1, call=at(1_500))
    assert (started.verdict, started.shares) == (MatchVerdict.GRANTED, answers[0].shares)
    check_books(made)


def test_own_work_is_planned_at_the_end_of_other_own_work() -> None:
    made = engine(*TWO)
    reserved(made, (1_000, 2_000))
    text = jobspec(slot(3, cpu=100), reservation="course")
    assert ask(made, text, 1).verdict is MatchVerdict.GRANTED
    planned = ask(made, text, 2, reserve=True)
    assert (planned.verdict, planned.at) == (MatchVerdict.RESERVED, 1_060)
    made.apply([CancelJobs([1])], at(1_010))
    earlier = ask(made, text, 2, reserve=True, improve=True, call=at(1_010))
    assert (earlier.verdict, earlier.at) == (MatchVerdict.GRANTED, 1_010)
    check_books(made)


@pytest.mark.parametrize(
    ("duration", "reason"),
    [
        (
            200,
            (
                "the reservation 'course' lasts 100 s, and it takes 200 s: "
                "what runs inside it must end before it does"
            ),
        ),
        (
            0,
            (
                "the reservation 'course' lasts 100 s, and it has no end: "
                "what runs inside it must end before it does"
            ),
        ),
    ],
)
def test_own_work_that_is_longer_than_its_reservation_never_fits(duration: int, reason: str) -> None:
    made = engine(*TWO)
    reserved(made, (1_000, 1_100))
    answer = ask(made, jobspec(slot(1, cpu=100), reservation="course", duration=duration), reserve=True)
    assert (answer.verdict, answer.reason) == (MatchVerdict.UNSATISFIABLE, reason)


def test_own_work_that_no_reserved_node_could_hold_never_fits() -> None:
    made = engine(*TWO, node("c", cpu=4_000))
    reserved(made, (1_000, 1_100))
    text = jobspec(slot(1, cpu=1_000), reservation="course")
    assert ask(made, text).verdict is MatchVerdict.UNSATISFIABLE
    assert made.satisfy(text, NOW).verdict is MatchVerdict.UNSATISFIABLE
    assert made.satisfy(jobspec(slot(1, cpu=1_000)), NOW).verdict is MatchVerdict.GRANTED


@pytest.mark.parametrize("name", ["unknown", "over"])
def test_work_of_an_unknown_reservation_or_one_that_is_over_does_not_start(name: str) -> None:
    made = engine(*TWO)
    reserved(made, (100, 900), name="over")
    answer = ask(made, jobspec(slot(1, cpu=100), reservation=name), reserve=True)
    assert (answer.verdict, answer.reason) == (
        MatchVerdict.UNSATISFIABLE,
        f"the reservation {name!r} is over or has no nodes",
    )


def test_own_work_keeps_off_the_time_of_another_reservation_on_the_same_nodes() -> None:
    made = engine(*TWO)
    both = [
        AdvanceReservation("course", ("a",), ((1_000, 2_000),)),
        AdvanceReservation("power", ("a",), ((1_050, 1_100),), True),
    ]
    assert made.apply([SetAdvanceReservations(both)], NOW).done
    answer = ask(made, jobspec(slot(1, cpu=100), reservation="course"), 1, reserve=True)
    assert (answer.at, answer.blocked_by) == (1_100, "power")


def test_planned_own_work_is_dropped_with_its_reservation_or_node() -> None:
    made = engine(*TWO)
    reserved(made, (1_500, 1_600), on=("a", "b"))
    text = jobspec(slot(4, cpu=100), reservation="course")
    for jobid in (1, 2):
        assert ask(made, text, jobid, reserve=True).at == 1_500
    assert reserved(made, (1_500, 1_600), on=("b",)) == (1,)
    assert made.apply([SetAdvanceReservations([])], NOW).displaced == (2,)


# ---- the graph ---------------------------------------------------------------------------------------------


def test_reservations_are_set_together_and_those_left_out_are_over() -> None:
    made = engine(*TWO)
    reserved(made, (1_000, 1_100), on=("a", "b"))
    before = holdings(made)
    assert reserved(made, (1_000, 1_100), on=("a", "b")) == ()
    assert holdings(made) == before, "what did not change is not booked again"
    assert ask(made, jobspec(slot(1, cpu=100)), 1).verdict is MatchVerdict.BUSY
    made.apply([SetAdvanceReservations([])], NOW)
    assert modes(made, JobMode.ADVANCE) == []
    assert ask(made, jobspec(slot(1, cpu=100)), 1).verdict is MatchVerdict.GRANTED


@pytest.mark.parametrize(
    ("reservations", "reason"),
    [
        ([AdvanceReservation("", ("a",), ((1, 2),))], "each needs a name"),
        ([AdvanceReservation("x", ("a",), ((5, 5),))], "a time ends before it starts"),
        ([AdvanceReservation("x", ("a",), ((5, 9), (8, 10)))], "ascending and apart"),
        ([AdvanceReservation("x", ("a",), ((5, 0), (8, 10)))], "ascending and apart"),
        ([AdvanceReservation("x", ("a",), ((5, 9),))] * 2, "a name occurs twice"),
        (
            [AdvanceReservation("x", ("a",), tuple((n, n + 1) for n in range(1, 300)))],
            "299 times are more than 256",
        ),
    ],
)
def test_reservations_that_make_no_sense_are_refused_and_change_nothing(
    reservations: list[AdvanceReservation], reason: str
) -> None:
    made = engine(*TWO)
    reserved(made, (1_100, 1_200))
    before = holdings(made)
    answer = made.apply([SetAdvanceReservations(reservations)], NOW)
    assert not answer.done
    assert reason in answer.reason
    assert holdings(made) == before
    assert reserved(made, (1_100, 1_200)) == ()
    assert holdings(made) == before


def test_a_node_that_is_added_later_is_set_aside_then() -> None:
    made = engine(node("a", cpu=400))
    reserved(made, (1_010, 1_100), on=("a", "c"))
    made.apply([AddNodes([node("c", cpu=400)])], NOW)
    assert ask(made, jobspec(slot(1, cpu=100))).verdict is MatchVerdict.BUSY
    check_books(made)


def test_a_node_that_goes_and_comes_back_is_still_set_aside() -> None:
    made = engine(*TWO)
    reserved(made, (1_010, 1_100))
    assert made.apply([RemoveNodes(["a"])], NOW).displaced == ()
    made.apply([AddNodes([node("a", cpu=400)])], NOW)
    assert ask(made, jobspec(slot(1, cpu=100))).shares[0].node == "b"
    made.apply([SetAdvanceReservations([])], NOW)
    assert ask(made, jobspec(slot(1, cpu=100))).shares[0].node == "a"
    check_books(made)


def test_changes_that_fail_leave_reservations_as_they_were() -> None:
    made = engine(*TWO)
    reserved(made, (1_010, 1_100))
    before = holdings(made)
    changes: list[Change] = [SetAdvanceReservations(()), AddNodes((node("c", cpu=-1),))]
    assert not made.apply(changes, NOW).done
    assert holdings(made) == before
    assert (
        ask(made, jobspec(slot(1, cpu=100), reservation="course", duration=50), 9, reserve=True).at == 1_010
    )


def test_a_reserved_time_is_nothing_that_a_caller_can_cancel_or_move() -> None:
    made = engine(*TWO)
    reserved(made, (1_010, 1_100))
    (time,) = modes(made, JobMode.ADVANCE)
    made.apply([CancelJobs([time.jobid])], NOW)
    assert modes(made, JobMode.ADVANCE) == [time]
    assert not made.apply([ExtendJob(time.jobid, 9_999)], NOW).done
    assert not made.apply([CancelPart(time.jobid, [NodeShare("a")])], call=NOW).done
    assert made.stat(NOW).reserved_jobs == 0


def test_known_work_is_restored_on_nodes_that_are_set_aside() -> None:
    made = engine(*TWO)
    reserved(made, (900, 1_100))
    answer = made.apply(
        [RestoreJobs([RestoredJob(5, (NodeShare("a", {"w": 1}, {"cpu": 400}),), 950, 2_000)])], NOW
    )
    assert (answer.done, answer.excess) == (True, ())


# ---- any order ---------------------------------------------------------------------------------------------

times = st.lists(st.integers(1, 30), min_size=2, max_size=6, unique=True).map(
    lambda marks: tuple(
        (1_000 + 10 * start, 1_000 + 10 * end)
        for start, end in zip(sorted(marks)[::2], sorted(marks)[1::2], strict=False)
    )
)
reservations = st.lists(
    st.builds(
        AdvanceReservation,
        st.sampled_from("xy"),
        st.sets(st.sampled_from("abc"), min_size=1).map(tuple),
        times,
    ),
    max_size=2,
    unique_by=lambda each: each.name,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), reservations, st.none()),
        st.tuples(
            st.just("ask"),
            st.one_of(
                st.builds(lambda n, cpu: slot(n, cpu=100 * cpu), st.integers(1, 4), st.integers(1, 4)),
                st.builds(
                    lambda n, whole: nodes(n, slot(1, cpu=100), exclusive=whole),
                    st.integers(1, 3),
                    st.booleans(),
                ),
            ),
            st.tuples(st.sampled_from(["", "", "x", "y"]), st.sampled_from([10, 25, 60, 0])),
        ),
        st.tuples(st.just("cancel"), st.integers(1, 8), st.none()),
        st.tuples(st.just("pass"), st.integers(1, 40), st.none()),
        st.tuples(st.just("node"), st.sampled_from("abc"), st.booleans()),
    ),
    max_size=14,
)


def run(
    made: Engine, sequence: Any, check: Callable[[Engine, int], None] = lambda _made, _now: None
) -> list[Any]:
    now, answers = 1_000, list[Any]()
    for number, (kind, what, more) in enumerate(sequence, 1):
        if kind == "set":
            answers.append(made.apply([SetAdvanceReservations(what)], at(now)).displaced)
        elif kind == "ask":
            name, duration = more
            answer = ask(
                made, jobspec(what, duration=duration, reservation=name), number, call=at(now), reserve=True
            )
            answers.append(dataclasses.replace(answer, reason=""))
        elif kind == "cancel":
            made.apply([CancelJobs([what])], at(now))
        elif kind == "pass":
            now += what
        elif more:
            made.apply([AddNodes([node(what, cpu=400)])], at(now))
        else:
            made.apply([RemoveNodes([what])], at(now))
        check(made, now)
    return answers


def _check(made: Engine, now: int) -> None:
    """Every plan of a job keeps off all reserved times but its own, and is within that."""
    state = state_of(made)
    for job in [job for job in state.reserved if job.mode is JobMode.RESERVED]:
        own = job.jobspec.reservation if job.jobspec is not None else ""
        for name, each in state.reserved_times.items():
            met = [
                time
                for time in each
                if job.overlaps(time.job.start, time.job.end, now)
                and not time.nodes.isdisjoint(job.placement.vertices)
            ]
            if name != own:
                assert met == [], (job.jobid, job.start, job.end, name)
            else:
                assert any(time.covers(job.start, job.end) for time in met)


@RELAXED
@given(st.sampled_from(["lonode", "hinode", "low", "lonodex"]), steps)
def test_plans_keep_off_the_reserved_times_of_others_in_any_order(policy: str, sequence: Any) -> None:
    made = engine(*(node(name, cpu=400) for name in "abc"), policy=policy)
    run(made, sequence, _check)
    check_books(made)


@RELAXED
@given(st.sampled_from(["lonode", "hinode", "low", "lonodex"]), steps)
def test_shortcuts_and_the_traverser_agree_with_reserved_times(policy: str, sequence: Any) -> None:
    quick, slow = (engine(*(node(name, cpu=400) for name in "abc"), policy=policy) for _ in range(2))
    with pytest.MonkeyPatch.context() as patched:
        answers = run(quick, sequence)
        patched.setattr(matching, "plan_for", lambda *_: None)
        assert run(slow, sequence) == answers
