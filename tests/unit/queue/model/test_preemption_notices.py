"""What preempted work is told, and what it tells."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.builders import make_job
from support.queue_builders import EPOCH, a_job, a_workload

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.preemption_notices import (
    checkpoint_of,
    grace_left_s,
    preempt,
    stop_time,
    stopping_left_s,
)
from fluxqueue.queue.model.requeue_records import RequeueState

VICTIM = a_workload("victim", state=State.RUNNING, jobid=7, requeue_state=RequeueState(losses=2))


def test_without_a_grace_work_stops_at_once_and_keeps_its_state() -> None:
    eviction = preempt(VICTIM, a_workload("urgent", id=9, priority=10), EPOCH, EPOCH)
    assert (eviction.reason, eviction.requeue_state) == (
        Reason.PREEMPTED,
        RequeueState(losses=2, stop_at=EPOCH, preempted_for=9),
    )
    assert "grace" not in eviction.message
    assert "was preempted by Job default/urgent (priority 10)" in eviction.message


@pytest.mark.parametrize("guaranteed_to", ["", "physics"])
def test_preempted_work_is_not_told_the_name_of_work_in_another_namespace(guaranteed_to: str) -> None:
    eviction = preempt(
        VICTIM, a_workload("secret-project", namespace="b", priority=10), EPOCH, EPOCH, guaranteed_to
    )
    assert "was preempted by work of another namespace" in eviction.message
    assert "secret-project" not in eviction.message


def test_with_a_grace_the_time_is_stored_with_what_was_known() -> None:
    eviction = preempt(VICTIM, a_workload("urgent", id=9, priority=10), EPOCH, EPOCH + timedelta(seconds=90))
    assert eviction.requeue_state == RequeueState(
        losses=2, stop_at=EPOCH + timedelta(seconds=90), preempted_for=9
    )
    assert eviction.message == (
        "Job default/victim (priority 0) was preempted by Job default/urgent (priority 10), with a grace "
        "until 2026-01-01T00:01:30Z: it is requeued and keeps its submit time"
    )


def test_the_grace_counts_only_while_the_work_is_being_preempted() -> None:
    told = replace(
        VICTIM,
        requeue_state=RequeueState(stop_at=EPOCH + timedelta(seconds=90)),
        reason=Reason.PREEMPTED,
        state=State.DRAINING,
    )
    assert grace_left_s(told, EPOCH) == 90
    assert grace_left_s(told, EPOCH + timedelta(seconds=91)) == 0
    assert grace_left_s(replace(told, reason=Reason.NODES_UNAVAILABLE), EPOCH) == 0
    assert grace_left_s(replace(told, state=State.RUNNING, reason=Reason.NONE), EPOCH) == 0
    assert grace_left_s(VICTIM, EPOCH) == 0
    assert stopping_left_s(told, EPOCH) == 390
    assert stopping_left_s(told, EPOCH + timedelta(seconds=390)) == 0
    assert stopping_left_s(replace(told, requeue_state=RequeueState()), EPOCH) > 0
    assert stopping_left_s(replace(told, reason=Reason.NODES_UNAVAILABLE), EPOCH) == 0
    assert (stop_time(told), stop_time(VICTIM)) == ("2026-01-01T00:01:30Z", "")


@pytest.mark.parametrize("text", ["", "soon", "+2h", "2026-01-01T00:00:00"])
def test_a_checkpoint_that_is_no_time_does_not_count(text: str) -> None:
    assert checkpoint_of(a_job(make_job("w").annotation("fluxqueue/checkpointed-at", text)).metadata) is None


def test_a_checkpoint_is_a_time_on_the_job() -> None:
    assert (
        checkpoint_of(
            a_job(make_job("w").annotation("fluxqueue/checkpointed-at", "2026-01-01T01:00:00+01:00")).metadata
        )
        == EPOCH
    )
    assert checkpoint_of(None) is None
