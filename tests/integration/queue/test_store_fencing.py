from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, cast

import psycopg
import pytest
from support.queue_records import START, Leader, a_requeue, described

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.changes import Ending, Eviction, ReasonChange, Replacement, SlotWrites, TakenSlot
from fluxqueue.queue.model.records import (
    Epoch,
    FluxionJobId,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.store import Database, DatabaseUnavailable, StaleLeader, Store
from fluxqueue.queue.store.rows import Row
from fluxqueue.queue.store.transactions import Statement


@dataclass(frozen=True)
class There:
    """The rows that each method can change."""

    pending: Workload
    allocated: Workload
    cancelled: Workload


LATER = START + timedelta(days=36500)


Change = Callable[[Leader, There], Awaitable[object]]


def _jobid(workload: Workload) -> FluxionJobId:
    assert workload.jobid is not None
    return workload.jobid


async def _grant(leader: Leader, there: There) -> object:
    return await leader.store.grant(leader.epoch, [await leader.grant_for(there.pending)])


async def _replace(leader: Leader, there: There) -> object:
    left = Replacement(
        replaced=there.allocated.id, replacement=there.pending.id, state=State.FAILED, outcome=Outcome.FAILED
    )
    return await leader.store.replace(leader.epoch, [left])


CHANGES: dict[str, Change] = {
    "upsert": lambda by, there: by.store.upsert(by.epoch, [described("another")]),
    "set_reasons": lambda by, there: by.store.set_reasons(
        by.epoch, [ReasonChange(workload=there.pending.id, reason=Reason.HELD, message="")]
    ),
    "set_requeue_states": lambda by, there: by.store.set_requeue_states(
        by.epoch, {there.pending.id: RequeueState(starts=1)}
    ),
    "grant": _grant,
    "skip_jobids": lambda by, there: by.store.skip_jobids(by.epoch, FluxionJobId(10**9)),
    "claim_releases": lambda by, there: by.store.claim_releases(by.epoch, 1, 60.0),
    "void_claims": lambda by, there: by.store.void_claims(by.epoch),
    "mark_released": lambda by, there: by.store.mark_released(by.epoch, [_jobid(there.allocated)]),
    "mark_release_failed": lambda by, there: by.store.mark_release_failed(
        by.epoch, _jobid(there.allocated), "503"
    ),
    "retry_releases": lambda by, there: by.store.retry_releases(by.epoch, [_jobid(there.allocated)]),
    "retry_releases_soon": lambda by, there: by.store.retry_releases_soon(
        by.epoch, [_jobid(there.allocated)]
    ),
    "move_ends": lambda by, there: by.store.move_ends(by.epoch, [(_jobid(there.allocated), START)]),
    "replace": _replace,
    "resubmit": lambda by, there: by.store.resubmit(by.epoch, [there.cancelled.uid]),
    "reserve_nodes": lambda by, there: by.store.reserve_nodes(by.epoch, {"uid-1": ["n1"]}, ["uid-2"]),
    "charge_accounts": lambda by, there: by.store.charge_accounts(by.epoch, 3600.0, {"cpu": 1.0}),
    "charge_users": lambda by, there: by.store.charge_users(by.epoch, 3600.0, {"cpu": 1.0}, ["physics"]),
    "reserve": lambda by, there: by.store.reserve(by.epoch, [], [there.allocated.id]),
    "take_slots": lambda by, there: by.store.take_slots(
        by.epoch, [TakenSlot(_jobid(there.allocated), 0, "pod-a", "a")]
    ),
    "vacate_slots": lambda by, there: by.store.vacate_slots(
        by.epoch, [(_jobid(there.allocated), 0, "pod-a")]
    ),
    "end_slots": lambda by, there: by.store.end_slots(
        by.epoch, [(_jobid(there.allocated), 0), (_jobid(there.allocated), 1)]
    ),
    "write_slots": lambda by, there: by.store.write_slots(
        by.epoch, SlotWrites(started=[there.allocated.id], ended=[(_jobid(there.allocated), 0)])
    ),
    "mark_started": lambda by, there: by.store.mark_started(by.epoch, [there.allocated.id]),
    "mark_draining": lambda by, there: by.store.mark_draining(by.epoch, [there.allocated.id]),
    "evict": lambda by, there: by.store.evict(
        by.epoch, [Eviction(workload=there.allocated.id, reason=Reason.PREEMPTED, message="")]
    ),
    "finish": lambda by, there: by.store.finish(
        by.epoch, [Ending(there.allocated.id, State.FAILED, Outcome.FAILED, "")]
    ),
    "requeue": lambda by, there: by.store.requeue(by.epoch, [a_requeue(there.allocated.id)]),
    "forget": lambda by, there: by.store.forget(by.epoch, LATER),
    "prune_allocations": lambda by, there: by.store.prune_allocations(by.epoch, LATER),
    "prune_transitions": lambda by, there: by.store.prune_transitions(by.epoch, [there.cancelled.id], LATER),
    "prune_history": lambda by, there: by.store.prune_history(by.epoch, [there.cancelled.id]),
    "expire_months": lambda by, there: by.store.expire_months(by.epoch, 0, drop=True),
    "requeue_tasks": lambda by, there: by.store.requeue_tasks(by.epoch, [1]),
    "hold": lambda by, there: by.store.hold(by.epoch),
    "keep_clock": lambda by, there: by.store.keep_clock(by.epoch, datetime.now(UTC)),
}


def test_every_method_that_writes_is_in_this_test() -> None:
    fenced = {
        name
        for name, method in inspect.getmembers(Store, inspect.iscoroutinefunction)
        if not name.startswith("_") and "epoch" in inspect.signature(method).parameters
    }
    assert fenced == set(CHANGES)


async def _contents(database: str) -> list[object]:
    """Return all rows of the queue, as text."""
    of_work = (
        "workload",
        "allocation",
        "slot",
        "transition",
        "history",
        "ended_workload",
        "ended_allocation",
    )
    tables = (*of_work, "leader", "fair_share", "account_day", "reserved_nodes")
    async with await psycopg.AsyncConnection.connect(database) as connection:
        return [
            await (
                await connection.execute(f"SELECT t::text FROM fluxqueue.{table} t ORDER BY 1".encode())
            ).fetchall()
            for table in tables
        ]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_leader_that_was_replaced_changes_nothing(
    store: Store, epoch: Epoch, database: str, change: str
) -> None:
    old = Leader(store, epoch)
    (pending, cancelled), (allocated,) = (
        await old.submit("pending", "cancelled"),
        await old.allocate("allocated"),
    )
    await store.finish(epoch, [Ending(cancelled.id, State.CANCELLED, Outcome.CANCELLED, "")])
    await store.claim_releases(epoch, 1, 60.0)
    await store.mark_release_failed(epoch, _jobid(allocated), "503")
    await store.acquire_leadership("replica-1")
    before = await _contents(database)
    with pytest.raises(StaleLeader, match=f"epoch {epoch} is not the newest"):
        await CHANGES[change](old, There(pending, allocated, cancelled))
    assert await _contents(database) == before


async def test_an_epoch_that_was_never_issued_is_refused(store: Store) -> None:
    with pytest.raises(StaleLeader):
        await store.mark_started(Epoch(1), [])


async def test_each_new_leader_raises_the_epoch_above_all_shards(store: Store) -> None:
    taken = [
        await store.acquire_leadership(f"replica-{n}", shard)
        for n, shard in enumerate(["default", "gpu", "default", "gpu"])
    ]
    assert taken == sorted(set(taken))
    for epoch in taken[2:]:
        await store.hold(epoch)
    for epoch in taken[:2]:
        with pytest.raises(StaleLeader):
            await store.hold(epoch)


async def test_shards_do_not_fence_each_other(store: Store) -> None:
    default, gpu = (
        await store.acquire_leadership("replica-0"),
        await store.acquire_leadership("replica-0", "gpu"),
    )
    await store.upsert(default, [described("a")])
    await store.upsert(gpu, [described("b")])
    assert len(await store.pending()) == 2


async def test_an_epoch_is_not_older_than_its_time_even_on_a_restored_database(store: Store) -> None:
    assert await store.acquire_leadership("replica-0") >= int((await store.now()).timestamp()) - 1


async def test_of_concurrent_new_leaders_one_remains(store: Store) -> None:
    epochs = await asyncio.gather(*(store.acquire_leadership(f"replica-{n}") for n in range(8)))
    assert len(set(epochs)) == 8
    newest = max(epochs)
    for epoch in epochs:
        if epoch == newest:
            await store.mark_started(epoch, [])
        else:
            with pytest.raises(StaleLeader):
                await store.mark_started(epoch, [])


async def test_a_new_leader_waits_for_a_change_in_progress_and_reads_it(
    store: Store, epoch: Epoch, database: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database) as old:
        await old.execute("SELECT fluxqueue.hold_epoch(%s)", (epoch,))
        take_over = asyncio.create_task(store.acquire_leadership("replica-1"))
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as watcher:
            await _until(watcher, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        late = asyncio.create_task(store.upsert(epoch, [described("too-late")]))
        assert not take_over.done()
        await old.execute(
            "INSERT INTO fluxqueue.transition (workload, at, after, reason, detail, epoch)"
            " VALUES (0, clock_timestamp(), 'Pending', '', 'last word', %s)",
            [epoch],
        )
        await old.commit()
    newest = await asyncio.wait_for(take_over, 60)
    with pytest.raises(StaleLeader):
        await asyncio.wait_for(late, 60)
    assert newest > epoch
    assert [each.detail for each in await store.history(WorkloadId(0))] == ["last word"]
    assert await store.pending() == []


async def _until(watcher: psycopg.AsyncConnection, query: LiteralString) -> None:
    """Wait until a query returns a row.
    It reads the state of the server, which has no notification for it.
    """
    async with asyncio.timeout(60):
        while True:
            if await (await watcher.execute(query)).fetchall():
                return
            await asyncio.sleep(0.01)


async def test_two_leaders_that_grant_at_once_store_each_workload_once(store: Store, epoch: Epoch) -> None:
    first = Leader(store, epoch)
    workloads = await first.submit(*(f"job-{number}" for number in range(40)))

    async def grant_all(leader: Leader) -> int:
        stored = 0
        with suppress(StaleLeader):
            for workload in workloads:
                stored += len(
                    (await store.grant(leader.epoch, [await leader.grant_for(workload)])).allocations
                )
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


async def test_a_connection_killed_in_a_transaction_leaves_nothing_behind(
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
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND wait_event_type = 'Lock'",
            )
        with pytest.raises(DatabaseUnavailable, match="went away"):
            await asyncio.wait_for(doomed, 60)
        await blocker.rollback()
    assert await store.live_allocations() == []
    assert (await store.workloads([workload.id]))[0].state is State.PENDING
    assert (await store.grant(epoch, [grant])).changed == [workload.id]


class _BrokenAtTheEnd(Store):
    """Sends the statements of a grant, and then one whose parameter is `last`."""

    last: object = None

    async def _write(self, epoch: Epoch, *statements: Statement) -> list[list[Row]]:
        return await super()._write(epoch, *statements, Statement("lock_workloads", {"ids": self.last}))


async def test_what_is_sent_before_a_failure_of_the_client_is_not_committed(
    pool: Database, store: Store, epoch: Epoch
) -> None:
    leader = Leader(store, epoch)
    (workload,) = await leader.submit("victim")
    broken, grant = _BrokenAtTheEnd(pool), await leader.grant_for(workload)
    broken.last = object()
    with pytest.raises(psycopg.ProgrammingError, match="cannot adapt"):
        await broken.grant(epoch, [grant])
    assert await store.live_allocations() == []
    assert (await store.workloads([workload.id]))[0].state is State.PENDING


async def test_a_leader_that_was_replaced_is_told_so_before_it_has_stopped(
    pool: Database, store: Store, epoch: Epoch
) -> None:
    told: list[str] = []
    former = Store(pool, on_stale=lambda: told.append("stale"))
    await former.upsert(epoch, [described("a")])
    await store.acquire_leadership("replica-1")
    assert told == []
    with pytest.raises(StaleLeader):
        await former.upsert(epoch, [described("b")])
    assert told == ["stale"]


async def test_what_is_sent_before_a_cancellation_is_not_committed(
    pool: Database, store: Store, epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader(store, epoch)
    (workload,) = await leader.submit("victim")
    broken, grant = _BrokenAtTheEnd(pool), await leader.grant_for(workload)
    execute: Any = psycopg.AsyncCursor.execute

    async def cancelled_at_the_last(
        self: object, query: object, parameters: object = None, **options: object
    ) -> object:
        if cast("Any", parameters or {}).get("ids") == "cancel":
            raise asyncio.CancelledError
        return await execute(self, query, parameters, **options)

    broken.last = "cancel"
    monkeypatch.setattr(psycopg.AsyncCursor, "execute", cancelled_at_the_last)
    with pytest.raises(asyncio.CancelledError):
        await broken.grant(epoch, [grant])
    assert await store.live_allocations() == []
    assert (await store.workloads([workload.id]))[0].state is State.PENDING


async def test_an_unfinished_change_of_a_frozen_leader_does_not_block_the_next(
    store: Store, epoch: Epoch, database: str
) -> None:
    """No time-out of idle transactions applies between two messages of a pipeline."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as frozen:
        await frozen.execute("BEGIN")
        await frozen.execute("SELECT fluxqueue.hold_epoch(%s)", [epoch])
        await asyncio.sleep(0.3)
        assert await asyncio.wait_for(store.acquire_leadership("replica-1", stalled_s=0.2), 60) > epoch
        with pytest.raises(psycopg.OperationalError):
            await frozen.execute("COMMIT")
