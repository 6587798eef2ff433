"""Requeue states that pass from a pod to its replacement, and the nodes that a workload avoids.

A node refuses a pod for what the graph does not know: a port in use, a volume, an affinity to other pods. So the next match is requested
without that node. This is a preference. Work that could never fit on the other nodes is matched on all of them, and is never called
unsatisfiable because of nodes that it avoids. While the other nodes are only busy, it waits for them, and its reason names the avoided
nodes, and until when.

A Job keeps its requeue state in its own row. A pod that a controller replaces is another workload each time, so its replacement begins with
the requeue state of the pod before it. That state is kept for the controlling owner and its template (`owner_and_revision`), in the rows of
the pods that failed, and by the leader in `OwnerRequeueStates`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from fluxqueue.api.pods import Pod
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.records import NO_REQUEUE_STATE, NodeRefusal, RequeueState

__all__ = ["REMEMBERED", "OwnerRequeueStates", "merge_requeue_states", "owner_and_revision", "refusals_in_words"]

REMEMBERED = timedelta(minutes=30)
"""How long the requeue states of an owner's pods count."""
_MAX_OWNERS = 10_000
_MAX_NAMED = 5
_REVISION_LABEL = "controller-revision-hash"


def owner_and_revision(pod: Pod) -> str:
    """Return the owner and the revision whose pods are created alike; empty for a pod that no controller replaces.

    A Deployment has a ReplicaSet for each template. A StatefulSet's pods carry the revision in a label. A changed template begins with no
    requeue state, because the change may be the repair.
    """
    owner = pod.metadata.controller
    if owner is None:
        return ""
    revision = pod.metadata.label(_REVISION_LABEL)
    return f"{owner.uid}/{revision}" if revision else owner.uid


class OwnerRequeueStates:
    """Requeue states of the last half hour, by owner; the least recent are dropped first."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, tuple[RequeueState, datetime]] = OrderedDict()

    def record(self, requeue_state: RequeueState, at: datetime) -> None:
        """Record the requeue state of a pod, merged with those of other pods of its owner."""
        if not requeue_state.owner:
            return
        known = self._of.pop(requeue_state.owner, None)
        self._of[requeue_state.owner] = (merge_requeue_states(known[0], requeue_state) if known is not None else requeue_state), at
        while len(self._of) > _MAX_OWNERS:
            self._of.popitem(last=False)

    def of(self, pod: Pod, now: datetime) -> RequeueState:
        """Return the requeue state that a new pod begins with."""
        owner = owner_and_revision(pod)
        known, at = self._of.get(owner, (NO_REQUEUE_STATE, now))
        if now - at > REMEMBERED:
            del self._of[owner]
            return NO_REQUEUE_STATE
        return known


def merge_requeue_states(first: RequeueState, second: RequeueState) -> RequeueState:
    """Return the requeue state of two pods of one owner: all nodes that refused one of them, the longer back-off, the first submit time."""
    times = [at for at in (first.not_before, second.not_before) if at is not None]
    submitted = [at for at in (first.submitted_at, second.submitted_at) if at is not None]
    return msgspec.structs.replace(
        second,
        starts=max(first.starts, second.starts),
        not_before=max(times, default=None),
        refused={**first.refused, **second.refused},
        submitted_at=min(submitted, default=None),
    )


def refusals_in_words(refused: Mapping[str, NodeRefusal]) -> str:
    """Return a part of a reason, such as ``not on node-2 (refused a pod at ..., until ...)``; empty if no node refused."""
    named = [
        f"{node} (refused a pod at {time_text(refusal.at)}, until {time_text(refusal.until)})"
        for node, refusal in sorted(refused.items())[:_MAX_NAMED]
    ]
    more = f" and {len(refused) - _MAX_NAMED} more" if len(refused) > _MAX_NAMED else ""
    return "not on " + ", ".join(named) + more if named else ""
