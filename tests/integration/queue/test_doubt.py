"""The leader's memory after Postgres went away under a change, and against a Postgres that lost the last ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import psycopg
import pytest
from queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.objects import Node
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.kube.store import Store as ObjectStore
from fluxqueue.kube.transport import Api
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.controllers.doctor import Doctor
from fluxqueue.queue.controllers.foreign import ForeignPods
from fluxqueue.queue.controllers.sweeper import Sweeper
from fluxqueue.queue.records import FluxionJobId
from fluxqueue.queue.store import Database, DatabaseUnavailable, Store
from fluxqueue.queue.store.rows import Row
from fluxqueue.queue.store.transactions import Statement
from fluxqueue.queue.tasks import ControlTask, Trigger

LOST = """
DELETE FROM fluxqueue.slot;
DELETE FROM fluxqueue.allocation;
DELETE FROM fluxqueue.transition WHERE after = 'Allocated';
UPDATE fluxqueue.workload SET state = 'Pending', jobid = NULL, hosts = '', allocated_at = NULL;
"""
"""As a Postgres is that took over from one whose last commits had not reached it."""


class UnheardStore(Store):
    """Commits, and then the connection breaks before anybody hears of it: once, when told so."""

    deaf = False

    async def _transaction(self, *statements: Statement) -> list[list[Row]]:
        rows = await super()._transaction(*statements)
        if self.deaf and len(statements) > 1:
            self.deaf = False
            raise DatabaseUnavailable("the connection broke")
        return rows


class Looker:
    """Counts how often it was told to trust nothing."""

    def __init__(self) -> None:
        self.looked = asyncio.Event()

    def look_at_everything(self) -> None:
        self.looked.set()


@pytest.fixture
async def store(pool: Database) -> UnheardStore:
    return UnheardStore(pool)


@pytest.fixture
async def bench(store: UnheardStore) -> AsyncIterator[Bench]:
    nodes: ObjectStore[Node] = ObjectStore()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        yield made
    await matcher.close()


def a_sweeper(bench: Bench, looker: Looker) -> Sweeper:
    api = cast("Api", None)  # nothing here is read from a cluster or written to it
    caches = Caches(api)
    caches.nodes.replace(bench.nodes.list())
    doctor = Doctor(api, caches, bench.ledger, bench.graph, ForeignPods(ObjectStore(), bench.ledger))

    async def note(task: ControlTask) -> None:
        bench.asked.append(task)

    async def adopt() -> None:
        pass

    return Sweeper(bench.ledger, doctor, Trigger(note), (looker,), adopt, retention_s=3600)


@asynccontextmanager
async def watched(bench: Bench) -> AsyncIterator[Looker]:
    """Somebody watches whether the memory is in doubt."""
    looker = Looker()
    watching = asyncio.create_task(a_sweeper(bench, looker).watch_memory())
    try:
        yield looker
    finally:
        watching.cancel()


async def agree(bench: Bench) -> bool:
    stored, remembered = await bench.ledger.compared()
    return (
        sorted(stored.workloads, key=lambda each: each.id) == sorted(remembered.workloads, key=lambda each: each.id)
        and {each.jobid: each.slots for each in stored.allocations} == {each.jobid: each.slots for each in remembered.allocations}
        and all(
            (one.released_at is None) == (other.released_at is None)
            for one, other in zip(stored.allocations, remembered.allocations, strict=True)
        )
    )


async def test_a_grant_that_was_committed_and_not_heard_of_is_known_and_released(bench: Bench, store: UnheardStore) -> None:
    await bench.submit(job("a", 2, "8"))
    async with watched(bench) as looker:
        store.deaf = True
        with pytest.raises(DatabaseUnavailable):
            await bench.scheduler.cycle()
        await asyncio.wait_for(looker.looked.wait(), 30)
        assert await agree(bench)
        assert bench.row("a").state is State.ALLOCATED
        await bench.cycle()
        assert await bench.held() == {bench.row("a").jobid: {"n0": 1, "n1": 1}}
        assert ControlTask.RELEASE in bench.asked


async def test_a_note_of_a_release_that_was_committed_and_not_heard_of_is_known(bench: Bench, store: UnheardStore) -> None:
    """Else its pods would never be judged: the table asks for no second release."""
    await bench.submit(job("a", 1, "8"))
    await bench.cycle()
    jobid = FluxionJobId(bench.row("a").jobid or 0)
    async with watched(bench) as looker:
        store.deaf = True
        with pytest.raises(DatabaseUnavailable):
            await bench.ledger.released([jobid])
        await asyncio.wait_for(looker.looked.wait(), 30)
        allocation = bench.ledger.holding(jobid)
        assert allocation is not None
        assert allocation.released_at is not None
        assert await agree(bench)


async def test_a_change_that_was_broken_off_leaves_the_memory_in_doubt(bench: Bench) -> None:
    await bench.submit(job("a", 1, "8"))
    await bench.cycle()
    change = asyncio.create_task(bench.ledger.released([FluxionJobId(bench.row("a").jobid or 0)]))
    await asyncio.sleep(0)
    change.cancel()
    await asyncio.gather(change, return_exceptions=True)
    assert bench.ledger.doubted.is_set()
    await bench.ledger.load()
    assert not bench.ledger.doubted.is_set()


@pytest.mark.parametrize("told", [True, False], ids=["Postgres was seen to be away", "only the sweep can see it"])
async def test_grants_that_a_former_postgres_took_along_are_made_anew(bench: Bench, database: str, told: bool) -> None:
    await bench.submit(job("a", 2, "8"))
    await bench.cycle()
    before = bench.row("a").jobid
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute(LOST)
    if told:
        async with watched(bench) as looker:
            bench.ledger.doubt()
            await asyncio.wait_for(looker.looked.wait(), 30)
    else:
        await a_sweeper(bench, Looker()).sweep()
    assert await agree(bench)
    assert bench.row("a").state is State.PENDING
    await bench.cycle()
    again = bench.row("a")
    assert again.state is State.ALLOCATED
    assert again.jobid != before
    assert await bench.held() == {again.jobid: {"n0": 1, "n1": 1}}
