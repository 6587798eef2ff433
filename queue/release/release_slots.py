"""How many releases are under way at once: when one ends, the next is of the namespace whose turn it is.

First come, first served would have a single pod wait for two thousand that were granted together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fluxqueue.api.namespacelines import NamespaceLines

__all__ = ["ReleaseSlots"]


class ReleaseSlots:
    """A semaphore that namespaces take in turn.

    Parameters
    ----------
    count
        How many may be under way.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: NamespaceLines[asyncio.Future[None]] = NamespaceLines()
        """Nothing waits while one is free."""

    @asynccontextmanager
    async def of(self, namespace: str) -> AsyncIterator[None]:
        """Wait for the turn of a release of a namespace, and hold a slot meanwhile."""
        await self._take(namespace)
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self, namespace: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(namespace, turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.discard(turn)
            if not turn.cancelled():  # it got its turn just before
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            if not (turn := self._waiting.take()).cancelled():
                turn.set_result(None)
                return
        self._free += 1
