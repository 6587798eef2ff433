"""Which running work may be preempted, and what it would lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from support.queue_builders import EPOCH, a_workload, an_allocation

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import PreemptionRules
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.model.victim_views import NO_VICTIM, BudgetShare, Return, VictimView
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.preemption.possible_victims import OnlyJobs, PossibleVictims


class Shown(OnlyJobs):
    """Every workload is shown alike; the questions are counted."""

    def __init__(self, view: VictimView) -> None:
        self._view = view
        self.asked: list[str] = []

    def view(self, workload: Workload, _allocation: Allocation) -> VictimView:
        self.asked.append(f"view of {workload.id}")
        return self._view

    def budgets(self, workload: Workload, _allocation: Allocation) -> Sequence[BudgetShare]:
        self.asked.append(f"budgets of {workload.id}")
        return ()


NOW = EPOCH + timedelta(seconds=100)
QUEUES = {"default": Discipline(preemption_rules=PreemptionRules(min_run_seconds=60, grace_seconds=30))}
TWO_NODES = an_allocation(["n0", "n0", "n1"])


def test_work_that_has_not_run_for_the_least_time_is_spared_and_counted() -> None:
    rules = PossibleVictims(NOW, QUEUES, OnlyJobs())
    ran = [
        a_workload(state=State.RUNNING, started_at=EPOCH + timedelta(seconds=since)) for since in (40, 41, 90)
    ]
    assert [rules.ran_enough(each, TWO_NODES) for each in ran] == [True, False, False]
    assert rules.wait_s == 1


def test_work_without_a_start_counts_from_its_grant() -> None:
    assert PossibleVictims(NOW, QUEUES, OnlyJobs()).ran_enough(a_workload(state=State.ALLOCATED), TWO_NODES)


def test_what_is_lost_is_nodes_times_the_time_since_the_last_checkpoint() -> None:
    row = a_workload(state=State.RUNNING, started_at=EPOCH + timedelta(seconds=20))
    for saved_s, lost in ((None, 160), (10, 160), (70, 60), (500, 0)):
        saved = EPOCH + timedelta(seconds=saved_s) if saved_s is not None else None
        candidate = PossibleVictims(NOW, QUEUES, Shown(VictimView(checkpoint=saved))).candidate(
            row, TWO_NODES
        )
        assert candidate.lost_node_s == lost


def test_work_that_nobody_creates_again_is_none_before_it_runs() -> None:
    for returns, state, known in (
        (Return.LOST, State.RUNNING, True),
        (Return.LOST, State.ALLOCATED, False),
        (Return.UNSURE, State.ALLOCATED, False),
        (Return.REPLACED, State.ALLOCATED, True),
    ):
        rules = PossibleVictims(NOW, QUEUES, Shown(VictimView(returns=returns)))
        assert (rules.obstacle(a_workload(state=state), TWO_NODES) == "") is known
    assert (
        PossibleVictims(NOW, QUEUES, Shown(NO_VICTIM)).obstacle(a_workload(state=State.RUNNING), TWO_NODES)
        == NO_VICTIM.obstacle
    )


def test_a_victim_gets_the_grace_of_its_own_queue() -> None:
    rules = PossibleVictims(NOW, {**QUEUES, "other": Discipline()}, OnlyJobs())
    urgent = a_workload("urgent", queue="other")
    state = rules.eviction(a_workload("victim"), TWO_NODES, urgent).requeue_state
    assert state is not None
    assert state.stop_at == NOW + timedelta(seconds=30)
    at_once = rules.eviction(a_workload("victim", queue="other"), TWO_NODES, urgent).requeue_state
    assert at_once is not None
    assert at_once.stop_at == NOW


def test_the_cluster_is_asked_once_about_each_workload() -> None:
    shown = Shown(VictimView())
    rules = PossibleVictims(NOW, QUEUES, shown)
    first, second = (
        replace(a_workload(uid, state=State.RUNNING), id=WorkloadId(number))
        for number, uid in enumerate("ab")
    )
    for _ in range(2):
        for each in (first, second):
            rules.candidate(each, TWO_NODES)
            rules.budgets(each, TWO_NODES)
            rules.eviction(each, TWO_NODES, first)
    assert sorted(shown.asked) == ["budgets of 0", "budgets of 1", "view of 0", "view of 1"]
