"""A Fluxion service on a loopback port, in the test's own event loop, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fluxqueue.fluxion.rpc.client import AsyncFluxionClient, Deadlines
from fluxqueue.fluxion.rpc.server import FluxionServerSettings, RunningServer, serve


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    async with serve(FluxionServerSettings(port=0, grace_s=5)) as running:
        yield running


@pytest.fixture
async def fluxion(server: RunningServer) -> AsyncIterator[AsyncFluxionClient]:
    async with AsyncFluxionClient(f"127.0.0.1:{server.port}", deadlines=Deadlines(60, 30)) as client:
        yield client


@pytest.fixture(autouse=True)
def logs_of_the_tests_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that runs in the test's process leaves its logs alone:
    loggers remember the stream they first wrote to.
    """
    monkeypatch.setattr("fluxqueue.fluxion.main.configure_logging", lambda _level: None)
