"""Pauses between the turns of large objects.

A gang is read as a whole each time one of its pods changes. If it were read for each change, thousands of pods that come one by one would
cost the square of their number. So it rests after each turn, for a time that grows with its size, and what has changed meanwhile is read
together. Small ones do not rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

__all__ = ["Rests"]

K = TypeVar("K", bound=Hashable)

_SHORT_S = 0.01
"""A shorter rest is not made."""


class Rests(Generic[K]):
    """When large objects may be handled again.

    Parameters
    ----------
    again
        Called with the key of one that rests, and the seconds after which it is to be handed out again.
    of_pod_s
        Rest for each of its pods: a few times what a turn takes for one.
    """

    def __init__(self, again: Callable[[K, float], None], of_pod_s: float) -> None:
        self._again = again
        self._of_pod_s = of_pod_s
        self._until: dict[K, float] = {}

    def rests(self, key: K, size: int) -> bool:
        """True if an object rests, so that it has its turn later. If it does not, its turn begins, and it rests after that.

        Parameters
        ----------
        key
            Of the object.
        size
            The number of its pods or slots.
        """
        rest_s = size * self._of_pod_s
        if rest_s < _SHORT_S:
            return False
        now = asyncio.get_running_loop().time()
        if (left_s := self._until.get(key, now) - now) > 0:
            self._again(key, left_s)
            return True
        self._until[key] = now + rest_s
        return False

    def end(self, keys: Iterable[K]) -> None:
        """End the rests of objects whose turn failed: they are tried again, and a turn that is put off would count as done."""
        for key in keys:
            self._until.pop(key, None)

    def prune(self) -> None:
        """Forget those that do not rest any more."""
        if self._until:
            now = asyncio.get_running_loop().time()
            self._until = {key: until for key, until in self._until.items() if until > now}
