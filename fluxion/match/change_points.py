"""The times at which anything changes; Fluxion's planner calls them scheduled points.

They are the starts and ends of live jobs. A request that does not fit now first fits where a job ends:
resources that are free from the start of some job on have been free since the last end before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from fluxqueue.fluxion.graph.jobs import GraphJob

__all__ = ["ChangePoints"]


class ChangePoints:
    """Starts and ends of live jobs, ascending, with the jobs that start or end there."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._starting: dict[int, dict[GraphJob, None]] = {}
        self._ending: dict[int, dict[GraphJob, None]] = {}

    def add(self, job: GraphJob) -> None:
        """Add the times of a job."""
        for time, jobs in ((job.start, self._starting), (job.end, self._ending)):
            if time not in self._starting and time not in self._ending:
                insort(self._times, time)
            jobs.setdefault(time, {})[job] = None

    def remove(self, job: GraphJob) -> None:
        """Remove the times of a job; call it before they change."""
        for time, jobs in ((job.start, self._starting), (job.end, self._ending)):
            there = jobs[time]
            del there[job]
            if not there:
                del jobs[time]
                if time not in self._starting and time not in self._ending:
                    del self._times[bisect_left(self._times, time)]

    def after(self, time: int) -> Iterator[tuple[int, tuple[GraphJob, ...], tuple[GraphJob, ...]]]:
        """Yield later times, each with the jobs that end and those that start there;
        nothing may change during the iteration.
        """
        for position in range(bisect_right(self._times, time), len(self._times)):
            at = self._times[position]
            yield at, tuple(self._ending.get(at, ())), tuple(self._starting.get(at, ()))
