"""Keys gathered while their predecessors are being worked on, handed out together.

The controllers that end in one database transaction want as many keys as have come up, not one: the busier the cluster, the larger the
batch, and the cost per object falls. The first key after a quiet moment is handed out at once; while keys keep coming, batches keep a pace,
so that a burst becomes few large batches. A key that comes up while its batch is being worked on waits for the next one; a batch that fails
is tried again, after a delay that doubles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from fluxqueue.queue.store import DatabaseUnavailable, StaleLeader

__all__ = ["Batches"]

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)

_PACE_S = 0.04
_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 10.0


class Batches(Generic[K]):
    """A set of keys with a worker.

    Parameters
    ----------
    name
        For the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._keys: dict[K, None] = {}
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: K) -> None:
        """Ask for the key to be worked on; in the order of first asking."""
        self._keys.setdefault(key)
        self._some.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """The same, later."""
        asyncio.get_running_loop().call_later(delay_s, self.add, key)

    async def run(self, work: Callable[[list[K]], Awaitable[None]], *, limit: int) -> None:
        """Hand out batches of at most ``limit`` keys until cancelled.

        Raises
        ------
        StaleLeader
            From the work: another replica leads, and everything here must end.
        """
        delay_s = _FIRST_DELAY_S
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        while True:
            await self._some.wait()
            await asyncio.sleep(max(next_at - loop.time(), 0))
            batch = list(self._keys)[:limit]
            for key in batch:
                del self._keys[key]
            if not self._keys:
                self._some.clear()
            try:
                await work(batch)
            except StaleLeader:
                raise
            except Exception as error:
                log.warning(
                    "a batch failed and is tried again",
                    batch=self._name,
                    keys=len(batch),
                    error=str(error),
                    retry_s=delay_s,
                    exc_info=not isinstance(error, DatabaseUnavailable),
                )
                for key in batch:
                    self._keys.setdefault(key)
                self._some.set()
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _LONGEST_DELAY_S)
            else:
                delay_s = _FIRST_DELAY_S
            next_at = loop.time() + _PACE_S
