"""Which rows have changed: it decides which reservations may start earlier.

A reservation has the earliest start that was possible when it was made. So two things are kept: a log of the
rows on which something has changed, and with each reservation how many slots each node had for it at every
earlier time (its `Shortfall`). They were too few at each of them, so few nodes had any. Later only the rows
that have changed since are computed, and all is summed up again. Nearly always it is still too little, which
is known without a search. Then the new numbers are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["ChangedRows", "Indices", "Shortfall", "Times"]

_MAX_KEPT = 16_384
Times = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The most slots that each row had for a request at times at which all together were too few.

    Attributes
    ----------
    before
        It covers windows that begin earlier than this.
    rows, times, steps
        By how much the slots of a row change from a time on: those that a window that begins then has there.
    tick
        What changed since is not counted yet; on the clock of `ChangedRows`.
    """

    before: int
    rows: Indices
    times: Times
    steps: Times
    tick: int = 0

    @classmethod
    def of(cls, before: int, rows: Indices, times: Times, steps: Times) -> Shortfall:
        """Return what these columns say of windows that begin before a time: most rows have no slot then."""
        kept = (times < before) & (steps != 0)
        return cls(before, rows[kept], times[kept], steps[kept])

    def after(self, changed: npt.NDArray[np.bool_], new: Shortfall, least: int) -> Shortfall | None:
        """Return this with new steps of the rows that changed; None if these have slots at a time at which
        there are enough in all.
        """
        kept = ~changed[self.rows]
        rows, times, steps = (
            np.concatenate([old[kept], own])
            for old, own in ((self.rows, new.rows), (self.times, new.times), (self.steps, new.steps))
        )
        if len(new.rows):
            order = times.argsort(kind="stable")
            own = np.arange(len(times)) >= len(times) - len(new.times)
            gains = np.where(own, steps, 0)[order].cumsum()
            in_order = times[order]
            last = np.append(in_order[1:] != in_order[:-1], True)
            if (last & (gains > 0) & (steps[order].cumsum() >= least)).any():
                return None
        return Shortfall(self.before, rows, times, steps)


class ChangedRows:
    """A log of the rows on which something was booked, became free or changed.

    Attributes
    ----------
    tick
        The present, on the log's own clock, which `next_tick` advances.
    """

    def __init__(self) -> None:
        self.tick = 0
        self.forget()

    def forget(self) -> None:
        """Clear the log: until now, anything may have changed anywhere."""
        self._known_from = self.tick
        self.tick += 1
        self._ticks: list[int] = []
        self._rows: list[int] = []
        self._answer: tuple[int, Indices] | None = None

    def note(self, row: int) -> None:
        """Record that something on a node changed."""
        self._ticks.append(self.tick)
        self._rows.append(row)
        self._answer = None
        if len(self._ticks) > _MAX_KEPT:
            half = _MAX_KEPT // 2
            self._known_from = self._ticks[half - 1]
            del self._ticks[:half], self._rows[:half]

    def next_tick(self) -> int:
        """Advance the clock if anything has changed; what changes from now on is later than the returned
        tick.
        """
        if self._ticks and self._ticks[-1] == self.tick:
            self.tick += 1
        return self.tick - 1

    def since(self, tick: int) -> Indices | None:
        """Return the rows that changed later than this, ascending; None if that is not known."""
        if tick < self._known_from:
            return None
        if self._answer is None or self._answer[0] != tick:
            rows = sorted(set(self._rows[bisect_right(self._ticks, tick) :]))
            self._answer = tick, np.array(rows, dtype=np.intp)
        return self._answer[1]
