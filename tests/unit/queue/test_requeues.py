from __future__ import annotations

import pytest
from builders import JobBuilder, make_job, make_pod
from hypothesis import given
from hypothesis import strategies as st
from queue_builders import a_job, a_pod, an_allocation

from fluxqueue.api import names
from fluxqueue.api.objects import Pod
from fluxqueue.queue.records import FluxionJobId, SlotState
from fluxqueue.queue.requeues import (
    Step,
    Turn,
    done_indexes,
    failures_left,
    hosts_by_index,
    next_turn,
    pods_wanted,
    write_indexes,
)
from fluxqueue.queue.tracking import parse_indexes

STOPPED = [{"type": "Suspended", "status": "True"}]
NOBODY: frozenset[str] = frozenset()


def stopped() -> JobBuilder:
    return make_job().indexed(3).suspended().with_("status.conditions", STOPPED)


def standing(uid: str, node: str, phase: str = "Running") -> Pod:
    return a_pod(make_pod(uid).with_("spec.nodeName", node).with_("status.phase", phase), uid=uid)


def test_a_job_that_runs_is_suspended_first() -> None:
    assert next_turn(a_job(make_job()), [], None, NOBODY.__contains__).step is Step.SUSPEND


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job().suspended(), id="it does not say yet that it is suspended"),
        pytest.param(stopped().with_("status.active", 1), id="it still counts a pod"),
    ],
)
def test_its_template_is_left_alone_until_it_may_be_changed(job: JobBuilder) -> None:
    assert next_turn(a_job(job), [], None, NOBODY.__contains__).step is Step.WAIT


def test_its_pods_are_waited_for_until_they_are_terminal_or_gone() -> None:
    job = a_job(stopped())
    assert next_turn(job, [standing("a", "n1")], None, NOBODY.__contains__).step is Step.WAIT
    assert next_turn(job, [a_pod(make_pod("gated"))], None, NOBODY.__contains__).step is Step.WAIT
    assert next_turn(job, [standing("a", "n1", "Failed")], None, NOBODY.__contains__) == Turn(Step.CLEAR)


def test_pods_on_nodes_nobody_hears_from_are_not_waited_for_and_keep_their_slots() -> None:
    allocation = an_allocation(["n1", "n2", "n2"], states=[SlotState.TAKEN] * 3, pods=["a", "b", "c"])
    pods = [standing("a", "n1", "Failed"), standing("c", "n2")]
    turn = next_turn(a_job(stopped()), pods, allocation, {"n2"}.__contains__)
    assert turn == Turn(Step.CLEAR, ((FluxionJobId(7), 2),))


def test_a_pod_on_a_lost_node_that_no_slot_knows_keeps_a_free_one_of_its_node() -> None:
    allocation = an_allocation(["n1", "n2", "n2"], states=[SlotState.TAKEN, SlotState.TAKEN], pods=["a", "b"])
    pods = [standing("stranger", "n2"), standing("b", "n2")]
    assert next_turn(a_job(stopped()), pods, allocation, {"n2"}.__contains__).kept == ((FluxionJobId(7), 1), (FluxionJobId(7), 2))


def test_a_job_that_is_over_or_gone_is_not_put_back() -> None:
    over = make_job().with_("status.conditions", [{"type": "Complete", "status": "True"}])
    assert next_turn(None, [], None, NOBODY.__contains__).step is Step.END
    assert next_turn(a_job(over), [], None, NOBODY.__contains__).step is Step.END


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        (make_job().indexed(4), 4),
        (make_job().indexed(4).with_("status.completedIndexes", "0,2-3"), 1),
        (make_job().indexed(4).with_("status.completedIndexes", "0").with_("status.failedIndexes", "3"), 2),
        (make_job().indexed(4).with_("status.completedIndexes", "0-3"), 1),
        (make_job().pods(3, 5).with_("status.succeeded", 3), 2),
        (make_job().pods(3, 5).with_("status.succeeded", 1), 3),
        (make_job().pods(0, 5), 0),
        (make_job().with_("spec.completions", None).with_("spec.parallelism", 3).with_("status.succeeded", 2), 3),
    ],
)
def test_only_pods_that_are_still_to_run_are_matched_again(job: JobBuilder, pods: int) -> None:
    assert pods_wanted(a_job(job)) == pods


def test_done_indexes_have_no_node_in_the_list_so_that_place_and_index_agree() -> None:
    done = write_indexes(done_indexes(a_job(make_job().indexed(4).with_("status.completedIndexes", "0,2"))))
    assert hosts_by_index(["n7", "n8"], done) == (names.NO_NODE, "n7", names.NO_NODE, "n8")
    assert hosts_by_index(["n7", "n8"], "") == ("n7", "n8")


@given(st.sets(st.integers(0, 50)))
def test_indexes_are_written_as_kubernetes_writes_them(indexes: set[int]) -> None:
    assert parse_indexes(write_indexes(indexes)) == indexes


@pytest.mark.parametrize(
    ("job", "left"),
    [
        pytest.param(make_job(), 6, id="nothing said"),
        pytest.param(make_job().with_("spec.backoffLimit", 0), 0, id="none may fail"),
        pytest.param(make_job().with_("spec.backoffLimit", 3).with_("status.failed", 2), 1, id="some have failed"),
        pytest.param(make_job().with_("status.failed", 9), 0, id="more than may"),
        pytest.param(make_job().with_("spec.backoffLimitPerIndex", 2).with_("spec.backoffLimit", 100), 0, id="counted by index"),
    ],
)
def test_how_many_pods_may_be_deleted_before_a_job_fails_by_it(job: JobBuilder, left: int) -> None:
    assert failures_left(a_job(job)) == left
