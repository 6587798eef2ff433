"""What each class of errors of Postgres does: wait, send again, or fail for one object alone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from support.queue_records import START, Leader, described

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.model.changes import ReasonChange, Requeue
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, DatabaseUnavailable, StaleLeader, Store, Unstorable, migrate
from fluxqueue.queue.store.ledger import Ledger


def _execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture
def role(database: str) -> Iterator[str]:
    """A role of this test alone, which may log in."""
    name = f"role_{secrets.token_hex(4)}"
    _execute(database, f"CREATE ROLE {name} LOGIN")
    yield name
    _execute(database, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


async def _waits_for_the_fence(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as watcher, asyncio.timeout(60):
        while not await (
            await watcher.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        ).fetchone():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
@pytest.mark.parametrize("by", ["role", "connection string"])
async def test_the_fence_holds_whatever_the_default_isolation_level_is(
    database: str, role: str, level: str, by: str
) -> None:
    _execute(database, f"ALTER ROLE {role} SUPERUSER")
    if by == "role":
        _execute(database, f"ALTER ROLE {role} SET default_transaction_isolation = '{level}'")
        dsn = make_conninfo(database, user=role)
    else:
        dsn = make_conninfo(
            database, options=f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
        )
    async with Database(dsn) as pool, await psycopg.AsyncConnection.connect(database) as new:
        store = Store(pool)
        epoch = await store.acquire_leadership("replica-0")
        await new.execute("SELECT pg_advisory_xact_lock(hashtextextended('fluxqueue leader default', 0))")
        await new.execute("UPDATE fluxqueue.leader SET epoch = epoch + 1, holder = 'replica-1'")
        late = asyncio.create_task(store.upsert(epoch, [described("too-late")]))
        await _waits_for_the_fence(database)
        await new.commit()
        with pytest.raises(StaleLeader):
            await late
        assert await store.pending() == []


async def test_a_postgres_that_only_reads_counts_as_unavailable(
    store: Store, epoch: Epoch, database: str
) -> None:
    _execute(
        database,
        f'ALTER DATABASE "{conninfo_to_dict(database)["dbname"]}" SET default_transaction_read_only = on',
    )
    async with Database(database) as frozen:
        with pytest.raises(
            DatabaseUnavailable,
            match="read-only transaction; it is a standby, or its administrator has frozen it",
        ):
            await Store(frozen).upsert(epoch, [described("a")])
        assert await Store(frozen).pending() == []


async def test_a_role_without_rights_counts_as_unavailable(epoch: Epoch, database: str, role: str) -> None:
    dsn = make_conninfo(database, user=role)
    async with Database(dsn) as pool:
        with pytest.raises(
            DatabaseUnavailable, match="permission denied.*the role of DATABASE_URL must own the tables"
        ):
            await Store(pool).upsert(epoch, [described("a")])
    with pytest.raises(DatabaseUnavailable, match="cannot be migrated: permission denied.*must own"):
        await migrate(dsn)


async def test_a_transaction_that_took_too_long_counts_as_unavailable_and_the_next_one_is_stored(
    store: Store, epoch: Epoch, database: str
) -> None:
    _fail(database, "25P04", times=1)
    with pytest.raises(
        DatabaseUnavailable, match=r"its transaction_timeout is shorter.*SET transaction_timeout = 0"
    ):
        await store.upsert(epoch, [described("a")])
    await store.upsert(epoch, [described("a")])
    assert [workload.name for workload in await store.pending()] == ["a"]


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
async def test_a_transaction_that_lost_against_another_is_sent_again(
    store: Store, epoch: Epoch, database: str, sqlstate: str
) -> None:
    _fail(database, sqlstate, times=3)
    await store.upsert(epoch, [described("a")])
    assert [workload.name for workload in await store.pending()] == ["a"]
    _fail(database, sqlstate, times=4)
    with pytest.raises(psycopg.errors.lookup(sqlstate)):
        await store.upsert(epoch, [described("b")])


def _fail(dsn: str, sqlstate: str, times: int) -> None:
    """Make the next inserts of workloads fail. A sequence counts them, as it is not rolled back."""
    _execute(
        dsn,
        "DROP SEQUENCE IF EXISTS fluxqueue.failures CASCADE",
        "CREATE SEQUENCE fluxqueue.failures",
        f"""CREATE OR REPLACE FUNCTION fluxqueue.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('fluxqueue.failures') <= {times} THEN
                RAISE EXCEPTION 'it lost' USING ERRCODE = '{sqlstate}';
            END IF;
            RETURN NEW; END $$""",
        "CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON fluxqueue.workload FOR EACH ROW EXECUTE FUNCTION "
        "fluxqueue.fail()",
    )


@pytest.mark.parametrize("message", ["a\0b", "a\ud800b"], ids=["a NUL", "half a character"])
async def test_a_value_that_cannot_be_stored_fails_for_its_object_alone(
    store: Store, epoch: Epoch, message: str
) -> None:
    leader = Leader(store, epoch)
    workloads = await leader.allocate("one", "bad", "two")
    ledger = Ledger(store, epoch, lambda: START)
    await ledger.load()
    texts = dict(zip((each.id for each in workloads), ("fine", message, "fine"), strict=True))
    reasons = [
        ReasonChange(workload=each, reason=Reason.RELEASE_FAILED, message=text)
        for each, text in texts.items()
    ]
    before = OBJECT_FAILURES.labels("reasons")._value.get()
    await ledger.set_reasons(reasons, live=True)
    assert [ledger.get(each).message for each in texts] == ["fine", "", "fine"]  # type: ignore[union-attr]
    assert OBJECT_FAILURES.labels("reasons")._value.get() == before + 1
    with pytest.raises(Unstorable, match="Requeue"):
        await ledger.requeue(
            [Requeue(workload=each, reason=Reason.NONE, message=text) for each, text in texts.items()]
        )
    assert [workload.name for workload in await store.pending()] == ["one", "two"]


async def test_a_text_too_long_for_an_index_is_a_value_that_cannot_be_stored(
    store: Store, epoch: Epoch
) -> None:
    with pytest.raises(Unstorable):
        await store.upsert(epoch, [described("a", uid=secrets.token_hex(100_000))])
    await store.upsert(epoch, [described("b")])
    assert [workload.name for workload in await store.pending()] == ["b"]
