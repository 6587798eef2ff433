"""Chains of jobs in a trace: a job that names one before it waits for the end of that, and for a think time
after it.

It is what ``fluxqueue/after: "any:job/NAME+DELAY"`` is in a cluster. The Standard Workload Format has both in
its last fields. Such a job counts as waiting from the time at which nothing but nodes kept it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable

from fluxqueue.queue.simulator.traces import TraceJob

__all__ = ["SimulatedChains"]


class SimulatedChains:
    """The jobs that wait for others, and the ends of all jobs.
    Times are seconds from the beginning of the trace.
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._behind: defaultdict[int, list[TraceJob]] = defaultdict(list)
        self._later: list[tuple[int, int, TraceJob]] = []

    def times(self) -> list[int]:
        """Return when the next job may start whose predecessor has ended; nothing if there is none."""
        return [self._later[0][0]] if self._later else []

    def ended(self, number: int, at_s: int) -> None:
        """Record that a job ended."""
        self._ends[number] = at_s
        for job in self._behind.pop(number, ()):
            self._put_later(job, at_s)

    def eligible(self, submitted: Iterable[TraceJob], now_s: int) -> list[TraceJob]:
        """Return the jobs that wait for nodes only from now on:
        those of the submitted ones, and those that were held back until now.
        """
        ready: list[TraceJob] = []
        for job in submitted:
            if not job.after:
                ready.append(job)
            elif job.after in self._ends:
                self._put_later(job, self._ends[job.after])
            else:
                self._behind[job.after].append(job)
        while self._later and self._later[0][0] <= now_s:
            ready.append(heapq.heappop(self._later)[2])
        return ready

    def _put_later(self, job: TraceJob, end_s: int) -> None:
        heapq.heappush(self._later, (max(end_s + job.think_s, job.submit_s), job.number, job))
