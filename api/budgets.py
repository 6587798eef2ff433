"""Limits on how often something costly is done for callers: a budget for each of them, and one for all
together.

A budget grows with time up to a burst. Each caller spends its own, so one that asks for too much keeps nobody
else out; the common one bounds what many of them cost together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

__all__ = ["Budgets", "Rate"]

_MOST_CALLERS: Final = 1_024


@dataclass(frozen=True, slots=True)
class Rate:
    """How often: ``burst`` times at once, then ``per_s`` times a second."""

    per_s: float
    burst: float


class _Budget:
    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._left = rate.burst
        self._counted_at = now

    def has(self, now: float) -> bool:
        """Count what has grown since; return whether there is enough for one more."""
        self._left = min(self._rate.burst, self._left + (now - self._counted_at) * self._rate.per_s)
        self._counted_at = now
        return self._left >= 1

    def spend(self) -> None:
        self._left -= 1


class Budgets:
    """The budgets of callers, of whom the last `_MOST_CALLERS` are remembered.

    Parameters
    ----------
    each
        The rate of one caller.
    together
        The rate of all; None: only each one's counts.
    now
        Seconds of a clock that only increases.
    """

    def __init__(self, each: Rate, together: Rate | None, now: float) -> None:
        self._each = each
        self._together = _Budget(together, now) if together is not None else None
        self._callers: OrderedDict[Hashable, _Budget] = OrderedDict()

    def spend(self, caller: Hashable, now: float) -> bool:
        """Spend one of a caller's budget and of the common one;
        False, and nothing is spent, if there is not enough.
        """
        own = self._callers.pop(caller, None) or _Budget(self._each, now)
        self._callers[caller] = own
        while len(self._callers) > _MOST_CALLERS:
            self._callers.popitem(last=False)
        spent = [own] if self._together is None else [own, self._together]
        if not all(budget.has(now) for budget in spent):
            return False
        for budget in spent:
            budget.spend()
        return True
