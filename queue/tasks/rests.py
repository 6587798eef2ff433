"""Pauses between the turns of large objects.

A gang is read as a whole each time one of its pods changes. If it were read for each change, thousands of
pods that come one by one would cost the square of their number. So it rests after each turn, for a time that
grows with its size, and what has changed meanwhile is read together. Small ones do not rest.

On a busy machine a turn takes many times longer than its work. A rest of a fixed length would be over when
the turn ends, and the gang would have the event loop for itself. So a rest is also some times as long as the
turn was, from its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

__all__ = ["Rests", "Turns"]

K = TypeVar("K", bound=Hashable)

_SHORT_S = 0.01
"""A shorter rest is not made."""
_OF_TURN = 4.0
"""A large object has a fifth of the time at most."""
_LONGEST_S = 5.0


class Rests(Generic[K]):
    """When large objects may be handled again.

    Parameters
    ----------
    again
        Called with the key of one that rests, and the seconds after which it is to be handed out again.
    of_pod_s
        Rest for each of its pods, from the beginning of its turn: a few times what a turn takes for one.
    """

    def __init__(self, again: Callable[[K, float], None], of_pod_s: float) -> None:
        self._again = again
        self._of_pod_s = of_pod_s
        self._until: dict[K, float] = {}
        self._turns: dict[K, float] = {}
        """When the turns began that are not over."""

    def rests(self, key: K, size: int) -> bool:
        """True if an object rests, so that it has its turn later. If it does not, its turn begins, and it
        rests after that.
        """
        rest_s = size * self._of_pod_s
        if rest_s < _SHORT_S:
            return False
        now = asyncio.get_running_loop().time()
        if (left_s := self._until.get(key, now) - now) > 0:
            self._again(key, left_s)
            return True
        self._until[key], self._turns[key] = now + rest_s, now
        return False

    def over(self, keys: Iterable[K]) -> None:
        """Have those of the objects whose turn is over now rest at least some times as long as it took."""
        now = asyncio.get_running_loop().time()
        for key in keys:
            if (began := self._turns.pop(key, None)) is not None:
                self._until[key] = max(
                    self._until.get(key, now), now + min(_OF_TURN * (now - began), _LONGEST_S)
                )

    def end(self, keys: Iterable[K]) -> None:
        """End the rests of objects whose turn failed: they are tried again,
        and a turn that is put off would count as done.
        """
        for key in keys:
            self._until.pop(key, None)
            self._turns.pop(key, None)

    def prune(self) -> None:
        """Forget those that do not rest any more."""
        if self._until:
            now = asyncio.get_running_loop().time()
            self._until = {key: until for key, until in self._until.items() if until > now}
        # not all users say when a turn is over
        self._turns = {key: began for key, began in self._turns.items() if key in self._until}


class Turns(Generic[K]):
    """Turns that are short and made where something changes. Thousands of changes come at once, and each
    could concern thousands.

    After a turn that looked at many, the next change has one, and those that follow are noted: together they
    have one after a rest.

    Parameters
    ----------
    turn
        Called with a key; returns how many objects it looked at.
    of_one_s
        Rest for each of them.
    """

    def __init__(self, turn: Callable[[K], int], of_one_s: float) -> None:
        self._turn = turn
        self._rests: Rests[K] = Rests(self._put_off, of_one_s)
        self._sizes: dict[K, int] = {}
        """How many the last turn looked at."""
        self._late: set[K] = set()

    def due(self, key: K) -> None:
        """Have the turn of a key now, or after its rest."""
        if key not in self._late and not self._rests.rests(key, self._sizes.get(key, 0)):
            self._sizes[key] = self._turn(key)

    def prune(self) -> None:
        """Forget the keys that do not rest any more."""
        self._rests.prune()
        self._sizes = {key: self._sizes[key] for key in self._late if key in self._sizes}

    def _put_off(self, key: K, delay_s: float) -> None:
        self._late.add(key)
        asyncio.get_running_loop().call_later(delay_s, self._have_late, key)

    def _have_late(self, key: K) -> None:
        self._late.discard(key)
        self.due(key)
