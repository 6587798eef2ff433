"""Time limits: when running work reaches the end of its duration in a queue that ends it there, and how it
ends then.

The limit counts from the start of the work, which is when all its pods are on their nodes. It is not the
planned end of the allocation: that begins with the grant, and moves. Work without an end has no limit. A pod
that a controller would create again has none of its own.

That a limit was reached is stored with the workload before anything is ended. From then on nobody reverses
it, and any leader can go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.fluxqueues import EnforceDuration
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.given_back import given_back_message
from fluxqueue.queue.model.moldable import planned_duration_s, planned_pods
from fluxqueue.queue.model.records import ReleaseMode, Workload

__all__ = [
    "LimitTimes",
    "ending_within_limit",
    "is_over_time_limit",
    "is_suspended_soon",
    "limit_times",
    "over_limit_message",
    "warning_message",
]


@dataclass(frozen=True, slots=True)
class LimitTimes:
    """When work is warned (None: never) and when it is ended."""

    warn_at: datetime | None
    end_at: datetime


def limit_times(workload: Workload, rules: EnforceDuration | None) -> LimitTimes | None:
    """Return when a workload is warned and ended by the rules of its queue; None if it is not.

    Work that is shorter than twice the grace is warned at the half of its duration.
    """
    duration_s = planned_duration_s(workload)
    if rules is None or not rules.enabled or workload.started_at is None or duration_s is None:
        return None
    if rules.only_stated and workload.duration_assumed:
        return None
    if workload.state not in (State.RUNNING, State.DRAINING) or is_suspended_soon(workload):
        return None
    end_at = workload.started_at + timedelta(seconds=duration_s)
    grace_s = min(rules.grace_seconds, duration_s / 2)
    return LimitTimes(end_at - timedelta(seconds=grace_s) if grace_s else None, end_at)


def is_suspended_soon(workload: Workload) -> bool:
    """True for a Job that is evicted: it is suspended and waits again.
    Pods and groups go on while a grace or a budget keeps them.
    """
    return workload.evicting and workload.release_mode not in (ReleaseMode.POD, ReleaseMode.GROUP)


def is_over_time_limit(workload: Workload) -> bool:
    """True if a workload is ended because it ran beyond its duration, or was idle for too long.
    A limit of an earlier start does not count.
    """
    limit = workload.requeue_state.time_limit
    return limit is not None and workload.started_at is not None and limit >= workload.started_at


def ending_within_limit(workload: Workload, state: State, outcome: Outcome, message: str) -> Ending:
    """Return the ending of a workload, with the outcome ``TimeLimit`` if the queue ended it.

    A Job that completed all the same succeeded. A pod that stops on SIGTERM may end with success, but it was
    told to. Without a message of its own the end says what the work gave back while it ran.
    """
    if not is_over_time_limit(workload) or (workload.kind == "Job" and state is State.COMPLETED):
        return Ending(workload.id, state, outcome, message or given_back_message(workload))
    return Ending(workload.id, State.FAILED, Outcome.TIME_LIMIT, over_limit_message(workload))


def over_limit_message(workload: Workload) -> str:
    """Return why a workload is ended."""
    if idle := workload.requeue_state.idle:
        return f"{workload.ref} was {idle} and was ended: have it end when its work is done"
    remedy = "ask for a longer duration (annotation fluxqueue/duration), or have it save what it has"
    return f"{workload.ref} reached its time limit of {_span(workload)} and was ended: {remedy}"


def warning_message(workload: Workload, end_at: datetime) -> str:
    """Return that a workload will be ended soon."""
    until = f"{end_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{workload.ref} reaches its time limit of {_span(workload)} at {until}: its pods get SIGTERM then"


def _span(workload: Workload) -> str:
    assumed = ", the default of its queue" if workload.duration_assumed else ""
    pods = planned_pods(workload)
    fewer = f" with {pods} of {workload.pods} pods" if pods < workload.pods else ""
    return f"{planned_duration_s(workload)} s{fewer}{assumed}"
