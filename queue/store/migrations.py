"""Bringing a database to this version: ordered SQL files, each applied once, under one lock.

Files of two sources are recorded in one table, ``fluxqueue.migration``. Ours are the files of the folder
``migrations``, in the order of their names: ``0025_schema`` makes all tables, later ones change them. It
stands for 25 files that made the same tables one after the other: a database that has them all goes on, and
an older one is refused (docs/decisions/0069). procrastinate's come from its wheel. A new database gets its
current schema at once, and all its upgrade files are recorded as applied; the upgrade files of a later
version of the wheel are run. Its tables are in a schema of their own, ``procrastinate``, so that their names
cannot clash with ours. Our connections have both schemas in their ``search_path``, which its triggers need.

Each file is one transaction, together with the record that it was applied, so a killed process leaves whole
files. An advisory lock of the session lets any number of replicas migrate at once: one does it, and the
others have nothing left to do. An applied file whose text is different now is an error, and so is a database
with files that this version does not have. The version before may go on running after a newer one has
migrated (one step), but it cannot start again.
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

from fluxqueue.queue.store.connections import BehindPooler, cause_of, place_of, refuse_pooler
from fluxqueue.queue.store.database import DatabaseUnavailable
from fluxqueue.queue.store.errors import is_unavailable

__all__ = ["SchemaRefused", "migrate", "our_migrations"]

_log = structlog.get_logger(__name__)

_LOCK = 0x666C75787175  # "fluxqu": the session lock of everyone who migrates
_OURS = "fluxqueue/"
_PROCRASTINATE = "procrastinate/"
_SCHEMA = "fluxqueue/0025_schema"
_LAST_FORMER = "fluxqueue/0025_prices"  # of the files for which it stands

_BEGINNING = """
CREATE SCHEMA IF NOT EXISTS fluxqueue;
CREATE SCHEMA IF NOT EXISTS procrastinate;
CREATE TABLE IF NOT EXISTS fluxqueue.migration (
    name       text PRIMARY KEY,
    digest     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


class SchemaRefused(Exception):
    """The tables are newer than this version, too old for it, or made by a file with another text."""


def our_migrations() -> dict[str, str]:
    """Return our migrations in order: name to SQL."""
    folder = resources.files(__package__) / "sql" / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {_OURS + name.removesuffix(".sql"): (folder / name).read_text("utf-8") for name in names}


def _procrastinate_migrations() -> dict[str, str]:
    folder = resources.files("procrastinate") / "sql" / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {_PROCRASTINATE + name.removesuffix(".sql"): (folder / name).read_text("utf-8") for name in names}


async def migrate(dsn: str, *, timeout_s: float = 60.0) -> list[str]:
    """Apply the migrations that are missing, ours and procrastinate's.

    Parameters
    ----------
    dsn
        Of a role that may create schemas in the database; to Postgres itself, as the lock belongs to a
        session.
    timeout_s
        How long to wait for the connection, and then for others that migrate.

    Returns
    -------
    list[str]
        Names of the applied migrations, in order; empty if none was missing.

    Raises
    ------
    DatabaseUnavailable
        If Postgres cannot be reached, or others migrate for longer than `timeout_s`.
    SchemaRefused
        If the text of an applied file of ours is different now, if the database has one that this version
        does not have, or if it is from before `0025_schema`.
    """
    async with _locked(dsn, timeout_s) as connection:
        await connection.execute(_BEGINNING)
        applied = dict(
            await (await connection.execute("SELECT name, digest FROM fluxqueue.migration")).fetchall()
        )
        ours = our_migrations()
        missing = _missing(ours, applied, place_of(dsn))
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
        for name in missing:
            await _apply(connection, ours[name], {name: ours[name]})
            done.append(name)
    if done:
        _log.info("migrations.applied", database=place_of(dsn), applied=len(done), newest=done[-1])
    return done


def _missing(ours: Mapping[str, str], applied: Mapping[str, str], place: str) -> list[str]:
    """Return the names of our files that are still to be applied."""
    former = {name for name in applied if name.startswith(_OURS) and name < _SCHEMA}
    if former and _LAST_FORMER not in former:
        raise SchemaRefused(
            f"{place} has the tables of an early version, up to {max(former)}, which this version does not "
            "upgrade: drop the schemas fluxqueue and procrastinate; waiting work is queued again from its "
            "objects, running work is adopted, the history is lost"
        )
    for name, digest in applied.items():
        if not name.startswith(_OURS) or name in former:
            continue
        if name not in ours:
            raise SchemaRefused(
                f"{place} has the migration {name}, which this version does not have: run the newer version"
            )
        if digest != _digest(ours[name]):
            raise SchemaRefused(
                f"{place} has the migration {name} with another text: applied files are never edited, "
                "add a new one"
            )
    return [name for name in ours if name not in applied and not (former and name == _SCHEMA)]


async def _apply(connection: psycopg.AsyncConnection, text: str, names: Mapping[str, str]) -> None:
    async with connection.transaction():
        await connection.execute("SET LOCAL search_path = procrastinate")
        await connection.execute(text.encode())
        for name, noted in names.items():
            await connection.execute(
                "INSERT INTO fluxqueue.migration (name, digest) VALUES (%s, %s)", (name, _digest(noted))
            )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@asynccontextmanager
async def _locked(dsn: str, timeout_s: float) -> AsyncIterator[psycopg.AsyncConnection]:
    """Borrow a connection that holds the lock of migrations; closing it releases the lock."""
    try:
        async with asyncio.timeout(timeout_s):
            connection = await psycopg.AsyncConnection.connect(
                dsn, autocommit=True, application_name="fluxqueue-migrate"
            )
    except (psycopg.OperationalError, TimeoutError) as error:
        raise DatabaseUnavailable(
            f"{place_of(dsn)} cannot be reached to be migrated: {cause_of(error)}"
        ) from error
    async with connection:
        try:
            await refuse_pooler(connection, place_of(dsn))
        except BehindPooler as error:
            raise DatabaseUnavailable(str(error)) from None
        await connection.execute(
            "SELECT set_config('lock_timeout', %s, false)", (f"{int(timeout_s * 1000)}ms",)
        )
        try:
            await connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        except psycopg.errors.LockNotAvailable as error:
            raise DatabaseUnavailable(
                f"{place_of(dsn)} has been migrated by another process for {timeout_s:.0f} s"
            ) from error
        try:
            yield connection
        except psycopg.Error as error:
            if not is_unavailable(error):
                raise
            raise DatabaseUnavailable(f"{place_of(dsn)} cannot be migrated: {cause_of(error)}") from error
