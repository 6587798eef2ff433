"""What is planned for work that runs longer than it said: it is believed anew, a bit at a time.

Nothing is ended for overrunning. Its planned end moves by a tenth of what it said, by a minute at the least, as often as that is needed
to lie ahead again; what was promised on its nodes is planned anew and says why.
"""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ["LEAST_PUSH_S", "pushed_end"]

LEAST_PUSH_S = 60


def pushed_end(start: datetime, end: datetime, now: datetime) -> datetime:
    """The planned end of work that did not end at its planned end.

    Parameters
    ----------
    start, end
        As planned so far.
    now
        Not before ``end``.

    Returns
    -------
    datetime
        Later than ``now``, by max(60 s, 10 %) at the most.
    """
    step = timedelta(seconds=max(LEAST_PUSH_S, round((end - start).total_seconds() / 10)))
    return end + step * ((now - end) // step + 1)
