"""Cycles with FluxReservations: what is kept off reserved nodes, what may run on them,
and what is told to those who wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from support.queue_bench import START, Bench, a_machine, a_node, job

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.queue.model.reservation_plans import BookedReservation
from fluxqueue.queue.scheduling.reservations.reservation_book import PLANNED_AHEAD
from fluxqueue.queue.tasks.triggers import ControlTask

ALL = ["n0", "n1", "n2", "n3"]
NINE = "2026-11-21T09:00:00"
"""An hour after the start of each test."""


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def bench(clock: Clock) -> AsyncIterator[Bench]:
    async with a_machine(clock) as made:
        made.policy = Policy.EASY
        yield made


def nodes_of(bench: Bench, name: str) -> set[str]:
    allocation = bench.ledger.allocation(bench.row(name).id)
    return {share.node for share in allocation.shares} if allocation is not None else set()


@pytest.mark.parametrize("policy", [Policy.FCFS, Policy.EASY, Policy.CONSERVATIVE])
async def test_work_that_ends_before_a_maintenance_starts_and_longer_work_waits(
    bench: Bench, policy: Policy
) -> None:
    bench.policy = policy
    bench.reserve("power", start=NINE, nodes=ALL, maintenance=True)
    await bench.submit(job("short", 4, "2", "59m"), job("long", 1, "2", "2h"), job("endless", 1, "2"))
    await bench.cycle()
    assert bench.row("short").state is State.ALLOCATED
    long = bench.row("long")
    assert (long.state, long.reason) == (State.PENDING, Reason.RESERVATION)
    assert long.message.startswith("would overlap the maintenance power at 2026-11-21T09:00:00Z")


async def test_a_reason_names_nothing_that_is_not_set_aside_any_more(bench: Bench) -> None:
    bench.reserve("power", start=NINE, nodes=ALL, maintenance=True)
    bench.reserve("course", start="2026-11-22T09:00:00", nodes=ALL)
    bench.policy = Policy.FCFS
    await bench.submit(job("long", 1, "8", "9h"))
    await bench.cycle()
    await bench.submit(job("shorter", 1, "8", "8h", priority=5))  # from now on the longer one is not matched
    await bench.cycle()
    assert "power" in bench.row("long").message
    bench.reservations = {name: plan for name, plan in bench.reservations.items() if name != "power"}
    await bench.submit(job("runs", 4, "8", "7h", priority=9))
    await bench.cycle()
    assert [bench.row(name).state for name in ("runs", "shorter", "long")] == [
        State.ALLOCATED,
        State.PENDING,
        State.PENDING,
    ]
    assert bench.row("long").reason is Reason.WAITING_FOR_NODES
    assert "power" not in bench.row("long").message


async def test_what_has_no_end_does_not_start_before_a_maintenance(bench: Bench) -> None:
    bench.reserve("power", start="2026-12-21T09:00:00", nodes=ALL, maintenance=True)
    await bench.submit(replace(job("endless", 1, "2"), duration_s=None))
    await bench.cycle()
    assert (bench.row("endless").state, bench.row("endless").reason) == (State.PENDING, Reason.RESERVATION)


async def test_shorter_work_behind_refused_longer_work_is_not_taken_for_refused(bench: Bench) -> None:
    bench.reserve("power", start=NINE, nodes=ALL, maintenance=True)
    await bench.submit(job("long", 1, "8", "2h"))
    await bench.cycle()
    await bench.submit(job("short", 1, "8", "30m"))
    await bench.cycle()
    assert bench.row("short").state is State.ALLOCATED


async def test_other_work_keeps_off_reserved_nodes_and_uses_the_rest(bench: Bench) -> None:
    bench.reserve("course", start=NINE, nodes=["n0", "n1"])
    await bench.submit(job("long", 4, "4", "2h"))
    await bench.cycle()
    assert nodes_of(bench, "long") == {"n2", "n3"}


@pytest.mark.parametrize("policy", [Policy.FCFS, Policy.EASY, Policy.CONSERVATIVE])
async def test_own_work_waits_for_its_reservation_and_runs_on_its_nodes_only(
    bench: Bench, clock: Clock, policy: Policy
) -> None:
    bench.policy = policy
    bench.reserve("course", start=NINE, nodes=["n1", "n2"])
    await bench.submit(job("mine", 2, "8", "30m", reservation="course"))
    await bench.cycle()
    mine = bench.row("mine")
    assert (mine.state, mine.reason) == (State.PENDING, Reason.RESERVATION)
    assert mine.message.startswith("waits for its reservation course, which begins at 2026-11-21T09:00:00Z")
    await bench.cycle()
    clock.now += timedelta(hours=1)
    await bench.cycle()
    assert nodes_of(bench, "mine") == {"n1", "n2"}


@pytest.mark.parametrize("policy", [Policy.FCFS, Policy.EASY])
async def test_own_work_that_came_after_the_start_runs_at_once(
    bench: Bench, clock: Clock, policy: Policy
) -> None:
    bench.policy = policy
    bench.reserve("course", start=NINE, nodes=["n1"])
    clock.now += timedelta(minutes=70)
    await bench.submit(job("mine", 1, "8", "30m", reservation="course"), job("other", 4, "8", "30m"))
    await bench.cycle()
    assert nodes_of(bench, "mine") == {"n1"}
    assert bench.row("other").state is State.PENDING


async def test_own_work_that_is_longer_than_its_reservation_is_told_so(bench: Bench) -> None:
    bench.reserve("course", start=NINE, nodes=["n1"])
    await bench.submit(job("mine", 1, "8", "90m", reservation="course"))
    await bench.cycle()
    assert bench.row("mine").reason is Reason.UNSATISFIABLE
    assert "the reservation 'course' lasts 3600 s" in bench.row("mine").message


async def test_a_time_that_ends_lets_others_in(bench: Bench, clock: Clock) -> None:
    bench.policy = Policy.FCFS
    bench.reserve("power", start="2026-11-21T07:30:00", nodes=ALL, maintenance=True)
    await bench.submit(job("waits", 1, "8", "1h"))
    await bench.cycle()
    assert bench.row("waits").message == "waits for the end of the maintenance power, at 2026-11-21T08:30:00Z"
    clock.now += timedelta(minutes=30)
    await bench.cycle()
    assert bench.row("waits").state is State.ALLOCATED


async def test_a_reservation_that_is_deleted_or_over_sets_nothing_aside(bench: Bench, clock: Clock) -> None:
    bench.reserve("power", start=NINE, nodes=ALL, maintenance=True)
    bench.reserve("old", start="2026-11-20T09:00:00", nodes=ALL, maintenance=True)
    await bench.cycle()
    assert [each.name for each in bench.book.wanted()] == ["power"]
    bench.reservations = {}
    await bench.submit(job("long", 4, "8", "2h"))
    await bench.cycle()
    assert bench.row("long").state is State.ALLOCATED


async def test_a_reservation_that_comes_later_moves_planned_work(bench: Bench) -> None:
    await bench.submit(job("runs", 4, "8", "30m"), job("next", 4, "8", "1h"))
    await bench.cycle()
    (planned,) = bench.ledger.reservations()
    assert planned.start == START + timedelta(minutes=30)
    bench.reserve("power", start=NINE, nodes=ALL, maintenance=True)
    await bench.cycle()
    (planned,) = bench.ledger.reservations()
    assert planned.start == START + timedelta(hours=2)
    assert planned.first_start == START + timedelta(minutes=30)


async def test_estimates_know_the_maintenance(bench: Bench) -> None:
    bench.reserve("power", start=NINE, nodes=ALL, maintenance=True)
    await bench.submit(job("one", 4, "8", "2h"), job("two", 4, "8", "2h"))
    await bench.cycle()
    etas = [
        estimate.eta
        for name in ("one", "two")
        if (estimate := bench.scheduler.estimates.get(bench.row(name).id)) is not None
    ]
    assert etas == [START + timedelta(hours=2), START + timedelta(hours=4)]


async def test_a_graph_that_is_filled_again_has_the_reservation(bench: Bench) -> None:
    bench.reserve("power", start=NINE, nodes=ALL, maintenance=True)
    await bench.cycle()
    bench.graph.invalidate()
    await bench.submit(job("long", 4, "8", "2h"))
    await bench.cycle()
    assert bench.row("long").reason is Reason.RESERVATION


async def test_a_number_of_nodes_is_chosen_once_and_stored(bench: Bench, clock: Clock) -> None:
    await bench.submit(job("runs", 2, "8", "5h"))
    await bench.cycle()
    bench.reserve("course", start=NINE, nodes={"count": 2})
    await bench.cycle()
    assert bench.book.booked["course"].nodes == ("n2", "n3"), "those on which nothing runs"
    assert await bench.store.reserved_nodes() == {"uid-course": ("n2", "n3")}
    await bench.submit(job("more", 2, "8", "50m"))
    await bench.cycle()
    bench.nodes.replace([*bench.nodes.list(), a_node("m0")])
    await bench.cycle()
    assert bench.book.booked["course"].nodes == ("n2", "n3")
    bench.reservations = {}
    await bench.cycle()
    assert await bench.store.reserved_nodes() == {}


async def test_a_chosen_node_that_is_gone_is_replaced(bench: Bench) -> None:
    bench.reserve("course", start=NINE, nodes={"count": 2})
    await bench.cycle()
    assert bench.book.booked["course"].nodes == ("n0", "n1")
    bench.nodes.replace([node for node in bench.nodes.list() if node.metadata.name != "n0"])
    await bench.cycle()
    assert bench.book.booked["course"].nodes == ("n1", "n2")


async def test_reservations_at_the_same_time_choose_different_nodes_and_the_oldest_first(
    bench: Bench,
) -> None:
    bench.reserve("b", start=NINE, nodes={"count": 3})
    bench.reserve("c", start=NINE, nodes={"count": 3})
    bench.reserve("d", start="2026-11-22T09:00:00", nodes={"count": 3})
    await bench.cycle()
    booked = bench.book.booked
    assert (booked["b"].nodes, booked["c"].nodes, booked["d"].nodes) == (
        ("n0", "n1", "n2"),
        ("n3",),
        ("n0", "n1", "n2"),
    )
    assert booked["c"].missing == 2


async def test_a_rule_without_an_end_is_planned_some_times_ahead(bench: Bench) -> None:
    bench.reserve("weekly", start=NINE, nodes=ALL, maintenance=True, repeat="FREQ=WEEKLY")
    await bench.cycle()
    (wanted,) = bench.book.wanted()
    assert len(wanted.times) == PLANNED_AHEAD


async def test_a_rule_until_the_last_year_there_is_stops_no_scheduling(bench: Bench) -> None:
    bench.reserve(
        "daily",
        start=NINE,
        nodes=ALL,
        maintenance=True,
        repeat="FREQ=DAILY;UNTIL=99991231T235959Z",
        timeZone="Asia/Tokyo",
    )
    await bench.submit(job("short", 4, "2", "1m"))
    await bench.cycle()
    assert bench.row("short").state is State.ALLOCATED


async def test_a_cycle_is_requested_for_the_next_beginning(bench: Bench, clock: Clock) -> None:
    bench.reserve("power", start=NINE, nodes=ALL, maintenance=True)
    clock.now = START + timedelta(minutes=59, seconds=59.9)
    await bench.cycle()
    bench.asked.clear()
    async with asyncio.timeout(5):
        while ControlTask.SCHEDULE not in bench.asked:
            await asyncio.sleep(0.01)


async def test_listeners_learn_of_changes_and_of_times_that_begin_and_end(bench: Bench, clock: Clock) -> None:
    calls: list[datetime] = []
    bench.book.subscribe(lambda: calls.append(clock.now))
    await bench.cycle()
    assert not calls
    bench.reserve("power", start=NINE, nodes=ALL, maintenance=True)
    for minutes in (0, 30, 60, 90, 120):
        clock.now = START + timedelta(minutes=minutes)
        await bench.cycle()
    assert calls == [START + timedelta(minutes=minutes) for minutes in (0, 60, 120)]


async def test_own_work_that_waits_for_its_time_does_not_hold_up_a_strict_queue(bench: Bench) -> None:
    bench.policy = Policy.FCFS
    bench.reserve("course", start=NINE, nodes=["n0"])
    await bench.submit(job("mine", 1, "8", "30m", reservation="course"), job("first", 1, "8", "3h"))
    await bench.cycle()
    await bench.submit(job("second", 1, "8", "3h"))
    await bench.cycle()
    assert (bench.row("first").state, bench.row("second").state) == (State.ALLOCATED, State.ALLOCATED)


async def test_own_work_that_waits_for_its_time_takes_no_reservation_from_the_first_of_the_others(
    bench: Bench,
) -> None:
    bench.reserve("course", start=NINE, nodes=["n0"])
    await bench.submit(job("runs", 3, "8", "10h"))
    await bench.cycle()
    await bench.submit(
        job("mine", 1, "8", "30m", reservation="course"),
        job("wide", 4, "8", "1h"),
        job("wider", 4, "8", "2h"),
    )
    await bench.cycle()
    assert {each.workload for each in bench.ledger.reservations()} == {
        bench.row("mine").id,
        bench.row("wide").id,
    }


async def test_what_is_set_aside_is_limited_and_the_youngest_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluxqueue.queue.scheduling.reservations.reservation_book._MOST_NODE_TIMES", 10)
    for name in ("a", "b", "c"):
        bench.reserve(name, start=NINE, nodes=ALL, maintenance=True, repeat="FREQ=WEEKLY")
    await bench.cycle()
    assert {name: len(each.times) for name, each in bench.book.booked.items()} == {"a": 2, "b": 0, "c": 0}
    assert bench.book.booked["b"].problem.startswith(
        "older reservations take up all that the queue sets aside"
    )
    monkeypatch.setattr("fluxqueue.queue.scheduling.reservations.reservation_book._MOST", 0)
    bench.reserve("d", start=NINE, nodes=["n0"], maintenance=True)
    await bench.cycle()
    assert {name: len(each.times) for name, each in bench.book.booked.items()} == {
        "a": 0,
        "b": 0,
        "c": 0,
        "d": 0,
    }


async def test_times_that_touch_are_planned_ahead_as_far_each_day(bench: Bench, clock: Clock) -> None:
    """Nodes that are reserved day after day: the plan was only renewed at its end,
    so that work of some days waited for that.
    """
    bench.reserve("always", start="2026-11-21T07:00:00", duration="24h", repeat="FREQ=DAILY", nodes=["n1"])
    await bench.cycle()
    clock.now += timedelta(days=PLANNED_AHEAD - 2)
    await bench.cycle()
    (time,) = bench.book.booked["always"].times
    assert time.end == (START + timedelta(days=2 * PLANNED_AHEAD - 2, hours=-1)).timestamp()
    await bench.submit(job("mine", 1, "1", "72h", reservation="always"))
    await bench.cycle()
    assert bench.row("mine").state is State.ALLOCATED


async def test_a_plan_of_times_that_touch_asks_for_a_cycle_when_the_first_of_them_ends(bench: Bench) -> None:
    bench.reserve("always", start="2026-11-21T07:00:00", duration="24h", repeat="FREQ=DAILY", nodes=["n1"])
    await bench.cycle()
    assert bench.book.next_change() == (START + timedelta(hours=23)).timestamp()


async def test_many_reservations_choose_their_nodes_without_a_look_at_each_pair(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand that choose took the leader longer than its Lease lasts, after each change of a node."""

    def compared(*_pair: object) -> None:
        raise AssertionError("two reservations were compared")

    monkeypatch.setattr(BookedReservation, "meets", compared)
    for hour in range(12):
        bench.reserve(
            f"r{hour:02}",
            start=f"2026-11-22T{hour:02}:00:00",
            duration="2h",
            repeat="FREQ=DAILY",
            nodes={"count": 2},
        )
    await bench.cycle()
    nodes = [bench.book.booked[f"r{hour:02}"].nodes for hour in range(12)]
    assert nodes == [("n0", "n1"), ("n2", "n3")] * 6, "each overlaps the one before it and the one after it"
