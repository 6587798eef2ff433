"""The contract of allocations on Postgres, and tests that only its tables allow."""

from __future__ import annotations

import psycopg
import pytest
from support.allocation_contract import AllocationContract
from support.queue_records import Leader

from fluxqueue.queue.model.records import Epoch, FluxionJobId, Workload
from fluxqueue.queue.store import Store


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


class TestAllocationsInPostgres(AllocationContract):
    """The tests of the store in memory."""


def _jobid(workload: Workload) -> FluxionJobId:
    assert workload.jobid is not None
    return workload.jobid


async def _due(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute(
            "UPDATE fluxqueue.allocation SET next_release_at = now() WHERE released_at IS NULL"
        )


async def test_the_tables_refuse_a_second_live_grant_and_a_wrong_transition(
    leader: Leader, database: str
) -> None:
    (workload,) = await leader.allocate("once")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.UniqueViolation, match="allocation_one_live_grant"):
            await connection.execute(
                "INSERT INTO fluxqueue.allocation (jobid, workload, shares, granted_at, "
                "starts_at, next_release_at)"
                " VALUES (999, %s, '[]', now(), now(), now())",
                (workload.id,),
            )
        with pytest.raises(psycopg.errors.CheckViolation, match="transition_allowed"):
            await connection.execute(
                "INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)"
                " VALUES (%s, now(), 'Running', 'Pending', '', '', 1)",
                (workload.id,),
            )


async def test_a_failed_release_is_due_soon_then_later_and_never_after_its_claim(
    leader: Leader, database: str
) -> None:
    (workload,) = await leader.allocate("lammps")
    waits = []
    for _ in range(5):
        await _due(database)
        assert len(await leader.store.claim_releases(leader.epoch, 10, 3.0)) == 1
        assert await leader.store.retry_releases_soon(leader.epoch, [_jobid(workload)]) == [workload.jobid]
        at = await leader.store.next_release_at()
        assert at is not None
        waits.append((at - await leader.store.now()).total_seconds())
    assert waits == [pytest.approx(1, abs=0.5), pytest.approx(2, abs=0.5), *[pytest.approx(3, abs=0.5)] * 3]
    await leader.store.mark_released(leader.epoch, [_jobid(workload)])
    assert await leader.store.retry_releases_soon(leader.epoch, [_jobid(workload)]) == []
