"""When evicted work is matched again, which nodes it avoids, and when it is held."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from support.queue_builders import EPOCH, a_workload
from support.start_pods import FULL, LATE, ROW, unbindable

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.requeue_records import NodeRefusal, RequeueState
from fluxqueue.queue.requeue.evictions import (
    evict_after_bind_refusal,
    evict_after_lost_node,
    evict_after_pod_refusal,
    evict_after_timeout,
    replace_after_timeout,
    state_after_bind_refusal,
)
from fluxqueue.queue.requeue.start_failures import StartFailure, StartFailureCause, find_bind_refusal


def test_a_failed_start_is_tried_elsewhere_twice_and_then_held() -> None:
    first = evict_after_timeout(ROW, LATE, EPOCH)
    assert first.reason is Reason.BIND_FAILED
    assert first.message.endswith(
        "it is tried again (start 2 of 3), for 10 min not on n1 if other nodes could hold it"
    )
    refused = {"n1": NodeRefusal(EPOCH, EPOCH + timedelta(minutes=10))}
    assert first.requeue_state == RequeueState(starts=1, refused=refused, failure="pod a could not be bound")
    second = evict_after_timeout(
        replace(ROW, requeue_state=first.requeue_state), replace(LATE, nodes=("n2",)), EPOCH
    )
    assert second.requeue_state is not None
    assert sorted(second.requeue_state.refused) == ["n1", "n2"]
    third = evict_after_timeout(replace(ROW, requeue_state=second.requeue_state), LATE, EPOCH)
    assert (third.reason, third.requeue_state) == (Reason.HELD, RequeueState())
    assert (
        "did not start 3 times in a row and is held: pod a could not be bound; repair that" in third.message
    )


def test_replacement_pods_are_never_held_and_wait_longer_each_time() -> None:
    row, pauses = a_workload("web-x", kind="Pod", state=State.ALLOCATED), []
    for _ in range(4):
        back = replace_after_timeout(row, LATE, EPOCH, "uid-of-web")
        assert back.requeue_state is not None
        assert (back.reason, back.requeue_state.owner) == (Reason.BIND_FAILED, "uid-of-web")
        pauses.append(
            (back.requeue_state.not_before - EPOCH).total_seconds() if back.requeue_state.not_before else 0
        )
        row = replace(row, requeue_state=back.requeue_state)
    assert pauses == [0, 10, 20, 40]


def test_work_whose_pods_are_refused_is_never_held_and_tried_later_and_later() -> None:
    refused = StartFailure(
        Reason.RELEASE_FAILED,
        "the API server refuses its pods: exceeded quota",
        cause=StartFailureCause.REFUSED,
    )
    row, pauses = ROW, []
    for _ in range(8):
        back = evict_after_pod_refusal(row, refused, EPOCH)
        assert back.requeue_state is not None
        assert back.requeue_state.not_before is not None
        assert (back.reason, "exceeded quota; it is tried again at" in back.message) == (
            Reason.RELEASE_FAILED,
            True,
        )
        pauses.append((back.requeue_state.not_before - EPOCH).total_seconds())
        row = replace(row, requeue_state=back.requeue_state)
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600]


def test_lost_nodes_cost_a_longer_wait_each_time_and_in_the_end_a_hold() -> None:
    row, pauses = ROW, []
    for _ in range(5):
        back = evict_after_lost_node(row, ["n1"], EPOCH)
        assert back.reason is Reason.NODES_UNAVAILABLE
        assert back.requeue_state is not None
        pauses.append(
            (back.requeue_state.not_before - EPOCH).total_seconds() if back.requeue_state.not_before else 0
        )
        row = replace(row, requeue_state=back.requeue_state)
    assert pauses == [0, 10, 20, 40, 80]
    assert evict_after_lost_node(row, ["n1", "n2"], EPOCH).reason is Reason.HELD


def test_the_counts_of_a_workload_that_ran_well_start_again() -> None:
    row = replace(ROW, requeue_state=RequeueState(starts=2, losses=5), started_at=EPOCH, state=State.RUNNING)
    assert evict_after_lost_node(row, ["n1"], EPOCH + timedelta(minutes=11)).requeue_state == RequeueState(
        losses=1
    )
    assert evict_after_lost_node(row, ["n1"], EPOCH + timedelta(minutes=9)).reason is Reason.HELD


def test_refused_work_is_matched_again_at_once_then_later_each_time_and_never_held() -> None:
    row, pauses, avoided = ROW, [], []
    for _ in range(7):
        back = evict_after_bind_refusal(row, find_bind_refusal([unbindable()]), EPOCH)
        assert back.requeue_state is not None
        assert back.reason is Reason.BIND_FAILED
        pauses.append(
            back.requeue_state.not_before and (back.requeue_state.not_before - EPOCH).total_seconds()
        )
        assert list(back.requeue_state.refused) == ["n2"]
        row = replace(row, requeue_state=back.requeue_state)
        avoided.append((back.requeue_state.refused["n2"].until - EPOCH).total_seconds())
    assert pauses == [None, 1, 2, 4, 8, 16, 32]
    assert avoided == [30, 60, 120, 240, 480, 600, 600]
    assert "for 10 min not on n2" in back.message
    assert FULL in back.message
    worn = evict_after_bind_refusal(
        replace(row, requeue_state=RequeueState(refused_binds=60)), find_bind_refusal([unbindable()]), EPOCH
    )
    assert worn.reason is Reason.BIND_FAILED
    assert worn.requeue_state is not None
    assert worn.requeue_state.not_before == EPOCH + timedelta(minutes=10)


def test_refusals_do_not_count_as_starts_that_failed() -> None:
    back = evict_after_bind_refusal(
        replace(ROW, requeue_state=RequeueState(starts=1)), find_bind_refusal([unbindable()]), EPOCH
    )
    assert back.requeue_state is not None
    assert (back.requeue_state.starts, back.requeue_state.refused_binds) == (1, 1)


def test_the_next_pods_of_an_owner_avoid_the_node_that_refused_one() -> None:
    worn = replace(ROW, requeue_state=RequeueState(refused_binds=30))
    back = evict_after_bind_refusal(worn, find_bind_refusal([unbindable()]), EPOCH, "owner-uid")
    assert back.reason is Reason.BIND_FAILED
    assert back.requeue_state is not None
    assert back.requeue_state.owner == "owner-uid"
    assert back.requeue_state.not_before == EPOCH + timedelta(minutes=10)


def test_a_refused_pod_whose_siblings_run_costs_its_job_no_start() -> None:
    noted = state_after_bind_refusal(
        replace(ROW, requeue_state=RequeueState(starts=1)), find_bind_refusal([unbindable()]), EPOCH
    )
    assert (noted.starts, list(noted.refused), noted.owner) == (1, ["n2"], ROW.uid)
