"""Nodes that refused a pod: for whom that is remembered, for how long, and how it is told."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.builders import PodBuilder, make_pod
from support.queue_builders import EPOCH, a_pod, a_workload

from fluxqueue.queue.model.requeue_records import NO_REQUEUE_STATE, NodeRefusal, RequeueState
from fluxqueue.queue.model.requeue_states import (
    OwnerRequeueStates,
    merge_requeue_states,
    owner_and_revision,
    refusals_in_words,
)

LATER = EPOCH + timedelta(minutes=10)
WEB = make_pod("web-a").owned_by("ReplicaSet", "web-5d4f")


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        pytest.param(WEB, "uid-of-web-5d4f", id="a ReplicaSet is one template"),
        pytest.param(
            make_pod("db-0").owned_by("StatefulSet", "db").label("controller-revision-hash", "db-7"),
            "uid-of-db/db-7",
            id="revision",
        ),
        pytest.param(make_pod("alone"), "", id="nobody"),
    ],
)
def test_pods_that_are_made_alike_have_one_owner(pod: PodBuilder, owner: str) -> None:
    assert owner_and_revision(a_pod(pod)) == owner


def test_a_replacement_begins_with_the_setbacks_of_all_pods_of_its_owner() -> None:
    memory = OwnerRequeueStates()
    memory.record(
        RequeueState(owner="uid-of-web-5d4f", starts=1, refused={"n1": NodeRefusal(EPOCH, LATER)}), EPOCH
    )
    memory.record(
        RequeueState(owner="uid-of-web-5d4f", starts=1, refused={"n2": NodeRefusal(EPOCH, LATER)}), EPOCH
    )
    known = memory.of(a_pod(WEB, uid="another"), EPOCH + timedelta(minutes=5))
    assert sorted(known.refused) == ["n1", "n2"]
    assert memory.of(a_pod(make_pod("alone")), EPOCH) == NO_REQUEUE_STATE


def test_what_is_half_an_hour_old_is_forgotten() -> None:
    memory = OwnerRequeueStates()
    memory.record(RequeueState(owner="uid-of-web-5d4f", starts=3), EPOCH)
    assert memory.of(a_pod(WEB), EPOCH + timedelta(minutes=31)) == NO_REQUEUE_STATE


def test_what_is_half_an_hour_old_is_not_kept_by_later_setbacks() -> None:
    memory = OwnerRequeueStates()
    late = EPOCH + timedelta(minutes=31)
    memory.record(
        RequeueState(owner="uid-of-web-5d4f", starts=3, refused={"n1": NodeRefusal(EPOCH, LATER)}), EPOCH
    )
    memory.record(RequeueState(owner="uid-of-web-5d4f", starts=1), late)
    assert (memory.of(a_pod(WEB), late).starts, memory.of(a_pod(WEB), late).refused) == (1, {})


def preempted(minute: int) -> RequeueState:
    return RequeueState(
        owner="uid-of-web-5d4f", submitted_at=EPOCH - timedelta(minutes=minute), stop_at=EPOCH
    )


def test_the_submit_time_of_a_preempted_pod_passes_to_one_replacement() -> None:
    memory = OwnerRequeueStates()
    for minute in (9, 5):
        memory.record(preempted(minute), EPOCH)
        memory.record(preempted(minute), EPOCH, preempted(minute))
    first, second, added = (a_pod(WEB, uid=uid) for uid in ("first", "second", "added"))
    times = [memory.take_submit_time(pod, LATER) for pod in (first, first, second, added)]
    assert times == [EPOCH - timedelta(minutes=9)] * 2 + [EPOCH - timedelta(minutes=5), None]
    assert memory.of(first, LATER).submitted_at is memory.of(first, LATER).stop_at is None
    assert memory.take_submit_time(a_pod(make_pod("alone")), LATER) is None


def test_a_submit_time_counts_for_half_an_hour_after_the_pod_was_to_stop() -> None:
    memory = OwnerRequeueStates()
    memory.record(preempted(9), EPOCH - timedelta(hours=1))
    assert memory.take_submit_time(a_pod(WEB, uid="a"), EPOCH + timedelta(minutes=30)) is not None
    memory.record(preempted(5), EPOCH)
    assert memory.take_submit_time(a_pod(WEB, uid="b"), EPOCH + timedelta(minutes=31)) is None


def test_a_pod_that_waits_again_itself_hands_nothing_on_and_a_new_leader_knows_who_took_what() -> None:
    memory = OwnerRequeueStates()
    memory.record(preempted(9), EPOCH)
    memory.record(RequeueState(), EPOCH, preempted(9))
    assert memory.take_submit_time(a_pod(WEB, uid="a"), LATER) is None
    memory.record(preempted(5), EPOCH)
    memory.note_taken(
        a_workload(
            "a",
            uid="a",
            submitted_at=EPOCH - timedelta(minutes=5),
            requeue_state=RequeueState(owner="uid-of-web-5d4f"),
        )
    )
    assert memory.take_submit_time(a_pod(WEB, uid="b"), LATER) is None


def test_the_submit_times_of_one_owner_are_bounded() -> None:
    memory = OwnerRequeueStates()
    for minute in range(1100):
        memory.record(preempted(minute), EPOCH)
    assert memory.take_submit_time(a_pod(WEB, uid="a"), EPOCH) == EPOCH - timedelta(minutes=100)


def test_the_longer_pause_counts() -> None:
    short, long = (RequeueState(owner="o", starts=n, not_before=EPOCH + timedelta(seconds=n)) for n in (1, 3))
    assert (merge_requeue_states(long, short).starts, merge_requeue_states(long, short).not_before) == (
        3,
        EPOCH + timedelta(seconds=3),
    )


def test_avoided_nodes_are_named_with_their_times() -> None:
    refused = {
        "node-2": NodeRefusal(EPOCH + timedelta(hours=12, minutes=4), EPOCH + timedelta(hours=12, minutes=14))
    }
    assert (
        refusals_in_words(refused)
        == "not on node-2 (refused a pod at 2026-01-01T12:04:00Z, until 2026-01-01T12:14:00Z)"
    )
    assert refusals_in_words({f"n{i}": NodeRefusal(EPOCH, LATER) for i in range(7)}).endswith("and 2 more")
    assert refusals_in_words({}) == ""
