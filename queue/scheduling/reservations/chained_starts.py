"""When work that waits for other work may start, as far as the plan of the others says.

The start follows from the ends of what it waits for: those of allocations are planned, and pending work ends
its duration after its own start, which may follow from others in turn. So estimates follow chains. Nodes are
not planned for such work: at its time it needs them like any other.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from heapq import nsmallest

from fluxqueue.api.dependencies import DependencyCondition
from fluxqueue.api.durations import FURTHEST_PLAN_S
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.reasons import WAITS_FOR_OTHERS
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.start_conditions import DependencyState, TrackedDependency
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ChainedStarts"]


_MOST_VISITED = 5_000
"""Workloads that are looked at each time: an equal part of each queue, and what others leave of theirs."""


class ChainedStarts:
    """The workloads that wait for others or for a time, kept equal to the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queue_of: dict[WorkloadId, str] = {}
        self._lines: dict[str, dict[WorkloadId, None]] = {}
        """What waits of each queue; what has waited longest comes first."""
        for workload in sorted(
            filter(_waits, ledger.all()), key=lambda workload: (workload.submitted_at, workload.id)
        ):
            self.workload_changed(workload.id)

    def __bool__(self) -> bool:
        return bool(self._queue_of)

    def earliest(self, planned: Mapping[WorkloadId, int], now: int, most: int) -> dict[WorkloadId, int]:
        """Return when workloads may start, in Unix seconds: the first of each queue, without those of which
        nothing is known.

        Nothing is said of a start that is more than a hundred years ahead. If very many wait, those that
        have waited longest are looked at.

        Parameters
        ----------
        planned
            Starts of pending work that waits for nodes only.
        now
            The time, in Unix seconds.
        most
            How many of each queue.
        """
        chain = _Chain(self._ledger, self._queue_of, planned, now)
        left, found = _MOST_VISITED, dict[WorkloadId, int]()
        lines = sorted(self._lines.values(), key=len)
        for queues, line in zip(range(len(lines), 0, -1), lines, strict=True):
            chain.visits_left = part = left // queues
            starts: list[tuple[int, WorkloadId]] = []
            for workload_id in line:
                if not chain.visits_left:
                    break
                start = chain.start_of(workload_id)
                if start is not None and start <= now + FURTHEST_PLAN_S:
                    starts.append((start, workload_id))
            left -= part - chain.visits_left
            found |= {workload_id: start for start, workload_id in nsmallest(most, starts)}
        return found

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Keep the line of those that wait for others or for a time."""
        workload = self._ledger.get(workload_id)
        queue = workload.queue if workload is not None and _waits(workload) else None
        former = self._queue_of.get(workload_id)
        if queue == former:
            return
        if former is not None:
            del self._queue_of[workload_id], self._lines[former][workload_id]
            if not self._lines[former]:
                del self._lines[former]
        if queue is not None:
            self._queue_of[workload_id] = queue
            self._lines.setdefault(queue, {})[workload_id] = None


class _Chain:
    """Starts of work that waits, each computed once.

    Attributes
    ----------
    visits_left
        How many more workloads may be looked at.
    """

    def __init__(
        self,
        ledger: Ledger,
        waiting: Container[WorkloadId],
        planned: Mapping[WorkloadId, int],
        now: int,
    ) -> None:
        self.visits_left = 0
        self._ledger = ledger
        self._waiting = waiting
        self._planned = planned
        self._now = now
        self._starts: dict[WorkloadId, int | None] = {}

    def start_of(self, workload_id: WorkloadId) -> int | None:
        """Return when a workload may start; None if that is unknown, or no visits are left to find it.
        Long chains need no deep recursion.
        """
        stack, begun = [workload_id], set[WorkloadId]()
        while stack:
            current = stack[-1]
            if current in self._starts:
                stack.pop()
                continue
            before: list[WorkloadId] = []
            if current not in begun:
                if not self.visits_left:
                    return None
                self.visits_left -= 1
                before = self._unknown_before(current)
                begun.add(current)
            if before:
                stack += [each for each in before if each not in begun]
                continue
            self._starts[current] = self._compute(current)
            stack.pop()
        return self._starts[workload_id]

    def _unknown_before(self, workload_id: WorkloadId) -> list[WorkloadId]:
        workload = self._ledger.get(workload_id)
        targets = (
            [self._ledger.by_uid(each.target) for each in workload.start_conditions.after if each.open]
            if workload is not None
            else []
        )
        return [
            each.id
            for each in targets
            if each is not None and each.id in self._waiting and each.id not in self._starts
        ]

    def _compute(self, workload_id: WorkloadId) -> int | None:
        workload = self._ledger.get(workload_id)
        if workload is None:
            return None
        conditions = workload.start_conditions
        open_ones = [each for each in conditions.after if each.state is not DependencyState.SATISFIED]
        if workload.reason is Reason.WAITING_FOR_DEPENDENCY and not open_ones:
            return None  # for its turn as a singleton
        times = [self._now, *(at for each in open_ones if (at := self._event(each)) is not None)]
        if len(times) <= len(open_ones):
            return None
        if (not_before := conditions.not_before) is not None:
            times.append(int(not_before.timestamp()))
        return max(times)

    def _event(self, dependency: TrackedDependency) -> int | None:
        """Return when a dependency is expected to be satisfied."""
        if not dependency.open or not dependency.target:
            return None
        target = self._ledger.by_uid(dependency.target)
        if target is None:
            return self._now + dependency.delay_s  # it has just ended
        start = self._begin(target)
        at = start if dependency.condition is DependencyCondition.START else self._end(target, start)
        return None if at is None else max(at, self._now) + dependency.delay_s

    def _begin(self, target: Workload) -> int | None:
        if target.state is not State.PENDING:
            return int(target.started_at.timestamp()) if target.started_at is not None else self._now
        return self._starts.get(target.id) if target.id in self._waiting else self._planned.get(target.id)

    def _end(self, target: Workload, start: int | None) -> int | None:
        if target.state is not State.PENDING:
            allocation = self._ledger.allocation(target.id)
            return (
                self._now
                if allocation is None
                else int(allocation.end.timestamp())
                if allocation.end is not None
                else None
            )
        return start + target.duration_s if start is not None and target.duration_s is not None else None


def _waits(workload: Workload) -> bool:
    return workload.state is State.PENDING and workload.reason in WAITS_FOR_OTHERS
