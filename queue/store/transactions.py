"""One transaction, one round trip.

The statements of a transaction are known before it begins. So all of it (the fence and the statements) is
sent at once, with Postgres' pipeline mode, and answered at once. No process can stop between two statements
and leave a transaction open, and a method costs one round trip however many statements it has. There is no
BEGIN and no COMMIT: Postgres runs what comes before the end of a pipeline (Sync) as one transaction. If a
caller fails or is cancelled before all is sent, its connection is closed instead, so nothing is committed.
Each statement has its own snapshot: one that must see what was committed while a lock was awaited comes after
the statement that takes the lock.

psycopg prepares a statement after a connection has sent it a few times, and Postgres then keeps a plan for
it, made for short lists and the tables of that time. A statement with long lists is planned each time,
because the kept plan may read a table, which was small then, once for each of a thousand rows.

Two such transactions may deadlock if they lock rows in different order. Postgres ends one of them without any
effect, and it is sent again, at most three times. So is one that finds a table to which a newer version has
just added a column: the connection with its prepared statements is closed, and the next one plans again.

Behind a pooler, the first statement of every transaction makes the settings that a session of its own would
have; still one round trip.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import psycopg
import structlog
from psycopg.rows import dict_row

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store.arrays import with_array_texts
from fluxqueue.queue.store.connections import ISOLATION, SESSION_SETTINGS, cause_of
from fluxqueue.queue.store.database import Database
from fluxqueue.queue.store.errors import StaleLeader, Unstorable, is_unstorable
from fluxqueue.queue.store.queries import QUERIES
from fluxqueue.queue.store.rows import Row

__all__ = ["Statement", "Transactions"]

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)
_STALE = "FQ001"  # raised by fluxqueue.hold_epoch
_ATTEMPTS = 4
_CHUNK = 1000
_LONG = 100
_TO_BE_REPEATED = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.FeatureNotSupported,
)


class Statement(NamedTuple):
    """A query by its name and its parameters."""

    name: str
    parameters: Mapping[str, Any] = {}


class Transactions:
    """Transactions on a database.

    Parameters
    ----------
    database
        Its connections.
    clock
        Returns the time that is the parameter ``now`` of each statement; a leader gives its own.
    on_stale
        Called before `StaleLeader` is raised.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_stale: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._on_stale = on_stale
        self._clock = clock

    async def _read(self, name: str, /, **parameters: Any) -> list[Row]:
        """Return the rows of one statement."""
        (rows,) = await self._transaction(Statement(name, parameters))
        return rows

    async def _records(self, build: Callable[[Row], _T], name: str, /, **parameters: Any) -> list[_T]:
        """Return the records of a statement that may have very many;
        other coroutines, such as the one that renews the Lease, go on.
        """
        records: list[_T] = []
        for chunk in _chunks(await self._read(name, **parameters)):
            records += map(build, chunk)
            await asyncio.sleep(0)
        return records

    async def _write(self, epoch: Epoch, *statements: Statement) -> list[list[Row]]:
        """Return the rows of each statement of a transaction that only the leader of `epoch` may make."""
        try:
            _held, *rows = await self._transaction(Statement("hold_epoch", {"epoch": epoch}), *statements)
        except psycopg.DatabaseError as error:
            if error.sqlstate == _STALE:
                self._on_stale()
                raise StaleLeader(
                    f"epoch {epoch} is not the newest of its shard: another leader has taken over"
                ) from None
            raise
        return rows

    async def _transaction(self, *statements: Statement) -> list[list[Row]]:
        attempt = 1
        while True:
            try:
                return await self._once(statements)
            except _TO_BE_REPEATED as error:
                if attempt == _ATTEMPTS:
                    raise
                names = [statement.name for statement in statements]
                _log.info(
                    "transaction.repeated", statements=names, attempt=attempt, error=type(error).__name__
                )
                attempt += 1
            except (psycopg.Error, UnicodeEncodeError) as error:
                if not is_unstorable(error):
                    raise
                raise Unstorable(
                    f"Postgres does not store a value of {statements[-1].name}: {cause_of(error)}"
                ) from error

    async def _once(self, statements: tuple[Statement, ...]) -> list[list[Row]]:
        async with self._database.connection() as connection:
            try:
                cursors = await self._send(connection, statements)
            except psycopg.errors.FeatureNotSupported:
                await connection.close()
                raise
            return [await _fetch(cursor) for cursor in cursors]

    async def _send(
        self, connection: psycopg.AsyncConnection[Any], statements: Sequence[Statement]
    ) -> list[psycopg.AsyncCursor[Row]]:
        if self._database.pooled:
            values = {**SESSION_SETTINGS, "transaction_isolation": ISOLATION}
            settings = Statement("set_transaction", {"names": list(values), "values": list(values.values())})
            _, *cursors = await self._send_together(connection, (settings, *statements))
            return cursors
        if len(statements) > 1:
            return await self._send_together(connection, statements)
        cursor = connection.cursor(row_factory=dict_row, binary=True)
        await self._execute(cursor, statements[0])
        return [cursor]

    async def _send_together(
        self, connection: psycopg.AsyncConnection[Any], statements: Sequence[Statement]
    ) -> list[psycopg.AsyncCursor[Row]]:
        cursors = [connection.cursor(row_factory=dict_row, binary=True) for _ in statements]
        async with connection.pipeline():
            try:
                for cursor, statement in zip(cursors, statements, strict=True):
                    await self._execute(cursor, statement)
            except BaseException as error:
                if not isinstance(error, psycopg.Error) or error.sqlstate is None:
                    # the end of the pipeline would commit the statements that were sent
                    await connection.close()
                raise
        return cursors

    async def _execute(self, cursor: psycopg.AsyncCursor[Row], statement: Statement) -> None:
        parameters = {"now": self._clock(), **with_array_texts(statement.parameters)}
        await cursor.execute(QUERIES[statement.name], parameters, prepare=_prepare(statement))


def _prepare(statement: Statement) -> bool | None:
    """Return False for a statement with long lists; None lets psycopg decide by how often it is sent."""
    return (
        False
        if any(isinstance(value, list) and len(value) > _LONG for value in statement.parameters.values())
        else None
    )


def _chunks(rows: list[Row]) -> Iterator[list[Row]]:
    return (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))


async def _fetch(cursor: psycopg.AsyncCursor[Row]) -> list[Row]:
    """Return all rows, decoded a thousand at a time; they are in this process already."""
    rows: list[Row] = []
    if cursor.pgresult is None or not cursor.pgresult.nfields:
        return rows
    while True:
        chunk = await cursor.fetchmany(_CHUNK)
        rows += chunk
        if len(chunk) < _CHUNK:
            return rows
        await asyncio.sleep(0)
