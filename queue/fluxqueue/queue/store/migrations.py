"""Bringing a database to this version: ordered SQL files, each applied once, under one lock.

Two sources are kept in one table, ``fluxqueue.migration``. Ours are the files of the folder ``migrations``, in the order of their
names. procrastinate's come from its wheel: a new database gets its current schema at once, and all its upgrade files are noted as
applied; a later version of the wheel brings further upgrade files, and those are run. Its tables stand in a schema of their own,
``procrastinate``, because their names are its affair; our connections carry both schemas in their ``search_path``, without which its
triggers would not find their tables.

Each file is a transaction together with the note that it was applied, so a kill leaves a whole number of files. An advisory lock held
by the session lets any number of replicas migrate at once: one does it, the others find nothing left to do. A file that was applied
and has another text now is an error, and so is a database that knows files this version does not have; the version before may go on
running while a newer one has migrated (one step), but not begin anew on it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import resources

import psycopg
import structlog
from procrastinate.schema import SchemaManager

from fluxqueue.queue.store.database import DatabaseUnavailable, place_of

__all__ = ["MigrationChanged", "SchemaTooNew", "migrate", "our_migrations"]

_log = structlog.get_logger(__name__)

_LOCK = 0x666C75787175  # "fluxqu": the session lock of everyone who migrates
_OURS = "fluxqueue/"
_PROCRASTINATE = "procrastinate/"

_BEGINNING = """
CREATE SCHEMA IF NOT EXISTS fluxqueue;
CREATE SCHEMA IF NOT EXISTS procrastinate;
CREATE TABLE IF NOT EXISTS fluxqueue.migration (
    name       text PRIMARY KEY,
    digest     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


class MigrationChanged(Exception):
    """A migration that was applied has another text now."""


class SchemaTooNew(Exception):
    """The database was migrated by a newer version."""


def our_migrations() -> dict[str, str]:
    """Our migrations: name to SQL, in order."""
    folder = resources.files(__package__) / "sql" / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {_OURS + name.removesuffix(".sql"): (folder / name).read_text("utf-8") for name in names}


def _procrastinate_migrations() -> dict[str, str]:
    folder = resources.files("procrastinate") / "sql" / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {_PROCRASTINATE + name.removesuffix(".sql"): (folder / name).read_text("utf-8") for name in names}


async def migrate(dsn: str, *, timeout_s: float = 60.0) -> list[str]:
    """Apply what is missing, ours and procrastinate's.

    Parameters
    ----------
    dsn
        Of a role that may create schemas in the database.
    timeout_s
        How long to wait for the connection, and then for others who are migrating.

    Returns
    -------
    list[str]
        Names of what was applied, in order; empty if nothing was missing.

    Raises
    ------
    DatabaseUnavailable
        If Postgres cannot be reached, or others migrate for longer than `timeout_s`.
    MigrationChanged
        If an applied file of ours has another text now.
    SchemaTooNew
        If the database knows a file of ours that this version does not.
    """
    async with _locked(dsn, timeout_s) as connection:
        await connection.execute(_BEGINNING)
        applied = dict(await (await connection.execute("SELECT name, digest FROM fluxqueue.migration")).fetchall())
        ours = our_migrations()
        _compare(ours, applied, place_of(dsn))
        done: list[str] = []
        if not any(name.startswith(_PROCRASTINATE) for name in applied):
            everything = _procrastinate_migrations()
            await _apply(connection, SchemaManager.get_schema(), everything)
            done += everything
        else:
            for name, text in _procrastinate_migrations().items():
                if name not in applied:
                    await _apply(connection, text, {name: text})
                    done.append(name)
        for name, text in ours.items():
            if name not in applied:
                await _apply(connection, text, {name: text})
                done.append(name)
    if done:
        _log.info("migrated", database=place_of(dsn), applied=len(done), newest=done[-1])
    return done


def _compare(ours: Mapping[str, str], applied: Mapping[str, str], place: str) -> None:
    for name, digest in applied.items():
        if not name.startswith(_OURS):
            continue
        if name not in ours:
            raise SchemaTooNew(f"{place} has the migration {name}, which this version does not know: run the newer version")
        if digest != _digest(ours[name]):
            raise MigrationChanged(f"{place} has the migration {name} with another text: applied files are never edited, add a new one")


async def _apply(connection: psycopg.AsyncConnection, text: str, names: Mapping[str, str]) -> None:
    async with connection.transaction():
        await connection.execute("SET LOCAL search_path = procrastinate")
        await connection.execute(text.encode())
        for name, noted in names.items():
            await connection.execute("INSERT INTO fluxqueue.migration (name, digest) VALUES (%s, %s)", (name, _digest(noted)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@asynccontextmanager
async def _locked(dsn: str, timeout_s: float) -> AsyncIterator[psycopg.AsyncConnection]:
    """A connection that holds the lock of migrations; closing it gives the lock back."""
    try:
        async with asyncio.timeout(timeout_s):
            connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True, application_name="fluxqueue-migrate")
    except (psycopg.OperationalError, TimeoutError) as error:
        raise DatabaseUnavailable(f"{place_of(dsn)} cannot be reached to be migrated: {str(error) or 'no answer'}") from error
    async with connection:
        await connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{int(timeout_s * 1000)}ms",))
        try:
            await connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        except psycopg.errors.LockNotAvailable as error:
            raise DatabaseUnavailable(f"{place_of(dsn)} has been migrated by another process for {timeout_s:.0f} s") from error
        yield connection
