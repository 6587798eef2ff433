"""What is done about released pods that do not start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from support.builders import JobBuilder, make_job, make_pod
from support.queue_builders import EPOCH, a_job, a_pod, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.records import ReleaseMode, SlotState, Workload
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.requeue_states import owner_and_revision
from fluxqueue.queue.requeue.deletion_budget import DeletionBudget
from fluxqueue.queue.requeue.start_decisions import StartDecision, decide_group, decide_job, decide_pod
from fluxqueue.queue.requeue.start_failures import StartFailure, StartFailureCause

JOB = make_job("mpi").indexed(2)
WAITS = a_pod(make_pod("mpi-1"), uid="waits")
RUNS = a_pod(make_pod("mpi-0").on_node("n0").phase("Running"), uid="runs")
LATE = StartFailure(Reason.BIND_FAILED, "pod mpi-1 could not be bound", ("n1",), pods=(WAITS,))
CLOSED = StartFailure(
    Reason.NODES_UNAVAILABLE, "node n1 was cordoned", pods=(WAITS,), cause=StartFailureCause.CLOSED
)
MISSING = StartFailure(Reason.START_TIMEOUT, "1 of 2 pods were not created")


def row(mode: ReleaseMode = ReleaseMode.GATE, requeue_state: RequeueState | None = None) -> Workload:
    return a_workload(
        "mpi",
        uid="job-uid",
        state=State.RUNNING,
        pods=2,
        release_mode=mode,
        requeue_state=requeue_state or RequeueState(),
    )


def no_jobs() -> DeletionBudget:
    return DeletionBudget(lambda _uid: None, lambda _uid: [])


def decide(
    failure: StartFailure, *pods: Pod, workload: Workload | None = None, job: JobBuilder = JOB
) -> StartDecision:
    of_job = a_job(job)
    budget = DeletionBudget(lambda _uid: of_job, lambda _uid: pods)
    return decide_job(workload or row(), of_job, pods, failure, budget, EPOCH)


def evicts(decision: StartDecision) -> bool:
    return decision.evicted_pods != () and decision.eviction is None


def keeps(decision: StartDecision) -> bool:
    return decision.reason is not None and decision == StartDecision(reason=decision.reason)


@pytest.mark.parametrize("failure", [LATE, CLOSED, MISSING])
def test_a_job_is_evicted_as_a_whole_only_while_none_of_its_pods_runs(failure: StartFailure) -> None:
    assert decide(failure, WAITS).eviction is not None
    assert decide(failure, WAITS, RUNS).eviction is None


def test_if_a_sibling_runs_only_the_pods_that_did_not_start_are_evicted() -> None:
    late = decide(LATE, WAITS, RUNS)
    assert late.evicted_pods == (WAITS,)
    assert late.requeue_state is not None
    assert (late.requeue_state.owner, late.requeue_state.starts, late.requeue_state.not_before) == (
        "job-uid",
        1,
        None,
    )
    assert late.reason is not None
    assert late.reason.message.endswith(
        "runs, but not all of it: pod mpi-1 could not be bound; only what did not start is replaced"
    )
    assert evicts(decide(CLOSED, WAITS, RUNS))
    assert keeps(decide(MISSING, RUNS))


def test_work_of_which_some_pods_run_is_not_said_not_to_start() -> None:
    kept = decide(MISSING, RUNS, workload=replace(row(), state=State.ALLOCATED))
    assert kept.reason is not None
    assert "runs, but not all of it" in kept.reason.message


def test_slots_of_pods_that_were_not_created_are_given_back_and_the_others_run_on() -> None:
    empty = an_allocation(["n0", "n1"]).slots[1:]
    refused = StartFailure(
        Reason.RELEASE_FAILED, "exceeded quota", empty_slots=empty, cause=StartFailureCause.REFUSED
    )
    decision = decide(refused, RUNS)
    assert (decision.given_back, decision.eviction, decision.evicted_pods) == (empty, None, ())
    assert decision.reason is not None
    assert decision.reason.message.endswith(
        "runs, but not all of it: exceeded quota; the missing pods hold no nodes any more: "
        "each gets a node of its own once it is created"
    )
    assert decide(refused).eviction is not None, "nothing of it runs"


def test_while_the_template_pins_new_pods_no_slot_is_given_back() -> None:
    until = {"fluxqueue/pin-until": (EPOCH + timedelta(seconds=1)).isoformat()}
    job = JOB.with_("spec.template.metadata.annotations", until)
    missing = StartFailure(
        Reason.START_TIMEOUT, "1 of 2 pods were not created", empty_slots=an_allocation(["n0"]).slots
    )
    assert keeps(decide(missing, RUNS, workload=row(ReleaseMode.PIN), job=job))


def test_no_pod_is_deleted_if_that_would_fail_the_job() -> None:
    assert keeps(decide(LATE, WAITS, RUNS, job=JOB.with_("spec.backoffLimit", 0)))


def test_two_workloads_of_one_job_share_its_budget() -> None:
    job = a_job(JOB.with_("spec.backoffLimit", 1))
    budget = DeletionBudget(lambda _uid: job, lambda _uid: [])
    assert evicts(decide_job(row(), job, [WAITS, RUNS], LATE, budget, EPOCH))
    assert keeps(decide_job(row(), job, [WAITS, RUNS], LATE, budget, EPOCH))


def test_a_pod_with_the_gate_of_another_controller_is_not_deleted() -> None:
    assert keeps(
        decide(StartFailure(Reason.START_TIMEOUT, "gate", foreign_gate=True, pods=(WAITS,)), WAITS, RUNS)
    )


def test_the_third_timeout_in_a_row_only_writes_the_reason() -> None:
    assert evicts(decide(LATE, WAITS, RUNS, workload=row(requeue_state=RequeueState(starts=1))))
    assert keeps(decide(LATE, WAITS, RUNS, workload=row(requeue_state=RequeueState(starts=2))))
    assert evicts(decide(CLOSED, WAITS, RUNS, workload=row(requeue_state=RequeueState(starts=2))))


@pytest.mark.parametrize(("after_s", "evicted"), [(-11, True), (-9, False), (1, False)])
def test_while_the_template_pins_new_pods_to_the_same_node_none_is_deleted(
    after_s: int, evicted: bool
) -> None:
    until = {"fluxqueue/pin-until": (EPOCH + timedelta(seconds=after_s)).isoformat()}
    job = JOB.with_("spec.template.metadata.annotations", until)
    assert evicts(decide(LATE, WAITS, RUNS, workload=row(ReleaseMode.PIN), job=job)) is evicted


def test_a_withdrawal_needs_no_budget_and_waits_for_no_pin_window() -> None:
    waits = a_pod(make_pod("mpi-1").by_fluxion("n1"), uid="waits")
    closed = StartFailure(
        Reason.NODES_UNAVAILABLE, "node n1 was cordoned", pods=(waits,), cause=StartFailureCause.CLOSED
    )
    until = {"fluxqueue/pin-until": (EPOCH + timedelta(hours=1)).isoformat()}
    job = JOB.with_("spec.template.metadata.annotations", until).with_("spec.backoffLimit", 0)
    assert evicts(decide(closed, waits, RUNS, workload=row(ReleaseMode.PIN), job=job))


OWNED = tuple(a_pod(make_pod(f"web-{i}").owned_by("StatefulSet", "web"), uid=f"web-{i}") for i in range(2))
LATE_GROUP = StartFailure(Reason.BIND_FAILED, "pod web-0 could not be bound", ("n0",), pods=OWNED)


def decide_about(
    failure: StartFailure,
    pods: Sequence[Pod],
    budget: DeletionBudget | None = None,
    state: State = State.ALLOCATED,
    starts: int = 0,
) -> StartDecision:
    group = a_workload(
        "web",
        kind="PodGroup",
        release_mode=ReleaseMode.GROUP,
        state=state,
        pods=2,
        requeue_state=RequeueState(starts=starts),
    )
    slots = an_allocation(["n0", "n1"], states=[SlotState.TAKEN] * 2, pods=[pod.metadata.uid for pod in pods])
    return decide_group(group, slots, pods, failure, budget or no_jobs(), EPOCH)


def test_if_a_group_runs_pods_on_closed_nodes_are_evicted_only_with_an_owner() -> None:
    closed = StartFailure(
        Reason.NODES_UNAVAILABLE,
        "node n1 was cordoned",
        pods=(WAITS, OWNED[0]),
        cause=StartFailureCause.CLOSED,
    )
    decision = decide_about(closed, [WAITS, OWNED[0]], state=State.RUNNING)
    assert (decision.evicted_pods, decision.eviction) == ((OWNED[0],), None)


BOUND = a_pod(make_pod("web-1").owned_by("StatefulSet", "web").on_node("n1"), uid="web-1")
REFUSED = StartFailure(Reason.BIND_FAILED, "pod web-0 could not be bound", ("n0",), pods=(OWNED[0],))


@pytest.mark.parametrize("state", [State.ALLOCATED, State.RUNNING])
def test_if_some_of_a_group_runs_a_refused_pod_is_replaced_on_another_node(state: State) -> None:
    decision = decide_about(REFUSED, [OWNED[0], BOUND], state=state)
    assert (decision.evicted_pods, decision.given_back, decision.eviction) == ((OWNED[0],), (), None)
    assert decision.requeue_state is not None
    assert (set(decision.requeue_state.refused), decision.requeue_state.not_before) == ({"n0"}, None)
    assert decision.requeue_state.owner == owner_and_revision(OWNED[0])
    assert decision.reason is not None
    assert decision.reason.message.endswith("only what did not start is replaced")
    assert keeps(decide_about(REFUSED, [OWNED[0], BOUND], state=state, starts=2))
    assert keeps(decide_about(replace(REFUSED, reason=Reason.START_TIMEOUT), [OWNED[0], BOUND], state=state))


def test_if_some_of_a_group_runs_the_slot_of_a_refused_bare_pod_is_given_back() -> None:
    refused = StartFailure(Reason.BIND_FAILED, "pod mpi-1 could not be bound", ("n0",), pods=(WAITS,))
    decision = decide_about(refused, [WAITS, BOUND], state=State.RUNNING)
    assert (decision.evicted_pods, [slot.rank for slot in decision.given_back], decision.ending) == (
        (),
        [0],
        None,
    )
    assert decision.reason is not None
    assert (
        "pod mpi-1 holds no node any more and has no controller: delete it and create it again"
        in decision.reason.message
    )


def test_a_group_of_which_nothing_is_bound_is_matched_again_as_a_whole() -> None:
    decision = decide_about(LATE_GROUP, OWNED)
    assert decision.eviction is not None
    assert decision.group_pods == OWNED
    assert "it is tried again (start 2 of 3), for 10 min not on n0" in decision.eviction.message
    state = decision.eviction.requeue_state
    assert state is not None
    assert (state.starts, state.not_before) == (1, EPOCH + timedelta(seconds=10))


def test_a_group_that_did_not_start_three_times_is_held() -> None:
    decision = decide_about(LATE_GROUP, OWNED, starts=2)
    assert decision.eviction is not None
    assert decision.eviction.reason is Reason.HELD


def test_a_group_of_our_scheduler_is_withdrawn_and_needs_no_owner() -> None:
    pods = [a_pod(make_pod(f"web-{i}").by_fluxion("n0"), uid=f"web-{i}") for i in range(2)]
    decision = decide_about(LATE_GROUP, pods)
    assert decision.eviction is not None
    assert decision.eviction.requeue_state is not None
    assert decision.eviction.requeue_state.not_before is None


def test_a_group_with_a_bare_pod_ends_if_nothing_of_it_can_be_bound() -> None:
    decision = decide_about(LATE_GROUP, [OWNED[0], WAITS])
    assert decision.ending is not None
    assert decision == StartDecision(ending=decision.ending)
    assert (decision.ending.state, decision.ending.outcome) == (State.FAILED, Outcome.FAILED)
    assert (
        "holds no nodes any more: pod web-0 could not be bound; pod mpi-1 has no controller: delete it"
        in decision.ending.message
    )


def test_a_group_with_a_bare_pod_that_no_scheduler_refused_keeps_its_nodes() -> None:
    decision = decide_about(replace(LATE_GROUP, reason=Reason.START_TIMEOUT), [OWNED[0], WAITS])
    assert keeps(decision)
    assert decision.reason is not None
    assert decision.reason.message.endswith(
        "pod mpi-1 has no controller: delete it and create it again to have it planned again"
    )


def test_no_group_is_matched_again_if_that_would_fail_a_job_of_it() -> None:
    job = a_job(JOB.with_("spec.backoffLimit", 1))
    pods = [a_pod(make_pod(f"mpi-{i}").owned_by("Job", "mpi"), uid=f"mpi-{i}") for i in range(2)]
    assert keeps(decide_about(LATE_GROUP, pods, DeletionBudget(lambda _uid: job, lambda _uid: [])))


def test_a_group_with_the_gate_of_another_controller_keeps_its_nodes() -> None:
    assert keeps(
        decide_about(StartFailure(Reason.START_TIMEOUT, "gate", foreign_gate=True, pods=OWNED), OWNED)
    )


def test_the_pod_of_an_owner_is_replaced_and_a_bare_pod_keeps_its_node() -> None:
    workload = a_workload("web-x", kind="Pod", release_mode=ReleaseMode.POD, state=State.ALLOCATED)
    owned = a_pod(make_pod("web-x").owned_by("ReplicaSet", "web"), uid="owned")
    late = decide_pod(workload, owned, LATE, no_jobs(), EPOCH)
    assert late.eviction is not None
    assert "its replacement is tried at once" in late.eviction.message
    bare = decide_pod(workload, WAITS, LATE, no_jobs(), EPOCH)
    assert bare.reason is not None
    assert "keeps its nodes and does not start" in bare.reason.message
    assert keeps(decide_pod(workload, None, LATE, no_jobs(), EPOCH))


def test_a_pod_of_our_scheduler_is_withdrawn_from_a_closed_node_whatever_its_owner() -> None:
    workload = a_workload("bare", kind="Pod", release_mode=ReleaseMode.POD, state=State.ALLOCATED)
    pod = a_pod(make_pod("bare").by_fluxion("n1"), uid="bare")
    closed = decide_pod(workload, pod, CLOSED, no_jobs(), EPOCH)
    assert closed.eviction is not None
    assert closed.eviction.reason is Reason.NODES_UNAVAILABLE


def test_a_pod_is_not_deleted_if_that_would_fail_the_job_that_controls_it() -> None:
    job = a_job(JOB.with_("spec.backoffLimit", 0))
    workload = a_workload("mpi-1", kind="Pod", release_mode=ReleaseMode.POD, state=State.ALLOCATED)
    pod = a_pod(make_pod("mpi-1").owned_by("Job", "mpi"), uid="waits")
    decision = decide_pod(workload, pod, LATE, DeletionBudget(lambda _uid: job, lambda _uid: []), EPOCH)
    assert decision.reason is not None
    assert decision.reason.message.endswith("to delete it would fail its Job (backoffLimit)")
