"""How durations were kept, and what that says about estimates.

People say how long their work runs at the most, and it usually runs shorter. A plan built on what they say is late: work begins before
its estimate, in about the proportion in which the work before it kept its word. The last thousand endings give that proportion; its low
end bounds the range from below, and the plan bounds it from above.
"""

from __future__ import annotations

from collections import deque

import numpy as np

__all__ = ["Experience"]

_REMEMBERED = 1000
_ENOUGH = 10
_LOW_QUANTILE = 0.05


class Experience:
    """Ratios of actual to stated durations."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=_REMEMBERED)
        self._low: float | None = None

    def learn(self, stated_s: float, actual_s: float) -> None:
        """Note how long work ran that had said ``stated_s`` seconds."""
        if stated_s > 0:
            self._ratios.append(min(1.0, max(0.0, actual_s / stated_s)))
            self._low = None

    @property
    def low(self) -> float:
        """The proportion that nineteen of twenty exceeded; 1 as long as too little is known."""
        if self._low is None:
            self._low = float(np.quantile(self._ratios, _LOW_QUANTILE)) if len(self._ratios) >= _ENOUGH else 1.0
        return self._low

    def soonest(self, now: int, start: int) -> int:
        """The soon end of the range of a start planned at ``start`` (Unix seconds)."""
        return now + int((start - now) * self.low) if start > now else start
