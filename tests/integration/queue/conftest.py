"""A migrated database per test, and a store on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store import Database, Store, migrate


@pytest.fixture(scope="session")
def database_template(postgres: LocalPostgres) -> str:
    """A migrated database to copy."""
    name = "queue_template"
    if not postgres.has_database(name):
        asyncio.run(migrate(postgres.create_database(name)))
    return name


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Database]:
    """Connections to a database of this test's own."""
    async with Database(database, size=12) as opened:
        yield opened


@pytest.fixture
async def store(pool: Database) -> Store:
    """A store on it."""
    return Store(pool)


@pytest.fixture
async def epoch(store: Store) -> Epoch:
    """The store's leader's."""
    return await store.acquire_leadership("replica-0")
