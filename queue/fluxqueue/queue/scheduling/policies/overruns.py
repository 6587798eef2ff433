"""The planned end of work that runs longer than its stated duration.

Unless its queue ends it then, its planned end moves by a tenth of the stated duration, at least by a minute, as often as needed to
be in the future again. Reservations on its nodes are planned again and name the overrun as their cause.
"""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ["LEAST_EXTENSION_S", "extended_end"]

LEAST_EXTENSION_S = 60


def extended_end(start: datetime, end: datetime, now: datetime) -> datetime:
    """Return the next planned end of work that did not end at its planned end.

    Parameters
    ----------
    start, end
        The present plan.
    now
        Not before ``end``.

    Returns
    -------
    datetime
        Later than ``now``, at most by max(60 s, 10 % of the planned duration).
    """
    step = timedelta(seconds=max(LEAST_EXTENSION_S, round((end - start).total_seconds() / 10)))
    return end + step * ((now - end) // step + 1)
