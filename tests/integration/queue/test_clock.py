"""The clock of Postgres is wrong for a while, for example after a failover to a server that is ahead.
No row and no work notices it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.queue_records import Leader
from support.stepped_clock import SteppedPostgres

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, Store
from fluxqueue.queue.store.clock import LeaderClock

HOUR = timedelta(hours=1)
SLACK = timedelta(seconds=30)


@pytest.fixture
def postgres_clock(pool: Database) -> SteppedPostgres:
    return SteppedPostgres(pool)


async def now() -> datetime:
    return datetime.now(UTC)


async def a_leader(
    pool: Database, postgres: SteppedPostgres, name: str = "replica-0"
) -> tuple[Leader, LeaderClock]:
    epoch: Epoch = await postgres.acquire_leadership(name)
    clock = LeaderClock(postgres, epoch, now)
    await clock.keep()
    return Leader(Store(pool, clock), epoch), clock


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_a_postgres_that_is_wrong_for_a_while_changes_no_time(
    pool: Database, postgres_clock: SteppedPostgres, ahead: timedelta
) -> None:
    leader, clock = await a_leader(pool, postgres_clock)
    for step in (ahead, timedelta()):
        postgres_clock.ahead = step
        await clock.keep()
        (row,) = await leader.submit(f"job-{step.total_seconds():.0f}")
        for time in (clock(), clock.wall(), row.submitted_at, await leader.store.now()):
            assert abs(time - await now()) < SLACK


async def test_the_doctor_is_told_by_how_much_postgres_is_wrong(
    pool: Database, postgres_clock: SteppedPostgres
) -> None:
    _, clock = await a_leader(pool, postgres_clock)
    postgres_clock.ahead = HOUR
    offsets_s = await clock.compare()
    assert offsets_s["postgres"] == pytest.approx(3600, abs=30)
    assert abs(offsets_s["queue"]) < 1


async def test_a_claim_is_due_after_its_time_by_the_leaders_clock(
    pool: Database, postgres_clock: SteppedPostgres
) -> None:
    leader, _ = await a_leader(pool, postgres_clock)
    await leader.allocate("granted")
    assert len(await leader.store.claim_releases(leader.epoch, 10, 20.0)) == 1
    later = Store(pool, lambda: datetime.now(UTC) + timedelta(seconds=19))
    assert await later.claim_releases(leader.epoch, 10, 20.0) == []
    due = Store(pool, lambda: datetime.now(UTC) + timedelta(seconds=60))
    assert len(await due.claim_releases(leader.epoch, 10, 20.0)) == 1


async def test_the_next_leader_does_not_begin_before_the_last_write(
    pool: Database, postgres_clock: SteppedPostgres
) -> None:
    former = Leader(
        Store(pool, lambda: datetime.now(UTC) + HOUR), await postgres_clock.acquire_leadership("replica-0")
    )
    (granted,) = await former.allocate("granted")
    leader, clock = await a_leader(pool, postgres_clock, "replica-1")
    assert granted.allocated_at is not None
    assert clock() >= granted.allocated_at
    assert abs(clock.wall() - await now()) < SLACK
    assert len(await leader.store.claim_releases(leader.epoch, 10, 20.0)) == 1, "what was due is due"


async def test_the_next_leader_does_not_begin_before_the_last_sweep_of_an_idle_one(
    pool: Database, postgres_clock: SteppedPostgres
) -> None:
    epoch = await postgres_clock.acquire_leadership("replica-0")
    ahead = await now() + HOUR
    await postgres_clock.keep_clock(epoch, ahead)
    _, clock = await a_leader(pool, postgres_clock, "replica-1")
    assert clock() >= ahead


async def test_the_function_of_the_tables_follows_the_leaders_clock(
    pool: Database, postgres_clock: SteppedPostgres
) -> None:
    epoch = await postgres_clock.acquire_leadership("replica-0")
    await postgres_clock.keep_clock(epoch, await now() + HOUR)
    assert abs(await postgres_clock.now() - await now() - HOUR) < SLACK
    await postgres_clock.keep_clock(epoch, await now())
    assert abs(await postgres_clock.now() - await now()) < SLACK
