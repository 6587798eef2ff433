"""Which running work may be preempted by the rules of its queue, and what would be lost by it.

A queue may grant its work a minimum run time. What is lost is what the work did since its start, or since the last checkpoint that it told
of. A checkpoint in the future counts as now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.preemption_notices import preempt
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate

__all__ = ["Checkpoints", "PossibleVictims", "no_checkpoints"]

Checkpoints = Callable[[Workload], datetime | None]


def no_checkpoints(_workload: Workload) -> datetime | None:
    """Return that a workload told of no checkpoint."""
    return None


class PossibleVictims:
    """The rules of all queues about who may be preempted, at one time.

    Parameters
    ----------
    now
        The time of the database.
    disciplines
        By queue.
    checkpoints
        Returns when a workload last saved what it has.

    Attributes
    ----------
    wait_s
        In how many seconds the first of those that have not run long enough will have; None if there are none.
    """

    def __init__(self, now: datetime, disciplines: Mapping[str, Discipline], checkpoints: Checkpoints) -> None:
        self.wait_s: float | None = None
        self._now = now
        self._disciplines = disciplines
        self._checkpoints = checkpoints

    def ran_enough(self, workload: Workload, allocation: Allocation) -> bool:
        """True if a workload has run for the time that its queue grants; else `wait_s` counts it."""
        least_s = self._disciplines[workload.queue].preemption_rules.min_run_seconds
        left_s = least_s - (self._now - _start(workload, allocation)).total_seconds()
        if not least_s or left_s <= 0:
            return True
        self.wait_s = left_s if self.wait_s is None else min(self.wait_s, left_s)
        return False

    def candidate(self, workload: Workload, allocation: Allocation) -> PreemptionCandidate:
        """Return a workload with what would be lost."""
        start, saved = _start(workload, allocation), self._checkpoints(workload)
        since = start if saved is None else min(max(start, saved), self._now)
        lost_s = max((self._now - since).total_seconds(), 0.0)
        nodes = len({slot.node for slot in allocation.open_slots})
        return PreemptionCandidate(workload.id, workload.priority, allocation.start, lost_s * nodes)

    def eviction(self, victim: Workload, workload: Workload, guaranteed_to: str = "") -> Eviction:
        """Return the eviction of a victim, with the grace of its queue; see `preempt`."""
        grace_s = self._disciplines[victim.queue].preemption_rules.grace_seconds
        return preempt(victim, workload, self._now, grace_s, guaranteed_to)


def _start(workload: Workload, allocation: Allocation) -> datetime:
    return workload.started_at or allocation.start
