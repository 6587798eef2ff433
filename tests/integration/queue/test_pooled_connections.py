"""The store through a real PgBouncer that lends a server session for one transaction,
and what needs a session of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from support.poolers import Pooler, pooler_of
from support.queue_records import Leader

from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.store import Database, DatabaseUnavailable, StaleLeader, Store, migrate
from fluxqueue.queue.store.connections import SESSION_SETTINGS
from fluxqueue.queue.tasks.control_tasks import ControlTasks


@pytest.fixture
async def pooled(database: str, pooler: Pooler) -> AsyncIterator[Database]:
    async with Database(pooler.dsn(database), size=12, pooled=True) as opened:
        yield opened


async def _execute(dsn: str, statement: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode())
        return await cursor.fetchall() if cursor.description else []


async def test_transactions_of_many_tasks_share_few_server_sessions(pooled: Database, database: str) -> None:
    store = Store(pooled)
    leader = Leader(store, await store.acquire_leadership("replica-0"))
    await leader.allocate("lammps")
    # often enough that psycopg would prepare a statement, which the next session does not know
    for _ in range(12):
        await asyncio.gather(
            *(store.workloads_by_uid(["uid-lammps"]) for _ in range(12)), *(store.pending() for _ in range(6))
        )
    (sessions,) = await _execute(
        database, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fluxqueue'"
    )
    assert sessions[0] in range(1, 5)


async def test_each_transaction_has_the_settings_of_a_session_of_ours(
    pooled: Database, database: str
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    await _execute(database, f"ALTER DATABASE \"{name}\" SET timezone = 'Asia/Tokyo'")
    store = Store(pooled)
    epoch = await store.acquire_leadership("replica-0")
    assert (await store.now()).utcoffset() == timedelta(0)
    async with ControlTasks(database, store) as tasks:  # its triggers need procrastinate's schema in the path
        await tasks.request_sweep()
    (job,) = await _execute(database, "SELECT id FROM procrastinate.procrastinate_jobs")
    assert await store.requeue_tasks(epoch, [int(str(job[0]))]) == 0
    with pytest.raises(StaleLeader):
        await store.requeue_tasks(type(epoch)(epoch - 1), [])


async def test_a_session_with_another_isolation_level_is_refused_with_the_remedy(
    database: str, new_database: Callable[[], str], pooler: Pooler
) -> None:
    dsn = new_database()
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    await _execute(database, f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'serializable'")
    async with Database(pooler.dsn(dsn), pooled=True) as opened:
        with pytest.raises(
            DatabaseUnavailable, match="ALTER ROLE .* SET default_transaction_isolation = 'read committed'"
        ):
            await Store(opened).acquire_leadership("replica-0")


async def test_a_wait_for_a_lock_ends(
    pooled: Database, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SESSION_SETTINGS, "lock_timeout", "200ms")
    store = Store(pooled)
    async with await psycopg.AsyncConnection.connect(database) as holder:
        await holder.execute("LOCK TABLE fluxqueue.workload")
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            await store.workloads([WorkloadId(1)])


async def test_a_lost_postgres_is_reported_and_found_again(service_folder: Path) -> None:
    server = LocalPostgres(service_folder / "restarted", durable=False)
    with server:
        dsn = server.create_database("queue")
        await migrate(dsn)
        with pooler_of(server, service_folder) as running:
            async with Database(running.dsn(dsn), pooled=True, trusted_s=0.0, timeout_s=5.0) as opened:
                assert await Store(opened).now()
                server.stop()
                with pytest.raises(DatabaseUnavailable):
                    await Store(opened).now()
                server.start()
                async with asyncio.timeout(60):
                    while True:
                        with contextlib.suppress(DatabaseUnavailable):
                            assert await Store(opened).now()
                            break
                        await asyncio.sleep(0.1)
    server.destroy()


async def test_migrations_through_a_pooler_are_refused_with_the_remedy(database: str, pooler: Pooler) -> None:
    with pytest.raises(
        DatabaseUnavailable, match="behind a connection pooler such as PgBouncer.*set DATABASE_DIRECT_URL"
    ):
        await migrate(pooler.dsn(database))
    locks = await _execute(
        database, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
    )
    assert locks == [(0,)]


async def test_two_databases_in_place_of_one_are_refused(
    pooled: Database, database: str, new_database: Callable[[], str]
) -> None:
    await pooled.refuse_other(database)
    with pytest.raises(DatabaseUnavailable, match="which are two databases: set both to the same one"):
        await pooled.refuse_other(new_database())
    with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
        await pooled.refuse_other(make_conninfo(database, host="/nowhere"))


async def test_a_session_through_a_pooler_is_refused_with_the_remedy(database: str, pooler: Pooler) -> None:
    with pytest.raises(DatabaseUnavailable, match="unsupported startup parameter.*set DATABASE_DIRECT_URL"):
        async with Database(pooler.dsn(database), timeout_s=2.0):
            pass


async def test_a_pooler_that_drops_settings_is_refused_too(
    postgres: LocalPostgres, database: str, service_folder: Path
) -> None:
    careless = pooler_of(postgres, service_folder, ignored=["options", "extra_float_digits"])
    with careless as running, pytest.raises(DatabaseUnavailable, match="behind a connection pooler"):
        await migrate(make_conninfo(running.dsn(database), options="-c search_path=fluxqueue"))
