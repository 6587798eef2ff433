"""When a request fits: now, later, or never.

The times at which anything changes are the starts and ends of live jobs. A request that does not fit now is tried at each of them in
order; the first at which the whole window is free is its reservation. If there is none, a look at the emptied graph tells *busy* from
*impossible*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from fluxqueue.fluxion.jobs import Job

__all__ = ["ChangePoints"]


class ChangePoints:
    """Starts and ends of live jobs, ascending, each counted as often as it occurs."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._counts: dict[int, int] = {}

    def add(self, job: Job) -> None:
        """Count the times of a job."""
        for time in (job.start, job.end):
            count = self._counts.get(time, 0)
            self._counts[time] = count + 1
            if count == 0:
                insort(self._times, time)

    def remove(self, job: Job) -> None:
        """Forget the times of a job; call it before they change."""
        for time in (job.start, job.end):
            count = self._counts[time] - 1
            if count:
                self._counts[time] = count
            else:
                del self._counts[time]
                del self._times[bisect_left(self._times, time)]

    def after(self, time: int) -> Iterator[int]:
        """Times later than this one; the points must not change meanwhile."""
        for position in range(bisect_right(self._times, time), len(self._times)):
            yield self._times[position]
