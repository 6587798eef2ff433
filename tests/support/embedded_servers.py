"""A server of the project in the event loop of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fluxqueue.serving.guarded_server import GuardedServer

__all__ = ["serving"]


@asynccontextmanager
async def serving(server: GuardedServer) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port."""
    port = server.port
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:
            await asyncio.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        async with asyncio.timeout(60):
            await task
