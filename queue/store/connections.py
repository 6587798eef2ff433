"""Connection strings: what every session of the queue is set to, and what may stand between the queue and
Postgres.

The server ends sessions that are idle in a transaction for five seconds: a paused process must not hold the
leader's fence against the next leader. ``search_path`` has procrastinate's schema next to ours (see
`fluxqueue.queue.store.migrations`).

The fence holds only if each statement has a snapshot of its own (READ COMMITTED): under another level, the
epoch that a transaction reads is that of its beginning, and a change of the former leader that waited for the
lock would pass. A role, a database or a connection string may have another default, so the level is set too,
after all others. Behind a pooler nothing can set it, as each transaction begins with a query. There, a
session of another level is refused.

Behind a pooler that lends a server session for one transaction (PgBouncer's ``pool_mode = transaction``), no
session belongs to the queue. There, each transaction begins with these settings, and no statement is
prepared. What needs a session of its own (the lock of migrations, LISTEN) takes a second connection string;
`refuse_pooler` reports where that one leads to a pooler too.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

__all__ = [
    "ISOLATION",
    "SESSION_SETTINGS",
    "BehindPooler",
    "cause_of",
    "place_of",
    "pooled_dsn",
    "refuse_pooler",
    "session_dsn",
]

SESSION_SETTINGS: Final = {
    "search_path": "fluxqueue,procrastinate",
    "idle_in_transaction_session_timeout": "5s",
    "statement_timeout": "60s",
    "lock_timeout": "20s",
    "timezone": "UTC",
}
"""Server settings of every session; through a pooler, of every transaction."""
ISOLATION: Final = "read committed"
_CLIENT_SETTINGS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
_CERTIFICATE = ("certificate", "root.crt")
_POOLER = ("unsupported startup parameter",)
_BY_SQLSTATE: Final = {
    "25006": (
        "it is a standby, or its administrator has frozen it: DATABASE_URL must lead to a server that writes"
    ),
    "42501": (
        "the role of DATABASE_URL must own the tables of the schemas fluxqueue and procrastinate, "
        "and may create them in the database"
    ),
    "25P04": (
        "its transaction_timeout is shorter than one of the queue takes: ALTER ROLE ... "
        "SET transaction_timeout = 0"
    ),
    "25001": (
        "its sessions begin with another isolation level: ALTER ROLE ... "
        "SET default_transaction_isolation = 'read committed'"
    ),
}
_REMEDY = "set DATABASE_DIRECT_URL (database.existingSecret.directKey) to the address of Postgres itself"


class BehindPooler(Exception):
    """A connection that needs a session of its own leads to a pooler."""


def place_of(dsn: str) -> str:
    """Return the server and database of a connection string, without user and password, for people."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return "the configured database (its connection string cannot be read)"
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return (
        "Postgres "
        f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or 'postgres'}"
    )


def session_dsn(dsn: str, application_name: str) -> str:
    """Return a connection string with the settings that every session of the queue needs;
    its own win, but for the isolation level.
    """
    parts = _client_parts(dsn, application_name)
    options = (f"-c {name}={value}" for name, value in SESSION_SETTINGS.items())
    isolation = "-c default_transaction_isolation=" + ISOLATION.replace(" ", "\\ ")
    parts["options"] = " ".join((*options, *filter(None, [str(parts.get("options") or "")]), isolation))
    return make_conninfo("", **parts)


def pooled_dsn(dsn: str, application_name: str) -> str:
    """Return a connection string for a pooler: without server settings, which a pooler refuses or drops."""
    return make_conninfo("", **_client_parts(dsn, application_name))


def _client_parts(dsn: str, application_name: str) -> dict[str, Any]:
    given = {key: value for key, value in conninfo_to_dict(dsn).items() if value is not None}
    return {"application_name": application_name, **_CLIENT_SETTINGS, **given}


async def refuse_pooler(connection: psycopg.AsyncConnection[Any], place: str) -> None:
    """Raise an error if a pooler answers in place of Postgres.

    A pooler invents the number of the server process that it names to its client, so that it differs from the
    one that answers.

    Raises
    ------
    BehindPooler
        There is a pooler.
    """
    (pid,) = await (await connection.execute("SELECT pg_backend_pid()")).fetchone() or (0,)
    if pid != connection.info.backend_pid:
        raise BehindPooler(
            f"{place} is behind a connection pooler such as PgBouncer, "
            f"which has no session for migrations and LISTEN: {_REMEDY}"
        )


def cause_of(error: BaseException) -> str:
    """Return in one line why a connection failed, with a remedy where the message suggests none."""
    cause = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if isinstance(error, psycopg.Error) and (remedy := _BY_SQLSTATE.get(error.sqlstate or "")):
        return f"{cause}; {remedy}"
    if any(word in cause for word in _POOLER):
        return f"{cause}; a connection pooler such as PgBouncer refuses settings of a session: {_REMEDY}"
    if any(word in cause for word in _CERTIFICATE):
        return (
            f"{cause}; the host in the connection string must be a name of the server's certificate, "
            "and sslrootcert its authority"
        )
    return cause
