"""How accurate former start estimates were, and the range that follows for the next ones.

A plan assumes that work takes all of its stated duration, and it usually takes less. So work starts before
its estimate, in about the same proportion as the work before it. The last thousand starts give that
proportion. Its 5 % quantile is the early end of the range and the plan is the late end. Until ten starts are
known, the range begins now.
"""

from __future__ import annotations

from collections import deque

import numpy as np

__all__ = ["EstimateHistory"]

_MOST_STARTS = 1000
_FEWEST_STARTS = 10
_LOW_QUANTILE = 0.05


class EstimateHistory:
    """Waits of started work in proportion to their estimates."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=_MOST_STARTS)
        self._low: float | None = None

    def add(self, estimated_s: float, waited_s: float) -> None:
        """Record that work started after ``waited_s`` seconds that was estimated to start after
        ``estimated_s``.
        """
        if estimated_s > 0:
            self._ratios.append(min(1.0, max(0.0, waited_s / estimated_s)))
            self._low = None

    @property
    def low(self) -> float:
        """The proportion that 19 of 20 starts reached; 0 while too few are known."""
        if self._low is None:
            self._low = (
                float(np.quantile(self._ratios, _LOW_QUANTILE))
                if len(self._ratios) >= _FEWEST_STARTS
                else 0.0
            )
        return self._low

    def soonest(self, now: int, start: int) -> int:
        """Return the early end of the range for a start planned at ``start`` (Unix seconds)."""
        return now + int((start - now) * self.low) if start > now else start
