"""The connection pool: bounded waits, connections that are looked at before they are trusted, errors that name the place.

A connection that lay unused for a second is asked an empty query before it is handed out, so a Postgres that was restarted costs one
look and no failed transaction; a busy pool pays nothing. Whoever waits longer than the pool's timeout gets `DatabaseUnavailable`, with
host, port and database in it and never a password. The pool itself goes on trying.

The server ends sessions that sit idle inside a transaction for five seconds: a paused process must not hold the leader's fence against
its successor. ``search_path`` holds procrastinate's schema beside ours (see `fluxqueue.queue.store.migrations`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

__all__ = ["Database", "DatabaseUnavailable", "place_of", "session_dsn"]

_GIVEN_UP = ("08", "25P03", "53", "55P03", "57", "58")
"""SQLSTATEs that speak of the server or its resources, not of the statement: connection, idle transaction, memory or disk, lock
timeout, shutdown or statement timeout, I/O. Without any, the connection broke."""
_SESSION = (
    "-c search_path=fluxqueue,procrastinate",
    "-c idle_in_transaction_session_timeout=5s",
    "-c statement_timeout=60s",
    "-c lock_timeout=20s",
    "-c timezone=UTC",
)


class DatabaseUnavailable(Exception):
    """Postgres cannot be reached, or went away; the message names host and database, never the password."""


def place_of(dsn: str) -> str:
    """Where a connection string leads to, for people: ``host:port/database`` without user and password."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return "the configured database (its connection string cannot be read)"
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return f"Postgres {host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or 'postgres'}"


def session_dsn(dsn: str, application_name: str) -> str:
    """A connection string with the settings every session of the queue needs; options already in it win."""
    parts = conninfo_to_dict(dsn)
    settings: dict[str, Any] = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
    settings |= {key: value for key, value in parts.items() if value is not None}
    settings["options"] = " ".join((*_SESSION, str(parts.get("options") or ""))).strip()
    settings.setdefault("application_name", application_name)
    return make_conninfo("", **settings)


class _Connection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that remembers when it last proved to be alive."""

    proved_at = float("-inf")


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    """Transactions are said, not begun by any query; JSON comes as its bytes: it is decoded where its type is known."""
    await connection.set_autocommit(True)
    set_json_loads(lambda text: text.encode() if isinstance(text, str) else bytes(text), connection)


class Database:
    """An asynchronous pool of connections to one Postgres database.

    Parameters
    ----------
    dsn
        A libpq connection string or URL.
    size
        Connections at most.
    timeout_s
        How long a caller waits for a connection before `DatabaseUnavailable`.
    application_name
        What ``pg_stat_activity`` shows, unless the connection string says.
    trusted_s
        How long a connection is taken to be alive after it was used.
    """

    def __init__(
        self, dsn: str, *, size: int = 8, timeout_s: float = 10.0, application_name: str = "fluxqueue", trusted_s: float = 1.0
    ) -> None:
        self.dsn = dsn
        self.place = place_of(dsn)
        self.timeout_s = timeout_s
        self._trusted_s = trusted_s
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # ten lines a second while Postgres is away; callers say so once
        self._pool: AsyncConnectionPool[_Connection] = AsyncConnectionPool(
            session_dsn(dsn, application_name),
            connection_class=_Connection,
            min_size=1,
            max_size=size,
            timeout=timeout_s,
            max_idle=300,
            reconnect_timeout=2.0,
            configure=_configure,
            check=self._look,
            open=False,
        )

    async def __aenter__(self) -> Self:
        """Open the pool; `DatabaseUnavailable` if no connection comes about within the timeout."""
        await self._pool.open()
        try:
            await self._pool.wait(self.timeout_s)
        except PoolTimeout as error:
            await self._pool.close()
            raise await self._unreachable() from error
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._pool.close()

    @property
    def pool(self) -> AsyncConnectionPool[Any]:
        """The pool itself, for a library that brings its own queries."""
        return self._pool

    async def healthy(self) -> bool:
        """Whether a query is answered within two seconds."""
        try:
            async with asyncio.timeout(2.0), self.connection() as connection:
                await connection.execute("SELECT 1")
        except (TimeoutError, DatabaseUnavailable):
            return False
        return True

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[tuple[Any, ...]]]:
        """A connection in autocommit mode.

        Raises
        ------
        DatabaseUnavailable
            If none is to be had within the timeout, or it broke while it was used.
        """
        try:
            async with self._pool.connection() as connection:
                yield connection
                connection.proved_at = time.monotonic()
        except PoolTimeout as error:
            raise await self._unreachable() from error
        except PoolClosed as error:
            raise DatabaseUnavailable(f"{self.place}: the pool is closed") from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if error.sqlstate is not None and not error.sqlstate.startswith(_GIVEN_UP):
                raise
            raise DatabaseUnavailable(f"{self.place} went away or gave up: {_first_line(error)}") from error

    async def _look(self, connection: _Connection) -> None:
        """Called by the pool before it hands out a connection; an error makes it take another."""
        if time.monotonic() - connection.proved_at > self._trusted_s:
            await AsyncConnectionPool.check_connection(connection)
            connection.proved_at = time.monotonic()

    async def _unreachable(self) -> DatabaseUnavailable:
        """The error with its cause: the pool keeps that to its log, so one connection is tried here."""
        cause = "all connections are in use"
        try:
            probe = await psycopg.AsyncConnection.connect(self.dsn, connect_timeout=2)
            await probe.close()
        except psycopg.Error as error:
            cause = _first_line(error)
        return DatabaseUnavailable(f"{self.place} gave no connection for {self.timeout_s:g} s: {cause}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
