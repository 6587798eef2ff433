"""The planned ends of live allocations in the order of time:
a cycle need not look at all running work to find the few that overrun.
"""

from __future__ import annotations

import heapq
from datetime import datetime

from fluxqueue.queue.model.records import FluxionJobId

__all__ = ["PlannedEndIndex"]

_MOST_STALE = 1_000


class PlannedEndIndex:
    """Planned ends by allocation.
    An end that moved stays in the heap until it comes to the top, or until such entries are many.
    """

    def __init__(self) -> None:
        self._ends: dict[FluxionJobId, datetime] = {}
        self._heap: list[tuple[datetime, FluxionJobId]] = []

    def put(self, jobid: FluxionJobId, end: datetime | None) -> None:
        """Set the planned end of an allocation; None if it has none."""
        if end is None:
            self._ends.pop(jobid, None)
        elif self._ends.get(jobid) != end:
            self._ends[jobid] = end
            heapq.heappush(self._heap, (end, jobid))
        if len(self._heap) > 2 * len(self._ends) + _MOST_STALE:
            self._heap = [(end, jobid) for jobid, end in self._ends.items()]
            heapq.heapify(self._heap)

    def drop(self, jobid: FluxionJobId) -> None:
        """Forget an allocation."""
        self._ends.pop(jobid, None)

    def until(self, at: datetime) -> list[FluxionJobId]:
        """Return the allocations that were to end until a time, the earliest first."""
        due: dict[FluxionJobId, datetime] = {}
        while self._heap and self._heap[0][0] <= at:
            end, jobid = heapq.heappop(self._heap)
            if self._ends.get(jobid) == end:
                due[jobid] = end
        for jobid, end in due.items():
            heapq.heappush(self._heap, (end, jobid))
        return [*due]

    def first_after(self, at: datetime) -> datetime | None:
        """Return the first planned end after a time; None if there is none."""
        past: list[tuple[datetime, FluxionJobId]] = []
        first: datetime | None = None
        while self._heap and first is None:
            end, jobid = self._heap[0]
            if self._ends.get(jobid) != end:
                heapq.heappop(self._heap)
            elif end <= at:
                past.append(heapq.heappop(self._heap))
            else:
                first = end
        for each in past:
            heapq.heappush(self._heap, each)
        return first
