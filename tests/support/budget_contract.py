"""The contract of what accounts have spent: run against Postgres and against the store in memory."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from support.queue_records import Leader, a_requeue
from support.stepped_clock import SteppedClock

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.queue.model.changes import Ending, Replacement
from fluxqueue.queue.model.records import Workload

__all__ = ["SpentContract"]

FIRST = date(2026, 1, 1)
"""The day on whose noon the clock stands."""
MINUTE = {"cpu": 2 * 2000 * 60.0, "memory": 2 * 4 * 60.0, "node": 2 * 60.0}
"""What an allocation on two nodes comes to in a minute."""
MIDNIGHT = 12 * 60.0


async def spent(leader: Leader, account: str = "md", start: date = FIRST) -> dict[str, float]:
    return {kind: use for (_, kind), use in (await leader.store.spent([("budget", account, start)])).items()}


async def finish(leader: Leader, *workloads: Workload) -> None:
    await leader.store.finish(
        leader.epoch, [Ending(each.id, State.COMPLETED, Outcome.SUCCEEDED) for each in workloads]
    )


def minutes(count: float) -> dict[str, float]:
    return {kind: amount * count for kind, amount in MINUTE.items()}


class SpentContract:
    """What freed allocations used, by account and day."""

    async def test_an_allocation_is_charged_once_when_it_is_freed(
        self, leader: Leader, clock: SteppedClock
    ) -> None:
        (workload,) = await leader.allocate("a", account="md")
        clock.set(10)
        assert await spent(leader) == {}
        await finish(leader, workload)
        clock.set(30)
        await finish(leader, workload)
        assert await spent(leader) == pytest.approx(minutes(10))

    async def test_each_day_has_its_part_and_a_period_the_days_since_its_start(
        self, leader: Leader, clock: SteppedClock
    ) -> None:
        clock.set(MIDNIGHT - 5)
        (workload,) = await leader.allocate("a", account="md")
        clock.set(MIDNIGHT + 24 * 60 + 7)
        await finish(leader, workload)
        assert await spent(leader) == pytest.approx(minutes(5 + 24 * 60 + 7))
        assert await spent(leader, start=FIRST + timedelta(days=1)) == pytest.approx(minutes(24 * 60 + 7))
        assert await spent(leader, start=FIRST + timedelta(days=2)) == pytest.approx(minutes(7))
        assert await spent(leader, start=FIRST + timedelta(days=3)) == {}

    async def test_accounts_count_for_the_name_that_is_asked_for(
        self, leader: Leader, clock: SteppedClock
    ) -> None:
        workloads = [*await leader.allocate("a", account="md"), *await leader.allocate("b", account="site")]
        workloads += [*await leader.allocate("c", account="other"), *await leader.allocate("d")]
        clock.set(1)
        await finish(leader, *workloads)
        asked = [
            ("site", "site", FIRST),
            ("site", "md", FIRST),
            ("md", "md", FIRST),
            ("nobody", "nobody", FIRST),
        ]
        found = await leader.store.spent(asked)
        assert {name for name, _ in found} == {"site", "md"}
        assert (found["site", "cpu"], found["md", "cpu"]) == pytest.approx((2 * MINUTE["cpu"], MINUTE["cpu"]))
        assert await leader.store.spent([]) == {}

    async def test_work_that_is_requeued_is_charged_for_each_of_its_starts(
        self, leader: Leader, clock: SteppedClock
    ) -> None:
        (workload,) = await leader.allocate("a", account="md")
        clock.set(2)
        await leader.store.requeue(leader.epoch, [a_requeue(workload.id)])
        clock.set(20)
        await leader.store.grant(leader.epoch, [await leader.grant_for(workload)])
        clock.set(23)
        await finish(leader, workload)
        assert await spent(leader) == pytest.approx(minutes(5))

    async def test_the_last_slot_charges(self, leader: Leader, clock: SteppedClock) -> None:
        (workload,) = await leader.allocate("a", account="md")
        assert workload.jobid is not None
        clock.set(1)
        await leader.store.end_slots(leader.epoch, [(workload.jobid, 0)])
        assert await spent(leader) == {}
        clock.set(4)
        await leader.store.end_slots(leader.epoch, [(workload.jobid, 1)])
        assert await spent(leader) == pytest.approx(minutes(4))

    async def test_work_that_takes_nodes_over_is_charged_from_then_on(
        self, leader: Leader, clock: SteppedClock
    ) -> None:
        (ended,) = await leader.submit("ended")
        await finish(leader, ended)  # so that there are records of the months of this clock
        (former,) = await leader.allocate("a", account="md")
        (new,) = await leader.submit("b", account="site")
        clock.set(3)
        passed = Replacement(
            replaced=former.id, replacement=new.id, state=State.FAILED, outcome=Outcome.FAILED
        )
        await leader.store.replace(leader.epoch, [passed])
        assert await spent(leader) == pytest.approx(minutes(3))
        clock.set(5)
        await finish(leader, new)
        assert await spent(leader) == pytest.approx(minutes(3))
        assert await spent(leader, "site") == pytest.approx(minutes(2))

    async def test_it_is_kept_when_the_rows_of_the_work_are_pruned(
        self, leader: Leader, clock: SteppedClock
    ) -> None:
        (workload,) = await leader.allocate("a", account="md")
        clock.set(1)
        await finish(leader, workload)
        clock.set(60)
        before: datetime = clock()
        await leader.store.prune_allocations(leader.epoch, before)
        await leader.store.forget(leader.epoch, before)
        assert await spent(leader) == pytest.approx(minutes(1))
