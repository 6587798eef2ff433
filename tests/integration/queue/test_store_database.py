from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.queue_records import Leader, described

from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.queue.model.records import Epoch, WorkloadId
from fluxqueue.queue.store import (
    Database,
    DatabaseUnavailable,
    SchemaRefused,
    Store,
    migrate,
)
from fluxqueue.queue.store.arrays import array_text
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.migrations import our_migrations


@pytest.fixture
def empty_database(postgres: LocalPostgres, tmp_path: Path) -> str:
    name = f"empty_{abs(hash(tmp_path)) % 10**9}"
    return postgres.create_database(name)


async def _fetch(dsn: str, query: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(query.encode())
        return await cursor.fetchall() if cursor.description else []


async def _record(dsn: str, name: str) -> None:
    await _fetch(dsn, f"INSERT INTO fluxqueue.migration (name, digest) VALUES ('{name}', 'of another file')")


async def until_it_answers(store: Store) -> None:
    while True:
        with contextlib.suppress(DatabaseUnavailable):
            await store.now()
            return
        await asyncio.sleep(0.1)


async def test_migrating_twice_applies_everything_once(empty_database: str) -> None:
    applied = await migrate(empty_database)
    assert [name for name in applied if name.startswith("fluxqueue/")] == list(our_migrations())
    assert await migrate(empty_database) == []
    async with Database(empty_database) as database:
        assert await Store(database).pending() == []


async def test_our_tables_and_those_of_procrastinate_have_separate_schemas(empty_database: str) -> None:
    await migrate(empty_database)
    kinds = await _fetch(
        empty_database,
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'S') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> "
        "'information_schema'",
    )
    assert {schema for schema, _ in kinds} == {"fluxqueue", "procrastinate"}
    assert all(("procrastinate" in str(name)) == (schema == "procrastinate") for schema, name in kinds)


async def test_a_statement_with_long_lists_is_planned_each_time(database: str) -> None:
    """A cached plan was made for short lists: with it, 15,000 slots at once took more than a minute in a new
    database.
    """

    async def kept_plans() -> int:
        async with pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT sum(generic_plans + custom_plans) FROM pg_prepared_statements"
            )
            return int((await cursor.fetchall())[0][0] or 0)

    async with Database(database, size=1) as pool:
        store = Store(pool)
        for _ in range(8):
            await store.workloads([WorkloadId(1)])
        before = await kept_plans()
        assert before > 0
        for _ in range(8):
            await store.workloads([WorkloadId(number) for number in range(1_000)])
        assert await kept_plans() == before
        await store.workloads([WorkloadId(1)])
        assert await kept_plans() == before + 1


async def test_a_wait_for_postgres_is_not_interrupted(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """psycopg looks ten times a second for Ctrl-C, which is most of what an idle listener does."""
    loop, delays = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def noted(when: float, *more: Any, **named: Any) -> asyncio.TimerHandle:
        delays.append(when - loop.time())
        return call_at(when, *more, **named)

    async with Database(database, size=1) as pool, pool.connection() as connection:
        monkeypatch.setattr(loop, "call_at", noted)
        await connection.execute("SELECT pg_sleep(0.3)")
        monkeypatch.undo()
        assert delays
        assert min(delays) > 30
        waiting = asyncio.create_task(connection.execute("SELECT pg_sleep(600)"))
        while not (
            await _fetch(database, "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'")
        ):
            await asyncio.sleep(0.01)
        waiting.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()


async def test_postgres_reads_the_texts_of_arrays(database: str) -> None:
    at = datetime(2026, 11, 23, 1, 2, 3, 4, UTC)
    texts = [
        "",
        "NULL",
        'a"b',
        "c\\d",
        "{e,f}",
        " g ",
        "\n\t",
        "\u2603 \U0001f600",
        "'; --",
        '{"json": ["\\""]}',
        None,
    ]
    columns: dict[str, list[Any]] = {
        "text": texts,
        "bigint": [1, -2, 2**62, None],
        "integer": [],
        "boolean": [True, False],
        "timestamptz": [at, None],
    }
    async with await psycopg.AsyncConnection.connect(database) as connection:
        for kind, values in columns.items():
            cursor = await connection.execute(f"SELECT %s::{kind}[]".encode(), [array_text(values)])
            assert await cursor.fetchall() == [(values,)]


async def test_two_processes_may_migrate_at_once(empty_database: str) -> None:
    program = (
        "import asyncio, sys; from fluxqueue.queue.store import migrate; "
        "sys.exit(len(asyncio.run(migrate(sys.argv[1]))))"
    )
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, empty_database) for _ in range(2)
    ]
    async with asyncio.timeout(60):
        applied = sorted([await process.wait() for process in processes])
    assert applied[0] == 0
    assert applied[1] > len(our_migrations())
    assert await migrate(empty_database) == []


async def test_a_broken_migration_applies_no_part_of_its_file(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = our_migrations()
    broken = files | {"fluxqueue/9999_broken": "CREATE TABLE fluxqueue.half (a int); SELECT 1 / 0;"}
    monkeypatch.setattr("fluxqueue.queue.store.migrations.our_migrations", lambda: broken)
    with pytest.raises(psycopg.errors.DivisionByZero):
        await migrate(empty_database)
    assert await _fetch(empty_database, "SELECT to_regclass('fluxqueue.half')") == [(None,)]
    monkeypatch.undo()
    assert await migrate(empty_database) == []


async def test_an_edited_migration_and_a_newer_database_are_refused(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(empty_database)
    files = our_migrations()
    edited = {name: text + "\n-- edited" for name, text in files.items()}
    monkeypatch.setattr("fluxqueue.queue.store.migrations.our_migrations", lambda: edited)
    with pytest.raises(SchemaRefused, match="0025_schema with another text"):
        await migrate(empty_database)
    monkeypatch.undo()
    await _record(empty_database, "fluxqueue/9999_newer")
    with pytest.raises(SchemaRefused, match="run the newer version"):
        await migrate(empty_database)


async def test_a_database_of_all_former_files_goes_on_and_an_older_one_is_refused(
    empty_database: str,
) -> None:
    await migrate(empty_database)
    await _fetch(empty_database, "DELETE FROM fluxqueue.migration WHERE name = 'fluxqueue/0025_schema'")
    await _record(empty_database, "fluxqueue/0001_queue")
    with pytest.raises(SchemaRefused, match="an early version, up to fluxqueue/0001_queue"):
        await migrate(empty_database)
    await _record(empty_database, "fluxqueue/0025_prices")
    assert await migrate(empty_database) == []


async def test_the_upgrades_of_a_newer_procrastinate_are_applied(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(empty_database)
    monkeypatch.setattr(
        "fluxqueue.queue.store.migrations._procrastinate_migrations",
        lambda: {"procrastinate/03.99.00_01_pre_more": "CREATE TABLE procrastinate_more (a int);"},
    )
    assert await migrate(empty_database) == ["procrastinate/03.99.00_01_pre_more"]
    assert await _fetch(
        empty_database, "SELECT to_regclass('procrastinate.procrastinate_more') IS NOT NULL"
    ) == [(True,)]


async def test_an_older_version_reads_tables_that_have_more_columns(
    store: Store, epoch: Epoch, database: str
) -> None:
    leader = Leader(store, epoch)
    (before,) = await leader.allocate("lammps")
    # often enough that psycopg prepares its statements: the change then invalidates their plans
    for _ in range(12):
        assert await store.live_workloads() == [before]
        assert await store.workloads_by_uid(["uid-lammps"]) == [before]
        assert await store.upsert(epoch, [described("lammps")]) == Delta()
    await _fetch(database, "ALTER TABLE fluxqueue.workload ADD COLUMN site text DEFAULT 'here'")
    await _fetch(database, "ALTER TABLE fluxqueue.history ADD COLUMN site text")
    assert await store.live_workloads() == [before]
    assert await store.workloads_by_uid(["uid-lammps"]) == [before]
    assert await store.upsert(epoch, [described("lammps")]) == Delta()


async def test_an_unreachable_database_is_named_without_its_password() -> None:
    dsn = "postgresql://queue:sesame@127.0.0.1:9/flux"
    with pytest.raises(
        DatabaseUnavailable, match=r"Postgres 127\.0\.0\.1:9/flux gave no connection for 0\.5 s: .*refused"
    ) as caught:
        async with Database(dsn, timeout_s=0.5):
            pass
    assert "sesame" not in str(caught.value)
    with pytest.raises(
        DatabaseUnavailable, match=r"127\.0\.0\.1:9/flux cannot be reached to be migrated"
    ) as caught:
        await migrate(dsn, timeout_s=5)
    assert "sesame" not in str(caught.value)


async def test_a_busy_pool_raises_after_its_timeout(database: str) -> None:
    async with Database(database, size=1, timeout_s=0.3) as pool, pool.connection():
        with pytest.raises(DatabaseUnavailable, match="all connections are in use"):
            await Store(pool).now()


async def test_connections_cut_while_idle_fail_no_call(database: str) -> None:
    async with Database(database, trusted_s=0.0) as pool:
        store = Store(pool)
        await asyncio.gather(*(store.now() for _ in range(4)))
        await _fetch(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "
            "pid <> pg_backend_pid()",
        )
        await asyncio.gather(*(store.now() for _ in range(4)))
        assert await store.now()


async def test_the_pool_answers_only_while_the_database_answers(
    new_database: Callable[[], str], postgres: LocalPostgres
) -> None:
    dsn = new_database()
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    async with Database(dsn, timeout_s=1.0, trusted_s=0.0) as pool:
        assert await Store(pool).now()
        administration = psycopg.conninfo.make_conninfo(dsn, dbname="postgres")
        await _fetch(administration, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        await _fetch(
            administration, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        with pytest.raises(DatabaseUnavailable, match="not currently accepting connections"):
            await Store(pool).now()
        await _fetch(administration, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        async with asyncio.timeout(60):
            await until_it_answers(Store(pool))
