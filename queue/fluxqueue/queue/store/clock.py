"""The leader's clock: the time of the tables, known without a query, which never goes back.

Times to wait for are written by one of two clocks and compared by the other: the claim of a release, the backoff after a failed start, a
reservation, a planned end, the retention. So the two must agree. Postgres may be replaced by a server whose clock is behind, and then the
clock of the tables would be behind the times that are stored in them. The leader therefore compares its own, monotonic clock with that of
the tables when it begins, in every sweep, and whenever Postgres was away. Tables that are behind are moved ahead (`Store.keep_clock`), and
so is a leader that is behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Store

__all__ = ["LeaderClock"]

_ANSWER_S = 0.05
"""No answer of the tables is taken for older than this when it arrives."""


class LeaderClock:
    """The time, after `keep` was called for the first time.

    Parameters
    ----------
    store, epoch
        The tables and the leader whose time it is.
    pace
        A clock that counts seconds evenly.
    """

    def __init__(self, store: Store, epoch: Epoch, pace: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._epoch = epoch
        self._pace = pace
        self._known: tuple[datetime, float] | None = None

    def __call__(self) -> datetime:
        """Return the time."""
        if self._known is None:
            raise RuntimeError("LeaderClock.keep was never called")
        time_then, then = self._known
        return time_then + timedelta(seconds=self._pace() - then)

    async def keep(self) -> None:
        """Compare the clock with that of the tables; the one that is behind moves ahead."""
        began = self._pace()
        time_there = await self._store.keep_clock(self._epoch, self() if self._known is not None else None)
        ended = self._pace()
        known = time_there, max((began + ended) / 2, ended - _ANSWER_S)  # a call that waited for Postgres was answered at its end
        if self._known is None or known[0] + timedelta(seconds=self._pace() - known[1]) > self():
            self._known = known
