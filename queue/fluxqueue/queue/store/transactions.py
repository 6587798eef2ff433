"""One transaction, one round trip.

A transaction of the store is a list of statements known beforehand, so all of it (BEGIN, the fence, the statements, COMMIT) is sent in
one go with Postgres' pipeline mode and answered in one go: no process can stop between two of its statements and leave a transaction
open, and a method costs one round trip however many statements it has. A statement that must see what was committed while a lock was
waited for comes after the statement that takes the lock: each statement has its own snapshot.

Deadlocks between two such transactions are possible where rows are locked along different paths; Postgres ends one of them, nothing of
it was done, and it is sent again. So is one that meets a table which a newer version has just given another column: the connection with
its prepared statements is closed, and the next one plans afresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import psycopg
import structlog
from psycopg.rows import dict_row

from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store.database import Database
from fluxqueue.queue.store.errors import StaleLeader
from fluxqueue.queue.store.queries import QUERIES
from fluxqueue.queue.store.rows import Row

__all__ = ["Statement", "Transactions"]

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)
_STALE = "FQ001"  # raised by fluxqueue.hold_epoch
_ATTEMPTS = 4
_CHUNK = 1000
_TO_BE_REPEATED = (psycopg.errors.DeadlockDetected, psycopg.errors.FeatureNotSupported)


class Statement(NamedTuple):
    """A query by its name and its parameters."""

    name: str
    parameters: Mapping[str, Any] = {}


class Transactions:
    """Transactions on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _read(self, name: str, /, **parameters: Any) -> list[Row]:
        """The rows of one statement."""
        (rows,) = await self._transaction(Statement(name, parameters))
        return rows

    async def _records(self, build: Callable[[Row], _T], name: str, /, **parameters: Any) -> list[_T]:
        """The records of one statement that may have very many: other coroutines, such as the one that renews the lease, go on."""
        records: list[_T] = []
        for chunk in _chunks(await self._read(name, **parameters)):
            records += map(build, chunk)
            await asyncio.sleep(0)
        return records

    async def _write(self, epoch: Epoch, *statements: Statement) -> list[list[Row]]:
        """The rows of each statement of a transaction that only the leader of `epoch` may do."""
        try:
            _held, *rows = await self._transaction(Statement("hold_epoch", {"epoch": epoch}), *statements)
        except psycopg.DatabaseError as error:
            if error.sqlstate == _STALE:
                raise StaleLeader(f"epoch {epoch} is not the newest of its shard: another leader has taken over") from None
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
                _log.info("transaction repeated", statements=names, attempt=attempt, because=type(error).__name__)
                attempt += 1

    async def _once(self, statements: tuple[Statement, ...]) -> list[list[Row]]:
        async with self._database.connection() as connection:
            try:
                cursors = await self._send(connection, statements)
            except psycopg.errors.FeatureNotSupported:
                await connection.close()
                raise
            return [await _fetch(cursor) for cursor in cursors]

    async def _send(self, connection: psycopg.AsyncConnection[Any], statements: Sequence[Statement]) -> list[psycopg.AsyncCursor[Row]]:
        cursors = [connection.cursor(row_factory=dict_row, binary=True) for _ in statements]
        if len(statements) == 1:
            await cursors[0].execute(QUERIES[statements[0].name], statements[0].parameters)
            return cursors
        async with connection.pipeline(), connection.transaction():
            for cursor, statement in zip(cursors, statements, strict=True):
                await cursor.execute(QUERIES[statement.name], statement.parameters)
        return cursors


def _chunks(rows: list[Row]) -> Iterator[list[Row]]:
    return (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))


async def _fetch(cursor: psycopg.AsyncCursor[Row]) -> list[Row]:
    """All rows, decoded a thousand at a time; they are in this process already."""
    rows: list[Row] = []
    while cursor.description and (chunk := await cursor.fetchmany(_CHUNK)):
        rows += chunk
        if len(chunk) == _CHUNK:
            await asyncio.sleep(0)
    return rows
