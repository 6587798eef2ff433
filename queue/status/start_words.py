"""When a workload is expected to start, as an Event says it, and when that has changed so much that it is
said again.

Times are absolute, in UTC: an Event is read later than it was written.
"""

from __future__ import annotations

from datetime import datetime

from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.estimates import Estimate

__all__ = ["has_moved", "start_words"]

_LEAST_MOVE_S = 600.0
_PART = 4


def start_words(estimate: Estimate | None, queue: str) -> str:
    """Return when work of a queue is expected to start; empty if nothing is known."""
    if estimate is None:
        return ""
    place = f"position {estimate.position} in the queue {queue!r}" if estimate.position is not None else ""
    if estimate.eta is None:
        return place
    at = time_text(estimate.eta)
    start = f"its nodes are reserved from {at}" if estimate.reserved else f"expected to start by {at}"
    return f"{start}, {place}" if place else start


def has_moved(before: datetime | None, told_at: datetime, now: datetime | None) -> bool:
    """True if an expected start is another one than was said: by ten minutes, and by a quarter of what was
    left of the wait then.

    Parameters
    ----------
    before, told_at
        What was said, and when.
    now
        What is expected now; None: nothing, which is not said.
    """
    if now is None:
        return False
    if before is None:
        return True
    left_s = (before - told_at).total_seconds()
    return abs((now - before).total_seconds()) > max(_LEAST_MOVE_S, left_s / _PART)
