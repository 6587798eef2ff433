"""What became free, where, and for how long: by which it is told which reservations may be bettered.

A reservation stands at the earliest moment there was when it was made. An earlier one can only come from a node on which something became
free since. What is given back is something that would have been held until a certain moment; windows that begin later had it already.

So two things are kept: a log of openings, and with each reservation how much there would have been for it at every earlier moment (its
`Shortfall`). Together they bound what there can be now, and nearly always that is still too little, told without a search.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["EVER", "Indices", "Opened", "Openings", "Shortfall", "Times"]

EVER = 1 << 62
"""Stands for the end of what was held by no job: the node itself changed."""
_MAX_KEPT = 16_384
_MAX_LOOKED_AT = 1_024
Times = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """How much there was at most for a request that did not fit earlier.

    Attributes
    ----------
    before
        It is about windows that begin earlier than this.
    times, most
        From each moment on, the most slots (or nodes) that a window beginning by then could have had; ascending both.
    tick
        When this was so, on the clock of `Openings`.
    """

    before: int
    times: Times
    most: Times
    tick: int = 0

    def by(self, moments: Times) -> Times:
        """The most there was for windows that begin earlier than each of these moments."""
        found: Times = np.append(0, self.most)[np.searchsorted(self.times, moments, side="left")]
        return found


@dataclass(frozen=True, slots=True)
class Opened:
    """Rows on which something became free, ascending, and until when it would have been held."""

    rows: Indices
    until: Times


class Openings:
    """A log of what became free.

    Attributes
    ----------
    tick
        The present, on a clock of its own that `settle` moves.
    """

    def __init__(self) -> None:
        self.tick = 0
        self.forget()

    def forget(self) -> None:
        """Anything may have become free anywhere."""
        self._known_from = self.tick
        self._ticks: list[int] = []
        self._rows: list[int] = []
        self._until: list[int] = []

    def note(self, row: int, until: int = EVER) -> None:
        """Something on a node became free that was held until then."""
        self._ticks.append(self.tick)
        self._rows.append(row)
        self._until.append(until)
        if len(self._ticks) > _MAX_KEPT:
            half = _MAX_KEPT // 2
            self._known_from = self._ticks[half - 1]
            del self._ticks[:half], self._rows[:half], self._until[:half]

    def settle(self) -> int:
        """Let a moment pass; what becomes free from now on is later than the number returned."""
        self.tick += 1
        return self.tick - 1

    def since(self, tick: int) -> Opened | None:
        """What became free later than this; None if that is not known, or too much to look at."""
        first = bisect_right(self._ticks, tick)
        if tick < self._known_from or len(self._ticks) - first > _MAX_LOOKED_AT:
            return None
        rows, until = np.array(self._rows[first:], dtype=np.intp), np.array(self._until[first:], dtype=np.int64)
        order = np.lexsort((until, rows))
        rows, until = rows[order], until[order]
        last = np.append(rows[1:] != rows[:-1], True) if len(rows) else np.zeros(0, dtype=np.bool_)
        return Opened(rows[last], until[last])
