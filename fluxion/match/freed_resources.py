"""A log of what became free: it decides which reservations may start earlier.

A reservation has the earliest start that was possible when it was made. An earlier start is only possible on
a node where something became free since then. What became free would have been held from some time until some
time; windows that end before it, or begin after it, had it already.

So two things are kept: this log, and with each reservation how much was available for it at every earlier
time (its `Shortfall`). Together they are an upper bound of what is available now. Nearly always that is still
too little, which is known without a search. Then this bound is kept instead, so that the same is not examined
again. It is less exact each time, until a search replaces it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["EVER", "FreedLog", "FreedRows", "Indices", "Shortfall", "Times"]

EVER = 1 << 62
"""The end of what no job held: the node itself changed."""
_MAX_KEPT = 16_384
_MAX_EXAMINED = 1_024
Times = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The most that was available for a request at times at which it did not fit.

    Attributes
    ----------
    before
        It covers windows that begin earlier than this.
    times, most
        From each time on, the most slots (or nodes) that a window beginning by then could have had; both
        ascending.
    tick
        What became free since is not counted yet; on the clock of `FreedLog`.
    """

    before: int
    times: Times
    most: Times
    tick: int = 0

    def by(self, times: Times) -> Times:
        """Return the most that was available for windows that begin earlier than each of these times."""
        most: Times = np.append(0, self.most)[np.searchsorted(self.times, times, side="left")]
        return most

    def after(self, times: Times, gains: Times, until: int, least: int) -> Shortfall | None:
        """Return this with what was gained from each of these ascending times on until the next, the last one
        until ``until``; None if any gain makes it enough.
        """
        following = np.append(times[1:], until)
        gained = (gains > 0) & (times < following)
        if not gained.any():
            return self
        if (gained & (gains + self.by(following) >= least)).any():
            return None
        all_times = np.unique(np.append(self.times, times))
        gains_by_then = np.append(0, gains)[np.searchsorted(times, all_times, side="right")]
        most = np.maximum.accumulate(gains_by_then + self.by(all_times + 1))
        rises = np.flatnonzero(np.append(most[:1] > 0, most[1:] > most[:-1]))
        return Shortfall(self.before, all_times[rises], most[rises])


@dataclass(frozen=True, slots=True)
class FreedRows:
    """Rows on which something became free, ascending, and the times from which and until which it would have
    been held.
    """

    rows: Indices
    begin: Times
    until: Times


class FreedLog:
    """A log of what became free.

    Attributes
    ----------
    tick
        The present, on the log's own clock, which `next_tick` advances.
    """

    def __init__(self) -> None:
        self.tick = 0
        self.forget()

    def forget(self) -> None:
        """Clear the log: from now on, anything may have become free anywhere."""
        self._known_from = self.tick
        self._ticks: list[int] = []
        self._rows: list[int] = []
        self._begin: list[int] = []
        self._until: list[int] = []

    def note(self, row: int, until: int = EVER, begin: int = -EVER) -> None:
        """Record that something on a node became free that would have been held from ``begin`` until
        ``until``.
        """
        self._ticks.append(self.tick)
        self._rows.append(row)
        self._begin.append(begin)
        self._until.append(until)
        if len(self._ticks) > _MAX_KEPT:
            half = _MAX_KEPT // 2
            self._known_from = self._ticks[half - 1]
            del self._ticks[:half], self._rows[:half], self._begin[:half], self._until[:half]

    def next_tick(self) -> int:
        """Advance the clock; what becomes free from now on is later than the returned tick."""
        self.tick += 1
        return self.tick - 1

    def since(self, tick: int) -> FreedRows | None:
        """Return what became free later than this; None if that is not known, or too much to examine."""
        first = bisect_right(self._ticks, tick)
        if tick < self._known_from or len(self._ticks) - first > _MAX_EXAMINED:
            return None
        rows, until = (
            np.array(self._rows[first:], dtype=np.intp),
            np.array(self._until[first:], dtype=np.int64),
        )
        begin = np.array(self._begin[first:], dtype=np.int64)
        if not len(rows):
            return FreedRows(rows, begin, until)
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        firsts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
        return FreedRows(
            rows[firsts], np.minimum.reduceat(begin[order], firsts), np.maximum.reduceat(until[order], firsts)
        )
