"""A Fluxion service on a loopback port, in the test's own event loop, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from fluxqueue.fluxion.client import AsyncFluxionClient, Deadlines
from fluxqueue.fluxion.server import RunningServer, Settings, serve


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    async with serve(Settings(port=0, grace_s=5)) as running:
        yield running


@pytest.fixture
async def fluxion(server: RunningServer) -> AsyncIterator[AsyncFluxionClient]:
    async with AsyncFluxionClient(f"127.0.0.1:{server.port}", deadlines=Deadlines(60, 30)) as client:
        yield client


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Programs that run in the test's process set up their logs."""
    yield
    structlog.reset_defaults()
