"""How the slot of a pod that is preempted ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.queue_builders import EPOCH, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.records import ReleaseMode, RequeueState
from fluxqueue.queue.model.time_limits import ending_within_limit
from fluxqueue.queue.tracking.slot_changes import as_preempted, plan_pod_slot


@pytest.mark.parametrize(
    ("now_s", "limit_s", "ends"),
    [
        pytest.param(59, None, (State.COMPLETED, Outcome.SUCCEEDED), id="within its grace it ended by itself"),
        pytest.param(60, None, (State.CANCELLED, Outcome.CANCELLED), id="then it was evicted"),
        pytest.param(59, 50, (State.FAILED, Outcome.TIME_LIMIT), id="ended at its limit within its grace"),
        pytest.param(60, 50, (State.FAILED, Outcome.TIME_LIMIT), id="ended at its limit, then evicted"),
    ],
)
def test_how_a_preempted_pod_that_is_gone_ended(now_s: int, limit_s: int | None, ends: Any) -> None:
    limit = EPOCH + timedelta(seconds=limit_s) if limit_s is not None else None
    state = RequeueState(stop_at=EPOCH + timedelta(seconds=60), time_limit=limit)
    settings: dict[str, Any] = {"kind": "Pod", "release_mode": ReleaseMode.POD, "reason": Reason.PREEMPTED, "started_at": EPOCH}
    row = a_workload("a", state=State.DRAINING, requeue_state=state, **settings)
    changes = plan_pod_slot(None, an_allocation(["n0"]), "Succeeded")
    changes = as_preempted(row, None, changes, EPOCH + timedelta(seconds=now_s))
    assert changes.state is not None
    ending = ending_within_limit(row, changes.state, changes.outcome, changes.message)
    assert (ending.state, ending.outcome) == ends
