"""The clock of Postgres steps, for example after a failover to a server that is behind or ahead. No work waits longer because of it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.queue_records import Leader
from support.stepped_clock import read_the_clock_by_its_function

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, Store
from fluxqueue.queue.store.clock import LeaderClock

STEP = timedelta(minutes=10)
SLACK = timedelta(seconds=5)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    read_the_clock_by_its_function(monkeypatch)


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


async def step(pool: Database, minutes: int) -> None:
    """Replace the clock of Postgres with one that is this many minutes ahead."""
    async with pool.connection() as connection:
        await connection.execute(
            f"""CREATE OR REPLACE FUNCTION fluxqueue.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
                SELECT clock_timestamp() + interval '{minutes} minutes'
                       + COALESCE((SELECT max(clock_ahead) FROM fluxqueue.leader), interval '0')
            $$"""
        )


async def a_clock(leader: Leader) -> LeaderClock:
    clock = LeaderClock(leader.store, leader.epoch)
    await clock.keep()
    return clock


async def test_the_tables_continue_at_the_leaders_time_when_postgres_steps_back(leader: Leader, pool: Database) -> None:
    clock = await a_clock(leader)
    before = clock()
    await step(pool, -10)
    assert await leader.store.now() < before - STEP + SLACK
    await clock.keep()
    assert before <= clock() < before + SLACK
    assert abs(await leader.store.now() - clock()) < SLACK


async def test_a_release_due_before_the_step_is_due_after_it(leader: Leader, pool: Database) -> None:
    clock = await a_clock(leader)
    await leader.allocate("granted")
    await step(pool, -10)
    assert await leader.store.claim_releases(leader.epoch, 10, 20.0) == []
    await clock.keep()
    ((workload, _),) = await leader.store.claim_releases(leader.epoch, 10, 20.0)
    assert workload.name == "granted"
    assert await leader.store.claim_releases(leader.epoch, 10, 20.0) == [], "a claim holds as long as ever"


async def test_the_time_of_the_next_leader_is_not_before_the_last_write(leader: Leader, pool: Database) -> None:
    await a_clock(leader)
    (granted,) = await leader.allocate("granted")
    await step(pool, -10)
    second = Leader(leader.store, await leader.store.acquire_leadership("replica-1"))
    clock = await a_clock(second)
    assert granted.allocated_at is not None
    assert clock() >= granted.allocated_at
    assert len(await second.store.claim_releases(second.epoch, 10, 20.0)) == 1


async def test_the_time_of_the_next_leader_is_not_before_the_last_sweep_of_an_idle_one(leader: Leader, pool: Database) -> None:
    seen = (await a_clock(leader))()
    await step(pool, -10)
    second = Leader(leader.store, await leader.store.acquire_leadership("replica-1"))
    assert (await a_clock(second))() >= seen - timedelta(seconds=1)


async def test_rows_written_after_a_step_have_the_leaders_time(leader: Leader, pool: Database) -> None:
    clock = await a_clock(leader)
    await step(pool, -10)
    await clock.keep()
    (later,) = await leader.submit("later")
    assert abs(later.submitted_at - clock()) < SLACK


async def test_the_leader_follows_a_postgres_that_steps_ahead(leader: Leader, pool: Database) -> None:
    clock = await a_clock(leader)
    before = clock()
    await step(pool, 10)
    await clock.keep()
    assert abs(clock() - (before + STEP)) < SLACK


async def test_a_clock_without_a_step_is_not_corrected(leader: Leader, pool: Database) -> None:
    clock = await a_clock(leader)
    for _ in range(5):
        await clock.keep()
    async with pool.connection() as connection:
        rows = await (await connection.execute("SELECT clock_ahead FROM fluxqueue.leader")).fetchall()
    assert rows == [(timedelta(0),)]
