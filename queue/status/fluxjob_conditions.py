"""The conditions of a FluxJob, for ``kubectl wait`` and for programs that ask whether an object is as it
should be (kstatus).

``Allocated``, ``Started`` and ``Finished`` are there from the first status on, so a person can wait for each.
``Reconciling`` and ``Stalled`` are there only while they are true, as kstatus has them: work is on its way,
or it goes no further without a person.

Conditions are a function of the other fields of the status. So they change with them in the same write and
never cause one, the queue never reads them, and FluxJobs that were written before there were conditions are
not written again for them. For the same reason the time of a transition is one of the times of the workload:
work waits since it was submitted, or since its last requeue.
"""

from __future__ import annotations

from typing import Any

from fluxqueue.api.fluxjobs import Condition, ConditionReason, FluxJobStatus, State
from fluxqueue.api.reasons import reasons_that

__all__ = ["conditions_of"]

_STALLED = reasons_that(lambda facts: facts.stalled)
_ON_ITS_WAY = {
    State.PENDING: ConditionReason.WAITING,
    State.ALLOCATED: ConditionReason.STARTING,
    State.RUNNING: ConditionReason.RUNNING,
    State.DRAINING: ConditionReason.STOPPING,
}


def conditions_of(status: FluxJobStatus) -> list[dict[str, Any]]:
    """Return the conditions that belong to a status, as JSON.

    Parameters
    ----------
    status
        All other fields. Its times are RFC 3339.

    Returns
    -------
    list
        Empty if the workload has no time of submission.
    """
    state = State(status.state)
    since = status.requeue_reasons[-1].at if status.requeue_reasons else status.submitted_at
    if since is None:
        return []
    has_started = state is not State.PENDING and status.started_at is not None
    has_nodes = state is not State.PENDING and status.allocated_at is not None
    phase = status.outcome if state.ended else str(_ON_ITS_WAY[state])
    waits_for = status.reason or str(ConditionReason.QUEUED) if state is State.PENDING else phase
    conditions = [
        _condition(Condition.ALLOCATED, str(ConditionReason.NODES_FOUND), status.allocated_at)
        if has_nodes
        else _condition(
            Condition.ALLOCATED,
            waits_for,
            since,
            holds=False,
            message=status.message if state is State.PENDING else "",
        ),
        _condition(Condition.STARTED, str(ConditionReason.PODS_RAN), status.started_at)
        if has_started
        else _condition(Condition.STARTED, phase, since, holds=False),
        _condition(
            Condition.FINISHED, phase, status.finished_at if state.ended else since, holds=state.ended
        ),
    ]
    if state is State.FAILED or (state is State.PENDING and status.reason in _STALLED):
        stalled_since = status.finished_at if state.ended else since
        conditions.append(
            _condition(
                Condition.STALLED,
                phase if state.ended else status.reason,
                stalled_since,
                message=status.message,
            )
        )
    elif not state.ended and state is not State.RUNNING:
        conditions.append(_condition(Condition.RECONCILING, phase, since))
    return conditions


def _condition(
    kind: Condition, reason: str, since: str | None, *, holds: bool = True, message: str = ""
) -> dict[str, Any]:
    """Return a condition; a FluxJob that ended without a time of it says so with the reason alone."""
    condition = {
        "type": str(kind),
        "status": "True" if holds else "False",
        "reason": reason or str(ConditionReason.UNKNOWN),
    }
    return condition | ({"message": message} if message else {}) | {"lastTransitionTime": since}
