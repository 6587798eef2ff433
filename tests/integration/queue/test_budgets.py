"""What accounts have spent, on real tables."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.budget_contract import SpentContract, finish, minutes, spent
from support.queue_records import Leader
from support.stepped_clock import SteppedClock

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, StaleLeader, Store


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def leader(pool: Database, epoch: Epoch, clock: SteppedClock) -> Leader:
    return Leader(Store(pool, clock), epoch)


class TestSpentInPostgres(SpentContract):
    """The same tests as for the store in memory."""


async def test_a_former_leader_frees_and_charges_nothing(leader: Leader, clock: SteppedClock) -> None:
    (workload,) = await leader.allocate("a", account="md")
    clock.set(1)
    await leader.store.acquire_leadership("replica-1")
    with pytest.raises(StaleLeader):
        await finish(leader, workload)
    assert await spent(leader) == {}


async def test_many_that_end_together_are_charged_together(leader: Leader, clock: SteppedClock) -> None:
    workloads = await leader.allocate(*(f"w{number}" for number in range(300)), account="md")
    clock.set(2)
    await finish(leader, *workloads)
    assert await spent(leader) == pytest.approx(minutes(600))


async def test_days_of_long_ago_are_forgotten_with_the_next_charge(leader: Leader, clock: SteppedClock) -> None:
    (workload,) = await leader.allocate("a", account="md")
    clock.set(1)
    await finish(leader, workload)
    for days, kept in ((700, True), (900, False)):
        clock.set(timedelta(days=days).total_seconds() / 60)
        await leader.store.charge_accounts(leader.epoch, 3_600.0, {})
        assert bool(await spent(leader)) is kept
