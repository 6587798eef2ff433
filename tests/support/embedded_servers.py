"""A server of the project in the event loop of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from fluxqueue.certs.https import EmbeddedServer

__all__ = ["serving"]


@asynccontextmanager
async def serving(config: uvicorn.Config) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port."""
    server = EmbeddedServer(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:
            await asyncio.sleep(0.01)
    try:
        yield config.port
    finally:
        server.should_exit = True
        async with asyncio.timeout(60):
            await task
