"""The connection pool: bounded waits, connections that are checked before use, errors that name the server.

A connection that was idle for a second is checked with an empty query before it is used. So a restarted
Postgres costs one query and no failed transaction, and a busy pool pays nothing. A caller that waits longer
than the pool's timeout gets `DatabaseUnavailable`, with host, port and database in the message and never a
password. The pool goes on trying to connect.

What every session is set to, and what is different behind a pooler, is in
`fluxqueue.queue.store.connections`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from fluxqueue.queue.store.connections import cause_of, place_of, pooled_dsn, session_dsn
from fluxqueue.queue.store.errors import is_unavailable

__all__ = ["Database", "DatabaseUnavailable"]

_POOLED_TIMEOUT_S = 75.0
"""How long a pooler may keep a transaction, in seconds:
while it has no server, the server's own time-outs do not run."""
_LOOK_S: Final = 60.0
_IDENTITY = "SELECT pg_postmaster_start_time(), oid FROM pg_database WHERE datname = current_database()"


class DatabaseUnavailable(Exception):
    """Postgres cannot be reached, went away or does not let us write;
    the message names host and database, never the password.
    """


_T = TypeVar("_T")


class _Connection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that remembers when it last answered, and that sleeps until its socket is ready.

    psycopg interrupts each wait ten times a second, so that threads see Ctrl-C. The event loop cancels a wait
    without that.
    """

    proved_at = float("-inf")

    async def wait(self, gen: PQGen[_T], interval: float = _LOOK_S, timeout: float | None = None) -> _T:  # noqa: ASYNC109  # as in psycopg
        """Carry out a part of the protocol."""
        return await super().wait(gen, interval, timeout)


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    """Begin transactions explicitly, and return JSON as bytes: it is decoded where its type is known."""
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
        What ``pg_stat_activity`` shows, unless the connection string sets it.
    trusted_s
        How many seconds after its last use a connection is not checked.
    pooled
        True if a pooler lends its server sessions for one transaction: see
        `fluxqueue.queue.store.connections`.
    """

    def __init__(
        self,
        dsn: str,
        *,
        size: int = 8,
        timeout_s: float = 10.0,
        application_name: str = "fluxqueue",
        trusted_s: float = 1.0,
        pooled: bool = False,
    ) -> None:
        self.dsn = (pooled_dsn if pooled else session_dsn)(dsn, application_name)
        self.place = place_of(dsn)
        self.pooled = pooled
        self.timeout_s = timeout_s
        self._trusted_s = trusted_s
        # ten lines a second while Postgres is away; callers log it once
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
        self._pool: AsyncConnectionPool[_Connection] = AsyncConnectionPool(
            self.dsn,
            connection_class=_Connection,
            kwargs={"prepare_threshold": None} if pooled else None,
            min_size=1,
            max_size=size,
            timeout=timeout_s,
            max_idle=300,
            reconnect_timeout=2.0,
            configure=_configure,
            check=self._check,
            open=False,
        )

    async def __aenter__(self) -> Self:
        """Open the pool; `DatabaseUnavailable` if there is no connection within the timeout."""
        await self._pool.open()
        try:
            await self._pool.wait(self.timeout_s)
        except PoolTimeout as error:
            await self._pool.close()
            raise await self._unreachable() from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.close()

    @property
    def pool(self) -> AsyncConnectionPool[Any]:
        """The pool itself, for a library with its own queries."""
        return self._pool

    async def refuse_other(self, dsn: str) -> None:
        """Raise an error if another connection string leads to another database than this one.

        Raises
        ------
        DatabaseUnavailable
            It does, or one of the two cannot be reached.
        """
        try:
            async with await psycopg.AsyncConnection.connect(
                make_conninfo(dsn, connect_timeout=10), autocommit=True
            ) as direct:
                there = await (await direct.execute(_IDENTITY)).fetchone()
        except psycopg.Error as error:
            raise DatabaseUnavailable(f"{place_of(dsn)} cannot be reached: {cause_of(error)}") from error
        async with self.connection() as connection:
            here = await (await connection.execute(_IDENTITY)).fetchone()
        if here != there:
            raise DatabaseUnavailable(
                f"DATABASE_URL leads to {self.place} and DATABASE_DIRECT_URL to {place_of(dsn)}, "
                "which are two databases: "
                "set both to the same one"
            )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[tuple[Any, ...]]]:
        """Borrow a connection in autocommit mode.

        Raises
        ------
        DatabaseUnavailable
            If there is none within the timeout, it broke while it was used, or Postgres does not let us
            write.
        """
        try:
            async with (
                asyncio.timeout(_POOLED_TIMEOUT_S if self.pooled else None),
                self._pool.connection() as connection,
            ):
                yield connection
                connection.proved_at = time.monotonic()
        except PoolTimeout as error:
            raise await self._unreachable() from error
        except TimeoutError as error:
            raise DatabaseUnavailable(
                f"{self.place} did not answer through its pooler for {_POOLED_TIMEOUT_S:g} s"
            ) from error
        except PoolClosed as error:
            raise DatabaseUnavailable(f"{self.place}: the pool is closed") from error
        except psycopg.Error as error:
            if not is_unavailable(error):
                raise
            raise DatabaseUnavailable(f"{self.place} went away or gave up: {cause_of(error)}") from error

    async def _check(self, connection: _Connection) -> None:
        """Check a connection before the pool returns it; an error makes it try another."""
        if time.monotonic() - connection.proved_at > self._trusted_s:
            await AsyncConnectionPool.check_connection(connection)
            connection.proved_at = time.monotonic()

    async def _unreachable(self) -> DatabaseUnavailable:
        """Return the error with its cause.
        The pool does not report the cause, so one connection is tried here.
        """
        cause = "all connections are in use"
        try:
            probe = await psycopg.AsyncConnection.connect(make_conninfo(self.dsn, connect_timeout=2))
            await probe.close()
        except psycopg.Error as error:
            cause = cause_of(error)
        return DatabaseUnavailable(f"{self.place} gave no connection for {self.timeout_s:g} s: {cause}")
