"""Predicted durations: the mean of the last two run times of the same people.

People state durations that are several times too long, so that much that would end in time does not backfill.
Tsafrir, Etsion and Feitelson (*Backfilling using system-generated predictions rather than user runtime
estimates*, IEEE TPDS 18, 2007) predict the mean of the last two run times of the same user. Here a prediction
decides one thing: whether work behind the reservations of its queue is tried now. It is then planned to end
as predicted. Reservations are made, moved and shown by stated durations, and each planned end becomes the
stated one as soon as no reservation is in its way. Work that runs on is planned for twice as long, as often
as needed, up to what it stated.

A prediction is never longer than what was stated, and at least a minute. Work without an end, and work of
people with fewer than two known run times, has none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from fluxqueue.queue.scheduling.policies.overruns import extended_end
from fluxqueue.queue.scheduling.policies.passes import HeldReservation

__all__ = ["DurationHistory", "PredictionKey", "end_beyond_prediction", "lengthened_end"]

PredictionKey = tuple[str, str, str]
"""Whose run times are alike: the user (or the namespace), the account and the queue."""

_KNOWN = 2
_LEAST_S = 60
_MOST_KEYS = 20_000


class DurationHistory:
    """The last run times of each key. Of more than 20,000 keys the one that was used first is forgotten."""

    def __init__(self) -> None:
        self._last: dict[PredictionKey, deque[float]] = {}

    def add(self, key: PredictionKey, ran_s: float) -> None:
        """Record that work ended after this run time."""
        last = self._last.pop(key, None) or deque[float](maxlen=_KNOWN)
        last.append(max(ran_s, 0.0))
        self._last[key] = last
        if len(self._last) > _MOST_KEYS:
            del self._last[next(iter(self._last))]

    def predicted(self, key: PredictionKey, stated_s: int | None) -> int | None:
        """Return the predicted duration; None if there is none, or if it is not below the stated one."""
        last = self._last.get(key, ())
        if stated_s is None or len(last) < _KNOWN:
            return None
        mean = max(_LEAST_S, round(sum(last) / _KNOWN))
        return mean if mean < stated_s else None


def end_beyond_prediction(start: datetime, end: datetime, now: datetime, stated_s: int) -> datetime:
    """Return the next planned end of work that did not end as predicted: it runs twice as long, but not
    beyond what it stated.

    Parameters
    ----------
    start, end
        The present plan.
    now
        Not before ``end``. Beyond the stated end, the work overruns.
    """
    stated = start + timedelta(seconds=stated_s)
    if now >= stated:
        return extended_end(start, max(end, stated), now)
    least = now + timedelta(seconds=_LEAST_S)
    return min(stated, max(start + 2 * (end - start), least))


def lengthened_end(
    end: int, stated_end: int, nodes: Collection[str], reservations: Iterable[HeldReservation]
) -> int:
    """Return the latest end, up to the stated one, that is in the way of no reservation on these nodes;
    at least the present one.
    """
    occupied = set(nodes)
    starts = (
        each.start for each in reservations if each.start < stated_end and not occupied.isdisjoint(each.nodes)
    )
    return max(end, min(starts, default=stated_end))
