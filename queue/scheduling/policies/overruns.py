"""The planned end of work that runs longer than its stated duration.

Unless its queue ends it then, its planned end moves by half of the planned duration, at least by 5 s and at
most by a minute, or by a tenth of it if that is more, as often as needed to be in the future again. So short
work is expected to end soon even if it is late: reservations behind it stay near, and little can pass them.
Reservations on its nodes are planned again and name the overrun as their cause.
"""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ["extended_end"]

_LEAST_S = 5
_USUAL_S = 60


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
        Later than ``now``, by a step at most.
    """
    planned_s = (end - start).total_seconds()
    step = timedelta(seconds=max(_LEAST_S, min(round(planned_s / 2), _USUAL_S), round(planned_s / 10)))
    return end + step * ((now - end) // step + 1)
