"""What is moved for wide work, and that it pays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from support.queue_bench import START, Bench, a_machine, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Consolidation, Policy, PreemptionRules
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.model.records import NewWorkload

MOVES = Consolidation(enabled=True)


class Clock:
    """The time of a bench."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def later(self, **amount: float) -> None:
        self.now += timedelta(**amount)


@asynccontextmanager
async def scattered(rules: Consolidation = MOVES, grace_s: int = 0) -> AsyncIterator[tuple[Bench, Clock]]:
    """Four nodes of 8 cores: a small Job runs on each of the first two, a wide one on the others."""
    clock = Clock()
    async with a_machine(clock) as bench:
        bench.policy, bench.consolidation = Policy.EASY, rules
        bench.preemption_rules = PreemptionRules(grace_seconds=grace_s)
        filler = job("filler", 1, "5", "10m")
        await run(bench, job("small-0", 1, "3", "10h"))
        await run(bench, filler)
        await run(bench, job("small-1", 1, "3", "10h"))
        await run(bench, job("wide", 2, "8", "10h"))
        await bench.ledger.finish([Ending(bench.row("filler").id, State.COMPLETED, Outcome.SUCCEEDED)])
        await bench.cycle()
        yield bench, clock


async def run(bench: Bench, *works: NewWorkload) -> None:
    await bench.submit(*works)
    await bench.cycle()
    rows = [bench.row(each.uid) for each in works]
    assert all(row.jobid is not None for row in rows)
    await bench.ledger.mark_released([row.jobid for row in rows if row.jobid is not None])
    await bench.ledger.mark_started([row.id for row in rows])


async def restart(bench: Bench, name: str) -> None:
    """A moved Job has stopped, and the intake has read it again."""
    row = bench.row(name)
    await bench.ledger.requeue([Requeue(workload=row.id, reason=row.reason, message=row.message)])
    await bench.cycle()
    await bench.submit(job(name, 1, "3", "10h"))


async def test_small_work_is_moved_so_that_wide_work_starts_and_it_restarts_first_in_line() -> None:
    async with scattered() as (bench, clock):
        clock.later(minutes=5)
        await bench.submit(job("hero", 1, "8", "1h"))
        await bench.cycle()
        (moved,) = (name for name in ("small-0", "small-1") if bench.row(name).state is State.DRAINING)
        assert bench.row(moved).reason is Reason.PREEMPTED
        print(bench.row(moved).message)
        print(bench.row("hero").message, bench.row("hero").requeue_state)
        clock.later(seconds=20)
        await bench.submit(job("late", 1, "4", "20h"))
        await bench.cycle()
        assert bench.row("late").state is State.PENDING
        await restart(bench, moved)
        await bench.cycle()
        assert bench.row("hero").state is State.ALLOCATED
        assert bench.row(moved).state is State.ALLOCATED
        await bench.cycle()
        print(bench.row("late").message, bench.row("late").state)
