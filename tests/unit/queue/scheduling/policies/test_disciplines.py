"""What is left of a discipline under a matcher without a clock."""

from __future__ import annotations

from fluxqueue.api.fluxqueues import Policy, Preemption
from fluxqueue.queue.scheduling.policies.disciplines import Discipline, without_plan


def test_without_a_plan_work_starts_first_come_first_served() -> None:
    stated = Discipline(Policy.CONSERVATIVE, 10, preemption=Preemption.LOWER_PRIORITY, match_policy="first")
    left = without_plan(stated)
    assert (left.policy, left.match_policy, left.reserves) == (Policy.FCFS, "", False)
    assert left.preemption is Preemption.LOWER_PRIORITY, "it needs no plan"
