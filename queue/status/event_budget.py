"""How many Events that can wait are sent: a rate for all work together, which no burst of work can raise.

What finds nothing left is looked at again later, by the sweep at the latest, and nothing is kept for it. What
is looked at first is what was submitted first.
"""

from __future__ import annotations

__all__ = ["EventBudget"]


class EventBudget:
    """A bucket of tokens.

    Parameters
    ----------
    every_s
        Seconds until there is one more token.
    most
        Tokens that can be saved up; so many there are at the start.
    """

    def __init__(self, every_s: float, most: int) -> None:
        self._every_s = every_s
        self._most = float(most)
        self._tokens = float(most)
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Take a token, and return false if there is none.

        Parameters
        ----------
        now
            Seconds of any monotonic clock.
        """
        self._tokens = min(self._tokens + max(now - self._at, 0.0) / self._every_s, self._most)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
