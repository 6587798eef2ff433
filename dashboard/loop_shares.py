"""How much of the event loop each person takes by his pages.

Pages are made in the loop, and those with words of a person's own choice are shared with nobody. So each of
his live pages waits, after one of them took time, until that is a small part of what has passed since. Pages
that he loads are counted apart: they wait only where he is far beyond this part, and only some at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

__all__ = ["LoopShares", "TooMany", "measured"]

T = TypeVar("T")

_SHARE: Final = 0.1
_AHEAD_S: Final = 5.0
"""How much sooner than a live page a page is made that somebody loads."""
_MOST_LOADED: Final = 20
_MOST_KEPT: Final = 512

_charge: ContextVar[Callable[[], Callable[[], None]] | None] = ContextVar("charge", default=None)
"""Begins to measure; what it returns ends that."""


class TooMany(Exception):
    """There are too many open pages; the message says so."""


class LoopShares:
    """Lets pages be made, one after another for each party (`Person.party`).

    Parameters
    ----------
    clock
        Seconds that only increase.
    cpu
        Seconds that this thread used.
    sleep
        Waits.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._cpu = cpu
        self._sleep = sleep
        self._free_at: dict[str, float] = {}
        self._loaded: Counter[str] = Counter()

    def pause_s(self, party: str) -> float:
        """Return how long the pages of a party have to wait."""
        return self._free_at.get(party, 0.0) - self._clock()

    async def wait(self, party: str, ahead_s: float = 0.0) -> None:
        """Wait until a page of a party may be made, or until some seconds before."""
        while (pause_s := self.pause_s(party) - ahead_s) > 0:
            await self._sleep(pause_s)

    async def load(self, party: str, make: Callable[[], Awaitable[T]]) -> T:
        """Make a page that somebody waits for, and charge what it takes to a party.

        Raises
        ------
        TooMany
            Too many of its pages are made, or wait for that.
        """
        if self._loaded[party] >= _MOST_LOADED:
            raise TooMany("too many pages are loaded at once: load this one again in some seconds")
        self._loaded[party] += 1
        try:
            await self.wait(party, _AHEAD_S)
            return await self.run(party, make())
        finally:
            self._loaded -= Counter((party,))

    async def run(self, party: str, making: Awaitable[T]) -> T:
        """Make a page, and charge what it takes, also in tasks that it begins, to a party."""
        token = _charge.set(partial(self._begin, party))
        try:
            return await measured(making)
        finally:
            _charge.reset(token)

    def _begin(self, party: str) -> Callable[[], None]:
        return partial(self._end, party, self._cpu())

    def _end(self, party: str, begun: float) -> None:
        now = self._clock()
        if len(self._free_at) >= _MOST_KEPT:
            self._free_at = {name: at for name, at in self._free_at.items() if at > now}
        self._free_at[party] = max(self._free_at.get(party, 0.0), now) + (self._cpu() - begun) / _SHARE


async def measured(making: Awaitable[T]) -> T:
    """Charge each step of a coroutine to whom its page is made for, if anybody."""
    charge = _charge.get()
    return await (making if charge is None else _Measured(making, charge))


class _Measured(Awaitable[T]):
    def __init__(self, making: Awaitable[T], charge: Callable[[], Callable[[], None]]) -> None:
        self._making = making
        self._charge = charge

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._making.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            end = self._charge()
            try:
                waited = step()
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                end()
            try:
                yield waited
                step = partial(next, steps)
            except BaseException as error:  # it is thrown into what waits
                step = partial(steps.throw, error)
