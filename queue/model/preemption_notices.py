"""What preempted work is told before it is suspended, and what it tells of its checkpoints.

Work that is preempted with a grace is stored as evicted at once, so nothing else is chosen for it and the
plan knows. It is suspended only when the grace is over (`RequeueState.stop_at`). The time is stored with it,
so any leader keeps it. It also says for how long other preemptions wait until the nodes are free: pods that
do not end, with a long grace period of their own, a finalizer or on a lost node, keep only their own nodes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.starttimes import InvalidStartTime, read_start_time
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.given_back import leaving_ranks
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.model.victim_views import Return

__all__ = [
    "checkpoint_of",
    "given_back_grace_s",
    "given_back_left_s",
    "given_back_until",
    "grace_left_s",
    "preempt",
    "stop_time",
    "stopping_left_s",
]

_STOPPING_S: Final = 300
"""From the end of its grace until preempted work that still has pods delays no other preemption."""


def preempt(
    victim: Workload,
    workload: Workload,
    now: datetime,
    stop_at: datetime,
    guaranteed_to: str = "",
    returns: Return = Return.WAITS,
) -> Eviction:
    """Return the eviction of a victim for a workload, which may go on until a time.

    It is for the account that takes back what is guaranteed to it, if one is named.
    """
    by = workload.ref_within(victim.namespace)
    why = f"{victim.ref} (priority {victim.priority}) was preempted by {by} (priority {workload.priority})"
    if guaranteed_to:
        why = (
            f"{victim.ref} was preempted by {by}, to whose account {guaranteed_to!r} the resources are "
            "guaranteed"
        )
    moved = victim.requeue_state.moved
    state = msgspec.structs.replace(
        victim.requeue_state,
        stop_at=stop_at,
        preempted_for=workload.id,
        moved=moved if moved is None or moved.first != workload.id else None,  # now it need not restart
    )
    until = f", with a grace until {_text(stop_at)}" if stop_at > now else ""
    unused, then = victim.requeue_state.unused, returns.value
    if unused is not None and unused.jobid == victim.jobid:
        then = "it is requeued behind all other work" if returns is Return.WAITS else then
        then = f"it was idle since {_text(unused.since)}, so {then}"
    return Eviction(
        workload=victim.id,
        reason=Reason.PREEMPTED,
        message=f"{why}{until}: {then}",
        requeue_state=state,
    )


def grace_left_s(workload: Workload, now: datetime) -> float:
    """Return for how many seconds a preempted workload may go on; 0 if it is to stop now."""
    stop_at = workload.requeue_state.stop_at
    if stop_at is None or not workload.evicting or workload.reason is not Reason.PREEMPTED:
        return 0.0
    return max((stop_at - now).total_seconds(), 0.0)


def stopping_left_s(workload: Workload, now: datetime) -> float:
    """Return for how many seconds other preemptions wait for a preempted workload to free its nodes;
    0 if they do not.
    """
    if not workload.evicting or workload.reason is not Reason.PREEMPTED:
        return 0.0
    stop_at = workload.requeue_state.stop_at
    if stop_at is None:
        return _STOPPING_S  # it was preempted by a version that did not store the time
    return max((stop_at - now).total_seconds() + _STOPPING_S, 0.0)


def given_back_grace_s(workload: Workload, now: datetime) -> float:
    """Return for how many seconds the pods may go on that a workload gives back;
    0 if they are to stop now.
    """
    given = workload.requeue_state.given_back
    return max((given.stop_at - now).total_seconds(), 0.0) if given is not None else 0.0


def given_back_until(workload: Workload) -> str:
    """Return until when the pods may go on that a workload gives back (RFC 3339);
    empty if it gives none back.
    """
    given = workload.requeue_state.given_back
    return _text(given.stop_at) if given is not None else ""


def given_back_left_s(workload: Workload, allocation: Allocation, now: datetime) -> float:
    """Return for how many seconds other preemptions wait until a workload has freed what it gives back;
    0 if they do not.
    """
    given = workload.requeue_state.given_back
    if given is None or not leaving_ranks(workload, allocation):
        return 0.0
    return max((given.stop_at - now).total_seconds() + _STOPPING_S, 0.0)


def stop_time(workload: Workload) -> str:
    """Return until when a preempted workload may go on (RFC 3339); empty if it was told nothing."""
    stop_at = workload.requeue_state.stop_at
    return _text(stop_at) if stop_at is not None else ""


def checkpoint_of(metadata: ObjectMeta | None) -> datetime | None:
    """Return when work last saved what it has, as an annotation of its object says;
    None if that is missing or no time.
    """
    text = metadata.annotation(names.CHECKPOINTED_ANNOTATION) if metadata is not None else None
    if not text:
        return None
    try:
        time = read_start_time(text)
    except InvalidStartTime:
        return None
    return time if isinstance(time, datetime) else None


def _text(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
