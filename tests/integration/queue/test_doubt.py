"""The ledger after the connection to Postgres was lost during a change,
and on a Postgres that lost the last changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import psycopg
import pytest
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.model.records import FluxionJobId
from fluxqueue.queue.recovery.doctor import Doctor
from fluxqueue.queue.recovery.sweep import Sweeper
from fluxqueue.queue.store import Database, DatabaseUnavailable, Store
from fluxqueue.queue.store.rows import Row
from fluxqueue.queue.store.transactions import Statement
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

LOST = """
DELETE FROM fluxqueue.slot;
DELETE FROM fluxqueue.allocation;
DELETE FROM fluxqueue.transition WHERE after = 'Allocated';
UPDATE fluxqueue.workload SET state = 'Pending', jobid = NULL, hosts = '', allocated_at = NULL;
"""
"""Makes the tables like those of a replica that did not get the last commits before a failover."""


class UnheardStore(Store):
    """Commits, and loses the connection before the answer, once, if this is set."""

    deaf = False

    async def _transaction(self, *statements: Statement) -> list[list[Row]]:
        rows = await super()._transaction(*statements)
        if self.deaf and len(statements) > 1:
            self.deaf = False
            raise DatabaseUnavailable("the connection broke")
        return rows


class Resyncable:
    """Counts its resyncs."""

    def __init__(self) -> None:
        self.resynced = asyncio.Event()

    def resync(self) -> None:
        self.resynced.set()


@pytest.fixture
async def store(pool: Database) -> UnheardStore:
    return UnheardStore(pool)


@pytest.fixture
async def bench(store: UnheardStore) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        yield made
    await matcher.close()


def a_sweeper(bench: Bench, resyncable: Resyncable) -> Sweeper:
    api = cast("Api", None)  # this test reads and writes no cluster
    caches = Caches(api)
    caches.nodes.replace(bench.nodes.list())
    doctor = Doctor(api, caches, bench.ledger, bench.graph, ForeignPods(ObjectCache(), bench.ledger))

    def note(task: ControlTask) -> None:
        bench.asked.append(task)

    async def adopt() -> None:
        pass

    async def prune() -> None:
        pass

    return Sweeper(bench.ledger, doctor, Trigger(note), (resyncable,), adopt, prune, prune)


@asynccontextmanager
async def watched(bench: Bench) -> AsyncIterator[Resyncable]:
    """Run the task that checks the ledger for unknown changes."""
    resyncable = Resyncable()
    watching = asyncio.create_task(a_sweeper(bench, resyncable).watch_memory())
    try:
        yield resyncable
    finally:
        watching.cancel()


async def agree(bench: Bench) -> bool:
    stored, remembered = await bench.ledger.compared()
    return (
        sorted(stored.workloads, key=lambda each: each.id)
        == sorted(remembered.workloads, key=lambda each: each.id)
        and {each.jobid: each.slots for each in stored.allocations}
        == {each.jobid: each.slots for each in remembered.allocations}
        and all(
            (one.released_at is None) == (other.released_at is None)
            for one, other in zip(stored.allocations, remembered.allocations, strict=True)
        )
    )


async def test_a_grant_committed_without_an_answer_is_loaded_and_released(
    bench: Bench, store: UnheardStore
) -> None:
    await bench.submit(job("a", 2, "8"))
    async with watched(bench) as resyncable:
        store.deaf = True
        with pytest.raises(DatabaseUnavailable):
            await bench.scheduler.cycle()
        await asyncio.wait_for(resyncable.resynced.wait(), 60)
        assert await agree(bench)
        assert bench.row("a").state is State.ALLOCATED
        await bench.cycle()
        assert await bench.held() == {bench.row("a").jobid: {"n0": 1, "n1": 1}}
        assert ControlTask.RELEASE in bench.asked


async def test_a_release_recorded_without_an_answer_is_loaded(bench: Bench, store: UnheardStore) -> None:
    """Otherwise its pods would never be checked, because the table requests no second release."""
    await bench.submit(job("a", 1, "8"))
    await bench.cycle()
    jobid = FluxionJobId(bench.row("a").jobid or 0)
    async with watched(bench) as resyncable:
        store.deaf = True
        with pytest.raises(DatabaseUnavailable):
            await bench.ledger.mark_released([jobid])
        await asyncio.wait_for(resyncable.resynced.wait(), 60)
        allocation = bench.ledger.allocation_of_job(jobid)
        assert allocation is not None
        assert allocation.released_at is not None
        assert await agree(bench)


async def test_a_cancelled_change_leaves_the_ledger_in_doubt(bench: Bench, database: str) -> None:
    await bench.submit(job("a", 1, "8"))
    await bench.cycle()
    async with await psycopg.AsyncConnection.connect(database) as blocker:
        await blocker.execute("LOCK TABLE fluxqueue.allocation IN ACCESS EXCLUSIVE MODE")
        change = asyncio.create_task(bench.ledger.mark_released([FluxionJobId(bench.row("a").jobid or 0)]))
        async with asyncio.timeout(60):
            while not await (await blocker.execute("SELECT 1 FROM pg_locks WHERE NOT granted")).fetchall():
                await asyncio.sleep(0.01)
        change.cancel()
        await asyncio.gather(change, return_exceptions=True)
    assert bench.ledger.in_doubt.is_set()
    await bench.ledger.load()
    assert not bench.ledger.in_doubt.is_set()


@pytest.mark.parametrize(
    "told", [True, False], ids=["Postgres was seen to be away", "only the sweep can see it"]
)
async def test_grants_lost_in_a_failover_are_repeated(bench: Bench, database: str, told: bool) -> None:
    await bench.submit(job("a", 2, "8"))
    await bench.cycle()
    before = bench.row("a").jobid
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute(LOST)
    if told:
        async with watched(bench) as resyncable:
            bench.ledger.mark_in_doubt()
            await asyncio.wait_for(resyncable.resynced.wait(), 60)
    else:
        await a_sweeper(bench, Resyncable()).sweep()
    assert await agree(bench)
    assert bench.row("a").state is State.PENDING
    await bench.cycle()
    again = bench.row("a")
    assert again.state is State.ALLOCATED
    assert again.jobid != before
    assert await bench.held() == {again.jobid: {"n0": 1, "n1": 1}}
