"""How many binds may be in flight, adapted to the load of the API server.

The limit follows additive increase and multiplicative decrease, as in TCP. Each round of successful binds
raises it by one. A response 429, a server error or a time-out halves it, once for all binds that were in
flight together, and no bind is sent before the time in ``Retry-After``. An idle API server is used fully, a
busy one is left alone, and a site needs no setting for it. Waiting calls are served in the order of their
arrival, which keeps the pods of a gang in the order of their ranks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["BindLimit"]

FIRST: Final = 16.0
MOST: Final = 64.0
LONGEST_PAUSE_S: Final = 30.0
"""Upper bound of a pause, whatever the server asks for."""


class BindLimit:
    """A limit for calls in flight.

    Parameters
    ----------
    first, most
        The initial and the highest limit. The limit is never below one.
    clock
        Monotonic seconds.

    Attributes
    ----------
    value
        The current limit, as a fraction.
    in_flight
        The number of calls in flight.
    """

    def __init__(self, first: float = FIRST, most: float = MOST, *, clock: Callable[[], float]) -> None:
        self.value = first
        self.in_flight = 0
        self._most = most
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._resume_at = float("-inf")
        self._halved = 0
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self) -> int:
        """Wait for a slot and return a ticket.
        One call of `succeeded`, `overloaded` or `done` must follow.
        """
        if self._waiting or not self._free:
            slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(slot)
            self._wake()
            try:
                await slot
            except asyncio.CancelledError:
                if slot.done() and not slot.cancelled():
                    self.done()
                raise
        else:
            self.in_flight += 1
        return self._halved

    def succeeded(self) -> None:
        """End a successful call. Raise the limit if it was fully used."""
        if self.in_flight >= int(self.value):
            self.value = min(self._most, self.value + 1 / self.value)
        self.done()

    def overloaded(self, ticket: int, pause_s: float = 0.0) -> None:
        """End a call that an overloaded server failed. Halve the limit.

        Parameters
        ----------
        ticket
            From `acquire`. Only the first failure among calls that were in flight together halves the limit.
        pause_s
            Seconds that the server asks clients to wait.
        """
        if ticket == self._halved:
            self._halved += 1
            self.value = max(1.0, self.value / 2)
        self._resume_at = max(self._resume_at, self._clock() + min(pause_s, LONGEST_PAUSE_S))
        self.done()

    def done(self) -> None:
        """End a call that says nothing about the load of the server."""
        self.in_flight -= 1
        self._wake()

    @property
    def _free(self) -> bool:
        return self.in_flight < int(self.value) and self._clock() >= self._resume_at

    def _wake(self) -> None:
        while self._waiting and self._free:
            slot = self._waiting.popleft()
            if not slot.done():
                self.in_flight += 1
                slot.set_result(None)
        pause_s = self._resume_at - self._clock()
        if self._waiting and pause_s > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._wake()
