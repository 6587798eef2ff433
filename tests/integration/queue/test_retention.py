from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from support.queue_records import Leader, a_requeue, described

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import Epoch, Workload
from fluxqueue.queue.recovery.pruner import Pruner
from fluxqueue.queue.store import Store
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.store.queries import QUERIES

DAY = timedelta(days=1)


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


@pytest.fixture
async def connection(database: str) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as opened:
        yield opened


async def _rows(connection: psycopg.AsyncConnection, table: str) -> int:
    row = await (await connection.execute(f"SELECT count(*) FROM fluxqueue.{table}".encode())).fetchone()
    assert row is not None
    return int(row[0])


async def _end(leader: Leader, *workloads: Workload, state: State = State.COMPLETED) -> None:
    outcome = Outcome.SUCCEEDED if state is State.COMPLETED else Outcome.CANCELLED
    await leader.store.finish(
        leader.epoch, [Ending(workload.id, state, outcome, "") for workload in workloads]
    )


def a_pruner(
    leader: Leader, *, exists: Callable[[str], bool] = lambda _uid: False, later: timedelta = DAY
) -> Pruner:
    """Return a pruner with a retention of a day, whose clock is ahead by ``later``."""
    ledger = Ledger(leader.store, leader.epoch, lambda: datetime.now(UTC) + later + timedelta(seconds=1))
    return Pruner(ledger, exists, retention_s=DAY.total_seconds())


async def test_work_that_ended_before_the_retention_is_removed_from_all_tables(
    leader: Leader, connection: psycopg.AsyncConnection
) -> None:
    ended = await leader.allocate("a", "b")
    (cancelled,) = await leader.submit("c")
    await _end(leader, *ended)
    await _end(leader, cancelled, state=State.CANCELLED)
    await a_pruner(leader).prune()
    assert {
        table: await _rows(connection, table)
        for table in ("workload", "allocation", "slot", "transition", "history")
    } == {
        "workload": 0,
        "allocation": 0,
        "slot": 0,
        "transition": 0,
        "history": 0,
    }


async def test_work_that_ended_within_the_retention_keeps_all_its_history(leader: Leader) -> None:
    (ended,) = await leader.allocate("a")
    await _end(leader, ended)
    await a_pruner(leader, later=DAY / 2).prune()
    assert ended.jobid is not None
    assert len(await leader.store.allocations([ended.jobid])) == 1
    assert len(await leader.store.history(ended.id)) == 3
    (kept,) = await leader.store.workloads([ended.id])
    assert kept.jobspec != ""


async def test_pending_and_live_work_is_never_pruned(
    leader: Leader, connection: psycopg.AsyncConnection
) -> None:
    (pending,) = await leader.submit("waits")
    allocated, running, draining = await leader.allocate("allocated", "running", "draining")
    await leader.store.mark_started(leader.epoch, [running.id, draining.id])
    await leader.store.mark_draining(leader.epoch, [draining.id])
    tables = ("workload", "allocation", "slot", "transition")
    before = {table: await _rows(connection, table) for table in tables}
    await a_pruner(leader, later=400 * DAY).prune()
    assert {table: await _rows(connection, table) for table in tables} == before
    assert [each.id for each in await leader.store.pending()] == [pending.id]
    assert [each.id for each in await leader.store.live_workloads()] == [
        allocated.id,
        running.id,
        draining.id,
    ]


async def test_a_workload_that_has_not_ended_loses_allocations_freed_long_ago(leader: Leader) -> None:
    (workload,) = await leader.allocate("often-taken-back")
    former = workload.jobid
    await leader.store.mark_draining(leader.epoch, [workload.id])
    await leader.store.requeue(leader.epoch, [a_requeue(workload.id)])
    (waiting,) = await leader.store.workloads([workload.id])
    grant = await leader.grant_for(waiting)
    await leader.store.grant(leader.epoch, [grant])
    await a_pruner(leader).prune()
    assert former is not None
    assert await leader.store.allocations([former]) == []
    (held,) = await leader.store.live_allocations()
    assert (held.jobid, len(held.slots)) == (grant.jobid, 2)


async def test_work_requeued_many_times_keeps_the_transitions_of_the_retention(leader: Leader) -> None:
    (workload,) = await leader.allocate("refused-by-its-quota")
    for _ in range(12):
        await leader.store.requeue(leader.epoch, [a_requeue(workload.id)])
        (waiting,) = await leader.store.workloads([workload.id])
        await leader.store.grant(leader.epoch, [await leader.grant_for(waiting)])
    everything = await leader.store.history(workload.id)
    ledger = Ledger(leader.store, leader.epoch, lambda: everything[-4].at + DAY)
    await ledger.load()
    await Pruner(ledger, lambda _uid: True, retention_s=DAY.total_seconds()).prune()
    assert await leader.store.history(workload.id) == everything[-4:]
    (lives,) = await leader.store.live_workloads()
    assert (lives.id, lives.requeues) == (workload.id, 12)


async def test_a_forgotten_workload_is_in_history_and_never_inserted_again(leader: Leader) -> None:
    old, kept = await leader.allocate("old", "kept")
    await _end(leader, old)
    pruner = a_pruner(leader, exists=lambda uid: uid == "uid-old")
    await pruner.prune()
    await pruner.prune()
    assert [count.workloads for count in await leader.store.counts()] == [1]
    assert old.jobid is not None
    assert await leader.store.allocations([old.jobid]) == []
    (remembered,) = await leader.store.workloads_by_uid(["uid-old"])
    assert (remembered.id, remembered.jobspec, remembered.outcome, remembered.hosts) == (
        old.id,
        "",
        Outcome.SUCCEEDED,
        "node-[1-2]",
    )
    assert [line.after for line in await leader.store.history(old.id)] == [
        State.PENDING,
        State.ALLOCATED,
        State.COMPLETED,
    ]
    assert await leader.store.upsert(leader.epoch, [described("old")]) == Delta()
    assert [workload.id for workload in await leader.store.live_workloads()] == [kept.id]


async def test_history_is_deleted_with_its_object_while_many_others_exist(
    leader: Leader, connection: psycopg.AsyncConnection
) -> None:
    names = [f"job-{number}" for number in range(1_300)]
    ended = await leader.submit(*names)
    await _end(leader, *ended)
    existing = {f"uid-job-{number}" for number in range(1_200)} | {"uid-job-1250"}
    pruner = a_pruner(leader, exists=lambda uid: uid in existing)
    await pruner.prune()
    assert await _rows(connection, "history") == len(existing)
    assert await _rows(connection, "transition") == 2 * len(existing)
    existing.remove("uid-job-7")
    await pruner.prune()
    assert await leader.store.workloads_by_uid(["uid-job-7"]) == []
    assert await _rows(connection, "history") == len(existing)


async def test_a_cancelled_job_resumed_after_the_retention_waits_again(leader: Leader) -> None:
    (cancelled,) = await leader.submit("resumed", jobspec='{"version": 9999, "resources": []}')
    await _end(leader, cancelled, state=State.CANCELLED)
    await a_pruner(leader, exists=lambda _uid: True).prune()
    (again,) = (await leader.store.resubmit(leader.epoch, [cancelled.uid])).workloads
    assert (again.id, again.state, again.jobspec) == (cancelled.id, State.PENDING, cancelled.jobspec)
    assert [each.id for each in await leader.store.pending()] == [cancelled.id]


async def test_a_gang_with_more_slots_than_one_transaction_removes_takes_several(
    leader: Leader, connection: psycopg.AsyncConnection
) -> None:
    (wide,) = await leader.allocate("wide", hosts=[f"node-{rank}" for rank in range(130)])
    await _end(leader, wide)
    before = await leader.store.now() + timedelta(seconds=1)
    gone = [await leader.store.prune_allocations(leader.epoch, before, slots=50) for _ in range(3)]
    assert gone == [(0, 50), (0, 50), (1, 30)]
    assert await leader.store.forget(leader.epoch, before) == 1
    transitions = [await leader.store.prune_history(leader.epoch, [wide.id], transitions=2) for _ in range(2)]
    assert transitions == [([], 2), ([wide.id], 1)]
    assert await _rows(connection, "transition") == 0


async def test_a_workload_with_an_allocation_left_is_not_forgotten(leader: Leader) -> None:
    (ended,) = await leader.allocate("a")
    await _end(leader, ended)
    assert await leader.store.forget(leader.epoch, await leader.store.now() + timedelta(seconds=1)) == 0


# ---- at any depth ------------------------------------------------------------------------------------------


_DEEP = """
INSERT INTO fluxqueue.workload (uid, api_version, kind, namespace, name, queue, priority, jobspec, shape,
    pods, duration_assumed, release_mode, generation, state, reason, message, found_reason, found_message,
    submitted_at, finished_at, outcome)
SELECT 'ended-' || n, 'batch/v1', 'Job', 'default', 'ended-' || n, 'default', 0, '', '',
       1, false, 'pin', 1, 'Completed', '', '', '', '', now() - interval '1 year' + n * interval '1 minute',
       now() - interval '1 year' + n * interval '1 minute', 'Succeeded'
  FROM generate_series(1, 30000) n;
INSERT INTO fluxqueue.history SELECT * FROM fluxqueue.workload;
UPDATE fluxqueue.history SET uid = 'history-' || id;
INSERT INTO fluxqueue.allocation (jobid, workload, shares, granted_at, starts_at, freed_at)
SELECT id, id, '[]', finished_at, finished_at, finished_at FROM fluxqueue.workload;
INSERT INTO fluxqueue.slot (jobid, rank, node, state)
SELECT jobid, rank, 'node', 'ended' FROM fluxqueue.allocation, generate_series(0, 1) rank;
INSERT INTO fluxqueue.transition (workload, at, after, reason, detail, epoch)
SELECT id, finished_at, 'Pending', '', '', 1 FROM fluxqueue.workload, generate_series(1, 3);
ANALYZE fluxqueue.workload; ANALYZE fluxqueue.history; ANALYZE fluxqueue.allocation; ANALYZE fluxqueue.slot;
ANALYZE fluxqueue.transition;
"""
_PLANS = {
    "prune_slots": {"allocation_freed", "slot_pkey"},
    "prune_allocations": {"allocation_freed", "slot_pkey"},
    "forget": {"workload_finished", "allocation_workload", "workload_pkey"},
    "forgotten": {"history_finished"},
    "prune_transitions": {"transition_workload"},
    "prune_history": {"history_pkey", "transition_workload"},
}


async def test_each_step_of_pruning_finds_its_rows_by_an_index(connection: psycopg.AsyncConnection) -> None:
    await connection.execute(_DEEP.encode())
    parameters = {
        "before": datetime.now(UTC) - timedelta(days=30),
        "after_at": datetime.min.replace(tzinfo=UTC),
        "after_id": 0,
        "ids": list(range(1, 501)),
        "limit": 500,
        "allocations": 500,
        "slots": 5_000,
    }
    for name, indexes in _PLANS.items():
        cursor = await connection.execute(b"EXPLAIN " + QUERIES[name], parameters)
        plan = "\n".join(row[0] for row in await cursor.fetchall())
        assert "Seq Scan on" not in plan, f"{name}:\n{plan}"
        assert {index for index in indexes if index in plan} == indexes, f"{name}:\n{plan}"


async def test_the_deletion_of_a_workload_or_allocation_finds_references_by_an_index(
    connection: psycopg.AsyncConnection,
) -> None:
    cursor = await connection.execute(
        "SELECT c.conrelid::regclass::text FROM pg_constraint c"
        " WHERE c.contype = 'f' AND c.connamespace = 'fluxqueue'::regnamespace"
        " AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.conrelid AND i.indpred IS NULL AND "
        "i.indkey[0] = c.conkey[1])"
    )
    assert await cursor.fetchall() == []
