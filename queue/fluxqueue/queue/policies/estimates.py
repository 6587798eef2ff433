"""How estimates came true, and what that says about the next.

A plan is built on what people say their work takes at the most, and it usually takes less. So work begins before its estimate, in about
the proportion in which the work before it did. The last thousand starts give that proportion; its low end bounds the range from below,
and the plan bounds it from above. While too little is known, the range begins now.
"""

from __future__ import annotations

from collections import deque

import numpy as np

__all__ = ["Experience"]

_REMEMBERED = 1000
_ENOUGH = 10
_LOW_QUANTILE = 0.05


class Experience:
    """How long starts took that were estimated, in proportion to the estimate."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=_REMEMBERED)
        self._low: float | None = None

    def learn(self, told_s: float, took_s: float) -> None:
        """Note that a start told to be ``told_s`` seconds away came after ``took_s``."""
        if told_s > 0:
            self._ratios.append(min(1.0, max(0.0, took_s / told_s)))
            self._low = None

    @property
    def low(self) -> float:
        """The proportion that nineteen of twenty reached; 0 as long as too little is known."""
        if self._low is None:
            self._low = float(np.quantile(self._ratios, _LOW_QUANTILE)) if len(self._ratios) >= _ENOUGH else 0.0
        return self._low

    def soonest(self, now: int, start: int) -> int:
        """The soon end of the range of a start planned at ``start`` (Unix seconds)."""
        return now + int((start - now) * self.low) if start > now else start
