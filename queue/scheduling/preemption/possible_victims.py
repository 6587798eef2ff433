"""Which running work may be preempted by the rules of its queue, and what would be lost by it.

Idle work comes before all other, whatever its priority, if an administrator wants that
(`fluxqueue.queue.model.idleness`).

A queue may grant its work a minimum run time. What is lost is what the work did since its start, or since the
last checkpoint that it told of. A checkpoint in the future counts as now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import structs

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.idleness import is_unused
from fluxqueue.queue.model.preemption_notices import preempt
from fluxqueue.queue.model.records import UNUSED_LAST, Allocation, Epoch, Workload, WorkloadId
from fluxqueue.queue.model.victim_views import NO_VICTIM, STARTING, BudgetShare, Floor, VictimView
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, is_below

__all__ = ["OnlyJobs", "PossibleVictims", "ShownVictims"]

_BUDGETS_AGAIN_S = 10.0


class ShownVictims(Protocol):
    """What the cluster shows of running work."""

    def view(self, workload: Workload, allocation: Allocation) -> VictimView:
        """Return what is shown of a workload."""

    def budgets(self, workload: Workload, allocation: Allocation) -> Sequence[BudgetShare]:
        """Return the budgets of disruption that select its pods."""

    def elastic_pods(self, workload: Workload) -> Mapping[str, datetime]:
        """Return since when each of its pods, or of its owner's if it is a pod, runs or has saved nothing,
        by uid; empty if none can end alone.
        """

    def floors(self, workload: Workload) -> Mapping[str, Floor]:
        """Return the floors of the pods of a gang, also of those that were matched alone, by uid."""


class OnlyJobs:
    """Nothing is shown: only Jobs may be preempted, and none told of a checkpoint."""

    def view(self, workload: Workload, _allocation: Allocation) -> VictimView:
        """Return that a Job may be preempted."""
        return VictimView() if workload.kind == "Job" else NO_VICTIM

    def budgets(self, _workload: Workload, _allocation: Allocation) -> Sequence[BudgetShare]:
        """Return no budget."""
        return ()

    def elastic_pods(self, _workload: Workload) -> Mapping[str, datetime]:
        """Return no pod."""
        return {}

    def floors(self, _workload: Workload) -> Mapping[str, Floor]:
        """Return no floor."""
        return {}


class PossibleVictims:
    """The rules of all queues about who may be preempted, at one time. What the cluster shows of a workload
    is read once.

    Parameters
    ----------
    now
        The time of the database.
    disciplines
        By queue.
    shown
        What the cluster shows.
    epoch
        Of the leader: what it sees as idle work of any priority may preempt. None: nothing.

    Attributes
    ----------
    wait_s
        In how many seconds there may be more of them: the first has run long enough then, or a budget may
        allow more; None if neither.
    """

    def __init__(
        self,
        now: datetime,
        disciplines: Mapping[str, Discipline],
        shown: ShownVictims,
        epoch: Epoch | None = None,
    ) -> None:
        self._epoch = epoch
        self.wait_s: float | None = None
        self._now = now
        self._disciplines = disciplines
        self._shown = shown
        self._views: dict[WorkloadId, VictimView] = {}
        self._budgets: dict[WorkloadId, Sequence[BudgetShare]] = {}

    def ran_enough(self, workload: Workload, allocation: Allocation) -> bool:
        """True if a workload has run for the time that its queue grants; else `wait_s` counts it."""
        least_s = self._disciplines[workload.queue].preemption_rules.min_run_seconds
        left_s = least_s - (self._now - _start(workload, allocation)).total_seconds()
        if not least_s or left_s <= 0:
            return True
        self._look_again(left_s)
        return False

    def ran_enough_at(self, workload: Workload, allocation: Allocation) -> datetime:
        """Return when a workload will have run for the time that its queue grants."""
        return _start(workload, allocation) + timedelta(
            seconds=self._disciplines[workload.queue].preemption_rules.min_run_seconds
        )

    def is_below(self, workload: Workload, first: Workload) -> bool:
        """True if running work has a lower priority than work that waits, or is idle."""
        return self._is_unused(workload) or is_below(workload, first)

    def _is_unused(self, workload: Workload) -> bool:
        return self._epoch is not None and is_unused(workload, self._epoch)

    def obstacle(self, workload: Workload, allocation: Allocation) -> str:
        """Return why a workload may not be preempted, as the cluster shows it, in words that follow its name;
        empty if it may.

        Work that nobody creates again must have begun to run: it can be withdrawn before, or starts in a
        moment.
        """
        view = self._view(workload, allocation)
        if view.again_s is not None:
            self._look_again(view.again_s)
        return view.obstacle or ("" if view.returns.sure or workload.state is State.RUNNING else STARTING)

    def candidate(self, workload: Workload, allocation: Allocation) -> PreemptionCandidate:
        """Return a workload with what would be lost."""
        view = self._view(workload, allocation)
        start, saved = _start(workload, allocation), view.checkpoint
        since = start if saved is None else min(max(start, saved), self._now)
        lost_s = max((self._now - since).total_seconds(), 0.0)
        nodes = allocation.open_nodes
        return PreemptionCandidate(
            workload.id,
            UNUSED_LAST if self._is_unused(workload) else workload.priority,
            allocation.start,
            lost_s * len(nodes),
            view.returns.sure,
            nodes=nodes,
            floor=view.floor,
        )

    def least(self, workload: Workload, allocation: Allocation) -> int:
        """Return with how few pods a workload goes on of which slots may be given back; 0 if none may."""
        return self._view(workload, allocation).least

    def place(self, workload: Workload, allocation: Allocation) -> int | None:
        """Return where a pod stands among those of its owner, if only the last can go; None if any can."""
        return self._view(workload, allocation).place

    def job_of(self, workload: Workload, allocation: Allocation) -> str:
        """Return the uid of the Job of which a workload is a pod that was matched alone; empty if of none."""
        return self._view(workload, allocation).job if workload.kind == "Pod" else ""

    def budgets(self, workload: Workload, allocation: Allocation) -> Sequence[BudgetShare]:
        """Return the budgets of disruption that select pods of a workload."""
        if workload.id not in self._budgets:
            self._budgets[workload.id] = self._shown.budgets(workload, allocation)
        return self._budgets[workload.id]

    def refused_by_budgets(self) -> None:
        """Note that budgets of disruption do not allow all that may be preempted:
        nobody tells when they do.
        """
        self._look_again(_BUDGETS_AGAIN_S)

    def eviction(
        self,
        victim: Workload,
        allocation: Allocation,
        workload: Workload,
        guaranteed_to: str = "",
        told: datetime | None = None,
    ) -> Eviction:
        """Return the eviction of a victim, at the time that it was told before,
        or with the grace of its queue; see `preempt`. What was idle once keeps its place in the order.
        """
        if not self._is_unused(victim):
            victim = replace(victim, requeue_state=structs.replace(victim.requeue_state, unused=None))
        return preempt(
            victim,
            workload,
            self._now,
            told or self.stop_at(victim),
            guaranteed_to,
            self._view(victim, allocation).returns,
        )

    def stop_at(self, victim: Workload) -> datetime:
        """Return until when a victim may go on that is chosen now."""
        return self._now + timedelta(seconds=self.grace_s(victim))

    def grace_s(self, victim: Workload) -> int:
        """Return for how many seconds a victim may go on that is chosen now; 0 in a queue that is gone."""
        discipline = self._disciplines.get(victim.queue)
        return discipline.preemption_rules.grace_seconds if discipline is not None else 0

    def _look_again(self, after_s: float) -> None:
        self.wait_s = after_s if self.wait_s is None else min(self.wait_s, after_s)

    def _view(self, workload: Workload, allocation: Allocation) -> VictimView:
        if workload.id not in self._views:
            self._views[workload.id] = self._shown.view(workload, allocation)
        return self._views[workload.id]


def _start(workload: Workload, allocation: Allocation) -> datetime:
    return workload.started_at or allocation.start
