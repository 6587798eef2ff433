"""What FluxQueues come to, and what is left of a discipline under a matcher without a clock."""

from __future__ import annotations

import pytest

from fluxqueue.api.fluxqueues import (
    Consolidation,
    FluxQueue,
    FluxQueueSpec,
    Policy,
    Preemption,
    QueueState,
)
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.queue.scheduling.policies.disciplines import Discipline, disciplines_of, without_plan


@pytest.mark.parametrize("state", QueueState)
def test_nothing_is_moved_that_its_queue_would_not_start_again(state: QueueState) -> None:
    spec = FluxQueueSpec(state=state, consolidation=Consolidation(enabled=True))
    found = disciplines_of([FluxQueue(metadata=ObjectMeta(name="batch"), spec=spec)])["batch"]
    assert found.consolidation.enabled == (state is not QueueState.HELD)


def test_without_a_plan_work_starts_first_come_first_served() -> None:
    stated = Discipline(Policy.CONSERVATIVE, 10, preemption=Preemption.LOWER_PRIORITY, match_policy="first")
    left = without_plan(stated)
    assert (left.policy, left.match_policy, left.reserves) == (Policy.FCFS, "", False)
    assert left.preemption is Preemption.LOWER_PRIORITY, "it needs no plan"
