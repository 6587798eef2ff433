from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import LiteralString

import psycopg
import pytest
from queue_records import START, Leader, found, put_back

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.records import Epoch, FluxionJobId, Inheritance, ReasonChange, TakeBack, Workload
from fluxqueue.queue.store import Database, DatabaseUnavailable, QueueRow, StaleLeader, Store


@dataclass(frozen=True)
class There:
    """What is there to be changed."""

    pending: Workload
    allocated: Workload
    cancelled: Workload


Change = Callable[[Leader, There], Awaitable[object]]


def _jobid(workload: Workload) -> FluxionJobId:
    assert workload.jobid is not None
    return workload.jobid


async def _grant(leader: Leader, there: There) -> object:
    return await leader.store.grant(leader.epoch, [await leader.grant_for(there.pending)])


async def _inherit(leader: Leader, there: There) -> object:
    left = Inheritance(gone=there.allocated.id, heir=there.pending.id, state=State.FAILED, outcome=Outcome.FAILED)
    return await leader.store.inherit(leader.epoch, [left])


CHANGES: dict[str, Change] = {
    "upsert": lambda by, there: by.store.upsert(by.epoch, [found("another")]),
    "set_reasons": lambda by, there: by.store.set_reasons(
        by.epoch, [ReasonChange(workload=there.pending.id, reason=Reason.HELD, message="")]
    ),
    "grant": _grant,
    "skip_jobids": lambda by, there: by.store.skip_jobids(by.epoch, FluxionJobId(10**9)),
    "claim_releases": lambda by, there: by.store.claim_releases(by.epoch, 1, 60.0),
    "void_claims": lambda by, there: by.store.void_claims(by.epoch),
    "released": lambda by, there: by.store.released(by.epoch, [_jobid(there.allocated)]),
    "release_failed": lambda by, there: by.store.release_failed(by.epoch, _jobid(there.allocated), "503"),
    "release_again": lambda by, there: by.store.release_again(by.epoch, [_jobid(there.allocated)]),
    "release_soon": lambda by, there: by.store.release_soon(by.epoch, [_jobid(there.allocated)]),
    "move_ends": lambda by, there: by.store.move_ends(by.epoch, [(_jobid(there.allocated), START)]),
    "inherit": _inherit,
    "take_up_again": lambda by, there: by.store.take_up_again(by.epoch, [there.cancelled.uid]),
    "plan": lambda by, there: by.store.plan(by.epoch, [], [there.allocated.id]),
    "take_slots": lambda by, there: by.store.take_slots(by.epoch, [(_jobid(there.allocated), 0, "pod-a", "a")]),
    "vacate_slots": lambda by, there: by.store.vacate_slots(by.epoch, [(_jobid(there.allocated), 0, "pod-a")]),
    "end_slots": lambda by, there: by.store.end_slots(by.epoch, [(_jobid(there.allocated), 0), (_jobid(there.allocated), 1)]),
    "started": lambda by, there: by.store.started(by.epoch, [there.allocated.id]),
    "draining": lambda by, there: by.store.draining(by.epoch, [there.allocated.id]),
    "take_back": lambda by, there: by.store.take_back(
        by.epoch, [TakeBack(workload=there.allocated.id, reason=Reason.PREEMPTED, message="")]
    ),
    "finish": lambda by, there: by.store.finish(by.epoch, [(there.allocated.id, State.FAILED, Outcome.FAILED, "")]),
    "requeue": lambda by, there: by.store.requeue(by.epoch, [put_back(there.allocated.id)]),
    "save_queues": lambda by, there: by.store.save_queues(by.epoch, [QueueRow(name="gpu", generation=1, spec="{}")]),
    "forget": lambda by, there: by.store.forget(by.epoch, START),
    "requeue_tasks": lambda by, there: by.store.requeue_tasks(by.epoch, [1]),
}


def test_every_method_that_changes_something_is_tried() -> None:
    fenced = {
        name
        for name, method in inspect.getmembers(Store, inspect.iscoroutinefunction)
        if not name.startswith("_") and "epoch" in inspect.signature(method).parameters
    }
    assert fenced == set(CHANGES)


async def _contents(database: str) -> list[object]:
    """All our rows, as text."""
    tables = ("workload", "allocation", "slot", "transition", "queue", "leader", "history")
    async with await psycopg.AsyncConnection.connect(database) as connection:
        return [
            await (await connection.execute(f"SELECT t::text FROM fluxqueue.{table} t ORDER BY 1".encode())).fetchall() for table in tables
        ]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_leader_that_was_replaced_changes_nothing(store: Store, epoch: Epoch, database: str, change: str) -> None:
    old = Leader(store, epoch)
    (pending, cancelled), (allocated,) = await old.submit("pending", "cancelled"), await old.allocate("allocated")
    await store.finish(epoch, [(cancelled.id, State.CANCELLED, Outcome.CANCELLED, "")])
    await store.claim_releases(epoch, 1, 60.0)
    await store.release_failed(epoch, _jobid(allocated), "503")
    await store.acquire_leadership("replica-1")
    before = await _contents(database)
    with pytest.raises(StaleLeader, match=f"epoch {epoch} is not the newest"):
        await CHANGES[change](old, There(pending, allocated, cancelled))
    assert await _contents(database) == before


async def test_an_epoch_nobody_was_given_is_refused(store: Store) -> None:
    with pytest.raises(StaleLeader):
        await store.started(Epoch(1), [])


async def test_each_take_over_raises_the_epoch_above_all_shards(store: Store) -> None:
    taken = [await store.acquire_leadership(f"replica-{n}", shard) for n, shard in enumerate(["default", "gpu", "default", "gpu"])]
    assert taken == sorted(set(taken))
    assert (await store.current_epoch(), await store.current_epoch("gpu")) == (taken[2], taken[3])
    assert await store.current_epoch("unknown") is None


async def test_shards_do_not_fence_each_other(store: Store) -> None:
    default, gpu = await store.acquire_leadership("replica-0"), await store.acquire_leadership("replica-0", "gpu")
    await store.upsert(default, [found("a")])
    await store.upsert(gpu, [found("b")])
    assert len(await store.pending()) == 2


async def test_an_epoch_is_not_older_than_its_time_even_on_a_restored_database(store: Store) -> None:
    assert await store.acquire_leadership("replica-0") >= int((await store.now()).timestamp()) - 1


async def test_take_overs_at_the_same_moment_leave_one_leader(store: Store) -> None:
    epochs = await asyncio.gather(*(store.acquire_leadership(f"replica-{n}") for n in range(8)))
    assert len(set(epochs)) == 8
    newest = max(epochs)
    assert await store.current_epoch() == newest
    for epoch in epochs:
        if epoch == newest:
            await store.started(epoch, [])
        else:
            with pytest.raises(StaleLeader):
                await store.started(epoch, [])


async def test_a_take_over_waits_for_a_change_under_way_and_then_sees_it(store: Store, epoch: Epoch, database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as old:
        await old.execute("SELECT fluxqueue.hold_epoch(%s)", (epoch,))
        take_over = asyncio.create_task(store.acquire_leadership("replica-1"))
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as watcher:
            await _until(watcher, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        late = asyncio.create_task(store.upsert(epoch, [found("too-late")]))
        assert not take_over.done()
        await old.execute("INSERT INTO fluxqueue.queue (name, generation, spec, saved_at) VALUES ('last word', 1, '{}', clock_timestamp())")
        await old.commit()
    newest = await asyncio.wait_for(take_over, 5)
    with pytest.raises(StaleLeader):
        await asyncio.wait_for(late, 5)
    assert newest > epoch
    assert [queue.name for queue in await store.queues()] == ["last word"]
    assert await store.pending() == []


async def _until(watcher: psycopg.AsyncConnection, query: LiteralString) -> None:
    """Until a query has an answer: what it looks at is in the server, which tells nobody when it changes."""
    async with asyncio.timeout(10):
        while True:
            if await (await watcher.execute(query)).fetchall():
                return
            await asyncio.sleep(0.01)


async def test_two_leaders_that_both_grant_store_each_workload_once(store: Store, epoch: Epoch) -> None:
    first = Leader(store, epoch)
    workloads = await first.submit(*(f"job-{number}" for number in range(40)))

    async def grant_all(leader: Leader) -> int:
        stored = 0
        with suppress(StaleLeader):
            for workload in workloads:
                stored += len(await store.grant(leader.epoch, [await leader.grant_for(workload)]))
                begun.set()
        return stored

    begun = asyncio.Event()

    async def take_over() -> int:
        await begun.wait()
        return await grant_all(Leader(store, await store.acquire_leadership("replica-1")))

    counts = await asyncio.gather(grant_all(first), take_over())
    live = await store.live_allocations()
    assert sum(counts) == len(live) == len({allocation.workload for allocation in live}) == 40
    assert 0 < counts[0] < 40


async def test_a_connection_killed_within_a_transaction_leaves_nothing_and_the_pool_goes_on(
    store: Store, epoch: Epoch, database: str, pool: Database
) -> None:
    leader = Leader(store, epoch)
    (workload,) = await leader.submit("victim")
    grant = await leader.grant_for(workload)
    async with await psycopg.AsyncConnection.connect(database) as blocker:
        await blocker.execute("LOCK TABLE fluxqueue.slot IN ACCESS EXCLUSIVE MODE")
        doomed = asyncio.create_task(store.grant(epoch, [grant]))
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as watcher:
            await _until(
                watcher,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
        with pytest.raises(DatabaseUnavailable, match="went away"):
            await asyncio.wait_for(doomed, 10)
        await blocker.rollback()
    assert await store.live_allocations() == []
    assert (await store.workloads([workload.id]))[0].state is State.PENDING
    assert await store.grant(epoch, [grant]) == [workload.id]
