from __future__ import annotations

from collections.abc import Callable

import pytest
from support.builders import JobBuilder, make_job, make_pod
from support.queue_builders import a_job, a_pod, an_allocation
from support.work_counts import assert_linear

from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.records import FluxionJobId, SlotState
from fluxqueue.queue.requeue.steps import (
    NextStep,
    RequeueStep,
    next_step,
)

STOPPED = [{"type": "Suspended", "status": "True"}]
NOBODY: frozenset[str] = frozenset()


def stopped() -> JobBuilder:
    return make_job().indexed(3).suspended().with_("status.conditions", STOPPED)


def standing(uid: str, node: str, phase: str = "Running") -> Pod:
    return a_pod(make_pod(uid).with_("spec.nodeName", node).with_("status.phase", phase), uid=uid)


def test_a_job_that_runs_is_suspended_first() -> None:
    assert next_step(a_job(make_job()), [], None, NOBODY.__contains__).step is RequeueStep.SUSPEND


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job().suspended(), id="it does not say yet that it is suspended"),
        pytest.param(stopped().with_("status.active", 1), id="it still counts a pod"),
    ],
)
def test_its_template_is_left_alone_until_it_may_be_changed(job: JobBuilder) -> None:
    assert next_step(a_job(job), [], None, NOBODY.__contains__).step is RequeueStep.WAIT


def test_its_pods_are_waited_for_until_they_are_terminal_or_gone() -> None:
    job = a_job(stopped())
    assert next_step(job, [standing("a", "n1")], None, NOBODY.__contains__).step is RequeueStep.WAIT
    assert next_step(job, [a_pod(make_pod("gated"))], None, NOBODY.__contains__).step is RequeueStep.WAIT
    assert next_step(job, [standing("a", "n1", "Failed")], None, NOBODY.__contains__) == NextStep(
        RequeueStep.CLEAR
    )


def test_pods_on_lost_nodes_are_not_waited_for_and_keep_their_slots() -> None:
    allocation = an_allocation(["n1", "n2", "n2"], states=[SlotState.TAKEN] * 3, pods=["a", "b", "c"])
    pods = [standing("a", "n1", "Failed"), standing("c", "n2")]
    turn = next_step(a_job(stopped()), pods, allocation, {"n2"}.__contains__)
    assert turn == NextStep(RequeueStep.CLEAR, ((FluxionJobId(7), 2),))


def test_a_pod_on_a_lost_node_that_no_slot_knows_keeps_a_free_one_of_its_node() -> None:
    allocation = an_allocation(["n1", "n2", "n2"], states=[SlotState.TAKEN, SlotState.TAKEN], pods=["a", "b"])
    pods = [standing("stranger", "n2"), standing("b", "n2")]
    assert next_step(a_job(stopped()), pods, allocation, {"n2"}.__contains__).kept == (
        (FluxionJobId(7), 1),
        (FluxionJobId(7), 2),
    )


@pytest.mark.parametrize(
    "stored", [pytest.param(True, id="in slots"), pytest.param(False, id="that no slot knows")]
)
def test_pods_on_lost_nodes_find_the_slots_that_they_keep(stored: bool) -> None:
    def step(count: int) -> Callable[[], object]:
        uids = [f"p{number}" for number in range(count)]
        states = [SlotState.TAKEN if stored else SlotState.FREE] * count
        allocation = an_allocation(["n1"] * count, states=states, pods=uids if stored else [None] * count)
        job, pods = a_job(stopped()), [standing(uid, "n1") for uid in uids]
        return lambda: next_step(job, pods, allocation, {"n1"}.__contains__)

    assert_linear(step)


def test_a_job_that_is_over_or_gone_is_not_requeued() -> None:
    over = make_job().with_("status.conditions", [{"type": "Complete", "status": "True"}])
    assert next_step(None, [], None, NOBODY.__contains__).step is RequeueStep.END
    assert next_step(a_job(over), [], None, NOBODY.__contains__).step is RequeueStep.END


def test_a_finished_job_without_an_allocation_is_requeued_for_the_intake_to_end() -> None:
    over = make_job().with_("status.conditions", [{"type": "Complete", "status": "True"}])
    allocation = an_allocation(["n1"])
    assert next_step(a_job(over), [], allocation, NOBODY.__contains__).step is RequeueStep.REQUEUE
    assert (
        next_step(a_job(over.label("fluxqueue/jobid", "7")), [], allocation, NOBODY.__contains__).step
        is RequeueStep.END
    )
