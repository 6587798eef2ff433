"""What is moved for wide work, and that it pays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.elastic_jobs import ShownPods, held, leaving, moldable
from support.elastic_jobs import started as elastic_started
from support.queue_bench import START, Bench, a_machine, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Consolidation, Policy, PreemptionRules, QueueLimits, WorkloadLimits
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.model.consolidations import room_message
from fluxqueue.queue.model.records import Allocation, NewWorkload, ReleaseMode, Workload
from fluxqueue.queue.model.victim_views import VictimView
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.preemption.possible_victims import OnlyJobs

MOVES = Consolidation(enabled=True)


class Clock:
    """The time of a bench."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def later(self, **amount: float) -> None:
        self.now += timedelta(**amount)


class AnyWork(OnlyJobs):
    """Work of every kind may be preempted. Counts how often it is looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def view(self, _workload: Workload, _allocation: Allocation) -> VictimView:
        self.looks += 1
        return VictimView()


@asynccontextmanager
async def scattered(
    rules: Consolidation = MOVES, grace_s: int = 0, shown: AnyWork | None = None, **changes: Any
) -> AsyncIterator[tuple[Bench, Clock]]:
    """Four nodes of 8 cores: a small Job runs on each of the first two, a wide one on the others; one that
    needs a whole node arrives five minutes later.
    """
    clock = Clock()
    async with a_machine(clock) as bench:
        bench.policy, bench.consolidation, bench.shown = Policy.EASY, rules, shown or AnyWork()
        bench.preemption_rules = PreemptionRules(grace_seconds=grace_s)
        await run(bench, replace(small("small-0"), **changes))
        await run(bench, job("filler", 1, "5", "10m"))
        await run(bench, replace(small("small-1"), **changes))
        await run(bench, job("wide", 2, "8", "10h"))
        await end(bench, "filler")
        clock.later(minutes=5)
        await bench.submit(job("first", 1, "8", "1h"))
        await bench.cycle()
        yield bench, clock


def small(name: str) -> NewWorkload:
    return job(name, 1, "3", "10h")


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


async def run(bench: Bench, work: NewWorkload) -> None:
    await bench.submit(work)
    await bench.cycle()
    await started(bench, work.uid)


async def started(bench: Bench, name: str) -> None:
    row = bench.row(name)
    assert row.jobid is not None
    await bench.ledger.mark_released([row.jobid])
    await bench.ledger.mark_started([row.id])


async def stopped(bench: Bench, name: str) -> None:
    """A moved Job has stopped, and the intake has read it again."""
    row = bench.row(name)
    await bench.ledger.requeue([Requeue(workload=row.id, reason=row.reason, message=row.message)])
    await bench.submit(small(name))


def moved(bench: Bench) -> list[str]:
    rows = filter(None, map(bench.ledger.by_uid, ("small-0", "small-1")))
    return [row.uid for row in rows if row.state is State.DRAINING]


async def test_small_work_is_moved_and_restarts_first_in_line() -> None:
    async with scattered() as (bench, _):
        assert moved(bench) == ["small-0"]
        row = bench.row("small-0")
        assert row.reason is Reason.PREEMPTED
        assert row.message == (
            "Job default/small-0 is moved so that Job default/first starts sooner on 1 node "
            "(594 node-minutes won, 6 node-minutes lost by the plan): it fits elsewhere, is requeued and "
            "restarts first in line"
        )
        assert "it waits for Job default/small-0 to end" in bench.row("first").message
        assert "594 node-minutes won, 6 node-minutes lost by the plan" in bench.row("first").message
        await stopped(bench, "small-0")
        await bench.cycle()
        assert [bench.row(name).state for name in ("first", "small-0")] == [State.ALLOCATED] * 2


async def test_what_arrives_meanwhile_does_not_take_the_room_of_moved_work() -> None:
    async with scattered() as (bench, clock):
        clock.later(seconds=20)
        await bench.submit(job("late", 1, "4", "20m"))
        await bench.cycle()
        assert bench.row("late").state is State.PENDING
        clock.later(seconds=101)
        await bench.cycle()  # it takes too long
        assert bench.row("late").state is State.ALLOCATED


async def test_what_was_won_and_lost_is_told_once_all_has_started() -> None:
    async with scattered() as (bench, clock):
        clock.later(seconds=30)
        await stopped(bench, "small-0")
        await bench.cycle()
        await started(bench, "first")
        assert "in fact" not in room_message(bench.row("first"))
        await bench.cycle()
        await started(bench, "small-0")
        await bench.cycle()
        assert room_message(bench.row("first")) == (
            "room was made for it: 1 workload moved or gave pods back at 2026-11-21T08:05:00Z, so that it "
            "starts before 2026-11-21T18:00:00Z: 594 node-minutes won, 6 node-minutes lost by the plan; in "
            "fact 594 node-minutes won, 6 node-minutes lost"
        )


async def test_work_that_was_moved_is_left_alone_for_a_while() -> None:
    async with scattered(Consolidation(enabled=True, max_lost_seconds=7_200)) as (bench, clock):
        await stopped(bench, "small-0")
        await bench.cycle()
        await started(bench, "small-0")
        await end(bench, "first")
        await end(bench, "small-1")
        bench.other_queues = {"other": Discipline(Policy.EASY)}
        await run(bench, replace(job("other", 1, "5", "10h"), queue="other"))
        await bench.submit(job("second", 1, "8", "1h"))
        await bench.cycle()
        assert bench.row("second").state is State.PENDING
        assert moved(bench) == [], "it was moved, and the other's queue moves nothing"
        clock.later(minutes=61)
        await bench.cycle()
        assert moved(bench) == ["small-0"]


@pytest.mark.parametrize(
    "rules",
    [Consolidation(), Consolidation(enabled=True, max_lost_seconds=299)],
    ids=["off", "it would lose too much"],
)
async def test_nothing_is_moved_that_may_not_be(rules: Consolidation) -> None:
    async with scattered(rules) as (bench, _):
        assert moved(bench) == []
        assert bench.row("first").state is State.PENDING


async def test_what_only_its_eviction_stops_is_not_moved() -> None:
    async with scattered(kind="Pod", release_mode=ReleaseMode.POD) as (bench, _):
        assert moved(bench) == []


async def test_work_of_a_higher_priority_may_be_moved() -> None:
    async with scattered(priority=5) as (bench, _):
        assert bench.row("first").priority == 0
        assert moved(bench) == ["small-0"]


async def test_running_work_is_looked_at_every_ten_seconds_at_most() -> None:
    shown = AnyWork()
    async with scattered(Consolidation(enabled=True, max_lost_seconds=299), shown=shown) as (bench, clock):
        assert shown.looks
        for seconds, looks in ((3, False), (8, True)):
            before = shown.looks
            clock.later(seconds=seconds)
            await bench.cycle()
            assert (shown.looks > before) == looks


async def test_moved_work_goes_on_if_the_first_is_gone_within_its_grace() -> None:
    async with scattered(grace_s=600) as (bench, clock):
        assert moved(bench) == ["small-0"]
        clock.later(seconds=60)
        await end(bench, "first")
        await bench.cycle()
        row = bench.row("small-0")
        assert (row.state, row.requeue_state.moved) == (State.RUNNING, None)


async def test_moved_work_goes_on_if_it_does_not_fit_elsewhere_any_more() -> None:
    async with scattered(grace_s=600) as (bench, clock):
        clock.later(seconds=60)
        await bench.submit(job("late", 1, "4", "20h"))
        await bench.cycle()
        assert bench.row("late").state is State.ALLOCATED
        await bench.cycle()
        assert bench.row("small-0").state is State.RUNNING
        assert bench.row("first").state is State.PENDING


@pytest.mark.parametrize("most_nodes", [1, 2])
async def test_work_is_not_moved_that_its_limits_would_not_start_there(most_nodes: int) -> None:
    """It runs on one node, and would restart on two."""
    clock = Clock()
    async with a_machine(clock) as bench:
        bench.policy, bench.consolidation = Policy.EASY, MOVES
        bench.limits = QueueLimits(per_workload=WorkloadLimits(nodes=most_nodes))
        await run(bench, job("pair", 2, "2", "10h"))
        await run(bench, job("filler", 1, "4", "10m"))
        for name, cpu in (("a", "6"), ("b", "6"), ("c", "8")):
            await run(bench, job(name, 1, cpu, "10h"))
        assert held(bench, "pair").open_nodes == held(bench, "filler").open_nodes
        await end(bench, "filler")
        clock.later(minutes=5)
        await bench.submit(job("first", 1, "8", "1h"))
        await bench.cycle()
        assert (bench.row("pair").state is State.DRAINING) == (most_nodes == 2)


async def test_an_elastic_job_gives_a_pod_back_if_that_lets_wider_work_start() -> None:
    """Two nodes are free: the third is given back, which costs it until the others would have ended."""
    clock, shown = Clock(), ShownPods()
    async with a_machine(clock) as bench:
        bench.policy, bench.consolidation, bench.shown = Policy.EASY, MOVES, shown
        await elastic_started(bench, shown, moldable("elastic", 2, 1))
        clock.later(minutes=5)
        await bench.submit(job("first", 3, "8", "1h"))
        await bench.cycle()
        assert bench.row("elastic").state is State.RUNNING
        assert leaving(bench, "elastic") == [1]
        room = bench.row("first").requeue_state.room
        assert room is not None
        assert (room.works, room.moved, room.given_node_s) == (1, 0, room.lost_node_s)
        assert room.won_node_s > room.lost_node_s


async def test_pods_that_are_given_back_do_not_go_on_again_within_their_grace() -> None:
    clock, shown = Clock(), ShownPods()
    async with a_machine(clock) as bench:
        bench.policy, bench.consolidation, bench.shown = Policy.EASY, MOVES, shown
        bench.preemption_rules = PreemptionRules(grace_seconds=60)
        await elastic_started(bench, shown, moldable("elastic", 2, 1))
        clock.later(minutes=5)
        await bench.submit(job("first", 3, "8", "1h"))
        await bench.cycle()
        clock.later(seconds=10)
        await bench.cycle()
        assert leaving(bench, "elastic") == [1]
        await end(bench, "first")
        await bench.cycle()
        assert leaving(bench, "elastic") == []


async def test_an_elastic_job_gives_nothing_back_for_work_that_wins_no_more_by_it() -> None:
    clock, shown = Clock(), ShownPods()
    async with a_machine(clock) as bench:
        bench.policy, bench.consolidation, bench.shown = Policy.EASY, MOVES, shown
        await elastic_started(bench, shown, moldable("elastic", 4, 1))
        clock.later(minutes=5)
        await bench.submit(job("first", 3, "8", "1h"))
        await bench.cycle()
        assert leaving(bench, "elastic") == []


async def test_a_new_leader_knows_what_is_under_way() -> None:
    async with scattered() as (bench, _):
        await bench.ledger.load()
        assert [row.uid for row in bench.ledger.moved()] == ["small-0"]
        assert [row.uid for row in bench.ledger.got_room()] == ["first"]
