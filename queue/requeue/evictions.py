"""How an eviction counts: after which time the workload is matched again, which nodes it avoids, and when it
is held.

- A start that timed out is matched again at once, for ten minutes not on the nodes that refused a pod. After
  three in a row the workload is held: a person has to look.
- A node that was lost, or takes no pods any more, is not the fault of the work. It is matched again at once
  the first time, then after a pause that doubles. It is held after five in a row.
- Work whose pods the API server refuses (a quota, a missing ServiceAccount) is matched again after a pause
  that doubles, without end.
- Our own scheduler reports a refusal at once, and another match costs little. So such work is matched again
  at once the first time, then after a pause that doubles from one second. Each time the refusing nodes are
  avoided for longer. It is never held.

The counts start again for a workload that ran for ten minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.groups import REPLACED_WITHIN
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.requeue_records import NodeRefusal, RequeueState
from fluxqueue.queue.requeue.start_failures import StartFailure

__all__ = [
    "MOST_STARTS",
    "evict_after_bind_refusal",
    "evict_after_closed_node",
    "evict_after_lost_node",
    "evict_after_pod_refusal",
    "evict_after_timeout",
    "evict_group_after_timeout",
    "losses_in_words",
    "recent_state",
    "replace_after_timeout",
    "state_after_bind_refusal",
]

MOST_STARTS = 3
_MOST_LOSSES = 5
_AVOIDED = timedelta(minutes=10)
_RAN_WELL = timedelta(minutes=10)
_FIRST_BACKOFF = timedelta(seconds=10)
_FIRST_BACKOFF_OF_REFUSALS = timedelta(seconds=1)
_LONGEST_BACKOFF = timedelta(minutes=10)
_FIRST_AVOIDED = timedelta(seconds=30)
"""A node that our own scheduler found full may soon have room,
and by then the graph counts what filled it."""
_LONGEST_FAILURE = 500


def evict_after_timeout(workload: Workload, failure: StartFailure, now: datetime) -> Eviction:
    """Match the workload again on other nodes, or hold it."""
    before = recent_state(workload, now)
    starts = before.starts + 1
    if starts >= MOST_STARTS:
        return Eviction(
            workload=workload.id,
            reason=Reason.HELD,
            message=(
                f"{workload.ref} did not start {starts} times in a row and is held: {failure.message}; "
                "repair that, then set spec.hold of its FluxJob to false"
            ),
            requeue_state=RequeueState(),
        )
    again = f"it is tried again (start {starts + 1} of {MOST_STARTS}){_on_other_nodes(failure)}"
    return Eviction(
        workload=workload.id,
        reason=failure.reason,
        message=f"{workload.ref} did not start: {failure.message}; {again}",
        requeue_state=RequeueState(
            starts=starts,
            losses=before.losses,
            refused=_refused(before, failure, now),
            failure=failure.message[:_LONGEST_FAILURE],
        ),
    )


def evict_group_after_timeout(
    workload: Workload, failure: StartFailure, now: datetime, *, replaced: bool
) -> Eviction:
    """Match a group of which nothing was bound again on other nodes, or hold it.

    If its pods are ``replaced``, the group waits for a moment: without pods it would end, and what is known
    of its starts with it.
    """
    eviction = evict_after_timeout(workload, failure, now)
    if not replaced or eviction.requeue_state is None:
        return eviction
    state = msgspec.structs.replace(eviction.requeue_state, not_before=now + REPLACED_WITHIN)
    return replace(eviction, requeue_state=state)


def replace_after_timeout(workload: Workload, failure: StartFailure, now: datetime, owner: str) -> Eviction:
    """Delete a pod that its owner replaces. Its replacement is matched on another node, later each time.

    The replacement has another uid, so it is not held. The doubling pause limits the number of attempts.
    """
    before = recent_state(workload, now)
    starts = before.starts + 1
    backoff = _backoff(starts)
    return Eviction(
        workload=workload.id,
        reason=failure.reason,
        message=(
            f"{workload.ref} did not start: {failure.message}; its replacement is tried "
            f"{_when(backoff)}{_on_other_nodes(failure)}"
        ),
        requeue_state=RequeueState(
            starts=starts,
            losses=before.losses,
            not_before=now + backoff if backoff else None,
            refused=_refused(before, failure, now),
            failure=failure.message[:_LONGEST_FAILURE],
            owner=owner,
        ),
    )


def evict_after_bind_refusal(
    workload: Workload, failure: StartFailure, now: datetime, owner: str = ""
) -> Eviction:
    """Match a workload of which no pod is bound again, on other nodes if possible: later each time, without
    end.

    Parameters
    ----------
    workload, failure, now
        Whose pods were refused, what was observed, and the time of the database.
    owner
        The owner of the pod (`fluxqueue.queue.model.requeue_states.owner_and_revision`): its next pods avoid
        the node too.
    """
    before = recent_state(workload, now)
    times = before.refused_binds + 1
    backoff, avoided = _backoff(times, _FIRST_BACKOFF_OF_REFUSALS), _avoided(times)
    return Eviction(
        workload=workload.id,
        reason=failure.reason,
        message=(
            f"{workload.ref} waits again: {failure.message}; it is tried again "
            f"{_when(backoff)}{_on_other_nodes(failure, avoided)}"
        ),
        requeue_state=msgspec.structs.replace(
            before,
            refused_binds=times,
            not_before=now + backoff if backoff else None,
            refused=_refused(before, failure, now, avoided),
            failure=failure.message[:_LONGEST_FAILURE],
            owner=owner,
        ),
    )


def state_after_bind_refusal(workload: Workload, failure: StartFailure, now: datetime) -> RequeueState:
    """Return the state of a workload that goes on while its refused pods are matched alone:
    these count for themselves.
    """
    before = recent_state(workload, now)
    return msgspec.structs.replace(
        before,
        refused=_refused(before, failure, now, _avoided(before.refused_binds + 1)),
        failure=failure.message[:_LONGEST_FAILURE],
        owner=workload.uid if workload.kind == "Job" else before.owner,
        not_before=None,
    )


def evict_after_closed_node(workload: Workload, failure: StartFailure, now: datetime) -> Eviction:
    """Match the workload again as after the loss of a node: its node takes no pods any more."""
    return _evict_after_loss(workload, failure.message, now)


def evict_after_lost_node(workload: Workload, nodes: Sequence[str], now: datetime) -> Eviction:
    """Match the workload again after a pause, or hold it."""
    return _evict_after_loss(workload, losses_in_words(nodes), now)


def losses_in_words(nodes: Sequence[str]) -> str:
    """Return in words that work lost these nodes."""
    return (
        f"node {nodes[0]} was lost under it"
        if len(nodes) == 1
        else f"nodes {', '.join(nodes[:5])} were lost under it"
    )


def _evict_after_loss(workload: Workload, what: str, now: datetime) -> Eviction:
    before = recent_state(workload, now)
    losses = before.losses + 1
    if losses > _MOST_LOSSES:
        return Eviction(
            workload=workload.id,
            reason=Reason.HELD,
            message=(
                f"{workload.ref} lost its nodes {losses} times in a row and is held: {what}; set spec.hold "
                "of its FluxJob to false to go on"
            ),
            requeue_state=RequeueState(),
        )
    backoff = _backoff(losses)
    return Eviction(
        workload=workload.id,
        reason=Reason.NODES_UNAVAILABLE,
        message=(
            f"{workload.ref} waits again: {what}; it is tried again {_when(backoff)} (time {losses} of "
            f"{_MOST_LOSSES})"
        ),
        requeue_state=RequeueState(
            starts=before.starts,
            losses=losses,
            not_before=now + backoff if backoff else None,
            refused=before.refused,
        ),
    )


def evict_after_pod_refusal(workload: Workload, failure: StartFailure, now: datetime) -> Eviction:
    """Free the nodes at once, and match the workload again:
    later each time, or when the quota or the ServiceAccount changes.
    """
    before = recent_state(workload, now)
    times = before.refused_pods + 1
    until = now + _backoff(times + 1)
    return Eviction(
        workload=workload.id,
        reason=failure.reason,
        message=(
            f"{workload.ref} could not start: {failure.message}; it is tried again at {time_text(until)}, "
            "or when a ResourceQuota or a ServiceAccount of its namespace changes"
        ),
        requeue_state=msgspec.structs.replace(
            before, refused_pods=times, not_before=until, failure=failure.message[:_LONGEST_FAILURE]
        ),
    )


def recent_state(workload: Workload, now: datetime) -> RequeueState:
    """Return what still counts of a workload's requeue state: no counts if it ran well since."""
    if workload.started_at is not None and now - workload.started_at > _RAN_WELL:
        before = workload.requeue_state
        return RequeueState(refused=before.refused, owner=before.owner)
    return workload.requeue_state


def _backoff(times: int, first: timedelta = _FIRST_BACKOFF) -> timedelta:
    """Return the pause before the next match: none the first time, then one that doubles."""
    return min(first * 2 ** min(times - 2, 10), _LONGEST_BACKOFF) if times > 1 else timedelta()


def _avoided(refusals: int) -> timedelta:
    """Return for how long nodes are avoided to which our own scheduler could not bind a pod:
    twice as long each time.
    """
    return min(_FIRST_AVOIDED * (1 << min(refusals - 1, 10)), _AVOIDED)


def _refused(
    before: RequeueState, failure: StartFailure, now: datetime, avoided: timedelta = _AVOIDED
) -> dict[str, NodeRefusal]:
    kept = {node: refusal for node, refusal in before.refused.items() if refusal.until > now}
    return kept | dict.fromkeys(failure.nodes, NodeRefusal(now, now + avoided))


def _when(backoff: timedelta) -> str:
    return f"after {backoff.total_seconds():g} s" if backoff else "at once"


def _on_other_nodes(failure: StartFailure, avoided: timedelta = _AVOIDED) -> str:
    if not failure.nodes:
        return ""
    seconds = avoided.total_seconds()
    length = f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
    return f", for {length} not on {', '.join(failure.nodes[:5])} if other nodes could hold it"
