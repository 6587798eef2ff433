"""The grace period of a pod: when its containers are killed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time

__all__ = ["GracePeriod"]


class GracePeriod:
    """The time that a pod has for its end; once it has begun, it can only become shorter."""

    def __init__(self) -> None:
        self._ends = math.inf
        self._shortened = asyncio.Event()

    @property
    def left_s(self) -> float:
        """What is left of it."""
        return max(0.0, self._ends - time.monotonic())

    def begin(self, grace_s: float) -> None:
        """Begin it, or shorten it."""
        self._ends = min(self._ends, time.monotonic() + grace_s)
        self._shortened.set()

    async def over(self) -> None:
        """Wait until it is over."""
        while self.left_s > 0:
            self._shortened.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._shortened.wait(), self.left_s)
