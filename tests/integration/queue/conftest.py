"""A migrated database for each test, a store on it, and a leader with a matcher for tests that define
nodes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.poolers import Pooler, pooler_of
from support.queue_bench import Bench, a_leader

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, Store, migrate


@pytest.fixture(scope="session")
def database_template(postgres: LocalPostgres) -> str:
    """A migrated database that tests copy. Each process has its own, also in a shared Postgres."""
    name = f"queue_template_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    if not postgres.has_database(name):
        asyncio.run(migrate(postgres.create_database(name)))
    return name


@pytest.fixture(scope="session")
def pooler(postgres: LocalPostgres, service_folder: Path) -> Iterator[Pooler]:
    """A PgBouncer in front of the server."""
    with pooler_of(postgres, service_folder) as running:
        yield running


@pytest.fixture
async def pool(database: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """Connections to the database of the test; through a pooler if ``FLUXQUEUE_TEST_POOLER`` is set,
    as `make test-postgres` does once.
    """
    pooled = bool(os.environ.get("FLUXQUEUE_TEST_POOLER"))
    dsn = request.getfixturevalue("pooler").dsn(database) if pooled else database
    async with Database(dsn, size=12, pooled=pooled) as opened:
        yield opened


@pytest.fixture
async def store(pool: Database) -> Store:
    """A store on that database."""
    return Store(pool)


@pytest.fixture
async def epoch(store: Store) -> Epoch:
    """The epoch of the leader ``replica-0``."""
    return await store.acquire_leadership("replica-0")


@pytest.fixture
async def fluxion() -> AsyncIterator[LocalFluxion]:
    """A matcher in this process."""
    matcher = LocalFluxion()
    yield matcher
    await matcher.close()


@pytest.fixture
async def bench(store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion) -> AsyncIterator[Bench]:
    """A leader of the nodes in the test's fixture ``nodes``."""
    async with a_leader(store, nodes, fluxion) as made:
        yield made
