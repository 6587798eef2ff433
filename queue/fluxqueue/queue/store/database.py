"""The connection pool."""

from __future__ import annotations

from types import TracebackType
from typing import Self

__all__ = ["Database", "DatabaseUnavailable"]


class DatabaseUnavailable(Exception):
    """Postgres cannot be reached, or went away; the message names host and database, never the password."""


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
    """

    def __init__(self, dsn: str, *, size: int = 8, timeout_s: float = 10.0) -> None:
        self.dsn = dsn
        self.timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        raise NotImplementedError

    async def healthy(self) -> bool:
        """Whether a query is answered within two seconds."""
        raise NotImplementedError
