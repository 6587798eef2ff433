"""How the slot of a pod that is preempted ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.builders import make_pod
from support.queue_builders import EPOCH, a_pod, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.time_limits import ending_within_limit
from fluxqueue.queue.tracking.slot_changes import as_preempted, first_bound, plan_pod_slot


@pytest.mark.parametrize(
    ("now_s", "limit_s", "ends"),
    [
        pytest.param(
            59, None, (State.COMPLETED, Outcome.SUCCEEDED), id="within its grace it ended by itself"
        ),
        pytest.param(60, None, (State.CANCELLED, Outcome.CANCELLED), id="then it was evicted"),
        pytest.param(59, 50, (State.FAILED, Outcome.TIME_LIMIT), id="ended at its limit within its grace"),
        pytest.param(60, 50, (State.FAILED, Outcome.TIME_LIMIT), id="ended at its limit, then evicted"),
    ],
)
def test_how_a_preempted_pod_that_is_gone_ended(now_s: int, limit_s: int | None, ends: Any) -> None:
    limit = EPOCH + timedelta(seconds=limit_s) if limit_s is not None else None
    state = RequeueState(stop_at=EPOCH + timedelta(seconds=60), time_limit=limit)
    settings: dict[str, Any] = {
        "kind": "Pod",
        "release_mode": ReleaseMode.POD,
        "reason": Reason.PREEMPTED,
        "started_at": EPOCH,
    }
    row = a_workload("a", state=State.DRAINING, requeue_state=state, **settings)
    changes = plan_pod_slot(None, an_allocation(["n0"]), "Succeeded")
    changes = as_preempted(row, None, changes, EPOCH + timedelta(seconds=now_s))
    assert changes.state is not None
    ending = ending_within_limit(row, changes.state, changes.outcome, changes.message)
    assert (ending.state, ending.outcome) == ends


def bound_at(*seconds: float, **changes: Any) -> Pod:
    """A pod that got its node then, after `EPOCH`."""
    times = [f"{EPOCH + timedelta(seconds=each):%Y-%m-%dT%H:%M:%SZ}" for each in seconds] or [
        "0000-01-01T00:00:00Z"
    ]
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": time} for time in times]
    return a_pod(
        make_pod()
        .with_("spec.nodeName", "n0")
        .with_("status", {"phase": "Succeeded", "conditions": conditions} | changes)
    )


def test_work_that_ended_unseen_began_when_its_first_pod_got_its_node() -> None:
    pods = [bound_at(-30), bound_at(9), bound_at(4), bound_at(), a_pod(make_pod())]
    assert first_bound(pods, EPOCH) == EPOCH + timedelta(seconds=4)
    assert first_bound(pods[:1], EPOCH) is None, "of an earlier start"
    assert first_bound(pods, None) is None
    assert plan_pod_slot(pods[1], an_allocation(["n0"])).began_at == EPOCH + timedelta(seconds=9)


def test_a_pod_that_got_its_node_in_the_second_of_the_grant_counts() -> None:
    assert first_bound([bound_at(0)], EPOCH + timedelta(milliseconds=700)) == EPOCH
