"""Idle work is preempted by work of any priority, and waits behind all other then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
from msgspec import structs
from support.queue_bench import START, Bench, a_machine, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.model.records import UNUSED_LAST, NewWorkload
from fluxqueue.queue.model.requeue_records import Unused


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
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        yield made


async def running(bench: Bench, clock: Clock, *jobs: NewWorkload) -> None:
    for described in jobs:
        clock.now += timedelta(minutes=1)
        await bench.submit(described)
        await bench.cycle()
        row = bench.row(described.uid)
        assert row.jobid is not None
        await bench.ledger.mark_released([row.jobid])
        await bench.ledger.mark_started([row.id])


def big(name: str, priority: int) -> NewWorkload:
    return job(name, 2, "8", "1h", priority=priority)


async def is_idle(bench: Bench, name: str, seen_by: int | None = None) -> None:
    row = bench.row(name)
    by = bench.ledger.epoch if seen_by is None else seen_by
    unused = Unused(jobid=row.jobid or 0, pods="x", since=START, seen_at=START, seen_by=by)
    await bench.ledger.set_unused({row.id: unused})


async def requeued(bench: Bench, described: NewWorkload) -> None:
    """Have a victim stop and wait again."""
    row = bench.row(described.uid)
    await bench.ledger.requeue([Requeue(workload=row.id, reason=Reason.PREEMPTED, message=row.message)])
    await bench.submit(described)
    await bench.cycle()


async def test_work_of_lower_priority_preempts_idle_work_and_keeps_its_nodes(
    bench: Bench, clock: Clock
) -> None:
    idle, used = big("idle", 10), big("used", 0)
    await running(bench, clock, idle, used)
    await is_idle(bench, "idle")
    await bench.submit(big("first", -5))
    await bench.cycle()
    assert (bench.row("idle").state, bench.row("used").state) == (State.DRAINING, State.RUNNING)
    assert bench.row("idle").message == (
        "Job default/idle (priority 10) was preempted by Job default/first (priority -5): "
        f"it was idle since {time_text(START)}, so it is requeued behind all other work"
    )
    await requeued(bench, idle)
    assert (bench.row("idle").state, bench.row("first").state) == (State.PENDING, State.ALLOCATED)
    assert bench.row("idle").added_priority == UNUSED_LAST
    assert bench.row("idle").weighed_priority == 10
    assert bench.row("used").state is State.RUNNING, "it preempts nothing"
    await bench.submit(big("later", -9))
    await bench.cycle()
    assert bench.row("used").state is State.RUNNING
    assert bench.row("idle").order_priority < bench.row("later").order_priority


async def test_idle_work_is_preempted_before_used_work_of_lower_priority(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, big("idle", 5), big("used", 0))
    await is_idle(bench, "idle")
    await bench.submit(big("urgent", 10))
    await bench.cycle()
    assert [bench.row(name).state for name in ("idle", "used")] == [State.DRAINING, State.RUNNING]


@pytest.mark.parametrize("seen_by", [0, 999])
async def test_what_this_leader_does_not_see_as_idle_is_left_alone(
    bench: Bench, clock: Clock, seen_by: int
) -> None:
    await running(bench, clock, big("idle", 10), big("used", 10))
    await is_idle(bench, "idle", seen_by)
    await bench.submit(big("first", 0))
    await bench.cycle()
    assert [bench.row(name).state for name in ("idle", "used")] == [State.RUNNING] * 2


async def test_work_that_is_used_in_its_grace_goes_on(bench: Bench, clock: Clock) -> None:
    bench.preemption_rules = PreemptionRules(grace_seconds=120)
    await running(bench, clock, big("idle", 10), big("used", 10))
    await is_idle(bench, "idle")
    await bench.submit(big("first", 0))
    await bench.cycle()
    assert bench.row("idle").state is State.DRAINING
    await bench.cycle()
    assert bench.row("idle").state is State.DRAINING, "it is idle still"
    await bench.ledger.set_unused({bench.row("idle").id: None})
    await bench.cycle()
    assert bench.row("idle").state is State.RUNNING
    assert bench.row("first").state is State.PENDING


async def test_once_it_runs_again_it_is_ordered_by_its_priority(bench: Bench, clock: Clock) -> None:
    idle = big("idle", 10)
    await running(bench, clock, idle, big("used", 0))
    await is_idle(bench, "idle")
    await bench.submit(big("first", -5))
    await bench.cycle()
    await requeued(bench, idle)
    await bench.ledger.finish([Ending(bench.row("first").id, State.COMPLETED, Outcome.SUCCEEDED, "")])
    await bench.cycle()
    assert (bench.row("idle").state, bench.row("idle").added_priority) == (State.ALLOCATED, 0)


@pytest.mark.parametrize("stale", ["not known", "another leader", "former run"])
async def test_what_is_not_known_to_be_idle_now_is_preempted_like_all_other_work(
    bench: Bench, clock: Clock, stale: str
) -> None:
    once, used = big("once", 0), big("used", 20)
    await running(bench, clock, once, used)
    await is_idle(bench, "once", {"not known": 0, "another leader": 999}.get(stale))
    if stale == "former run":
        row = bench.row("once")
        assert row.requeue_state.unused is not None
        former = structs.replace(row.requeue_state.unused, jobid=(row.jobid or 0) + 1_000)
        await bench.ledger.set_unused({row.id: former})
    await bench.submit(big("urgent", 10))
    await bench.cycle()
    assert bench.row("once").state is State.DRAINING
    assert bench.row("once").message.endswith("it is requeued and keeps its submit time")
    await requeued(bench, once)
    assert (bench.row("once").state, bench.row("once").added_priority) == (State.PENDING, 0)
