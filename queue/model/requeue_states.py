"""Requeue states that pass from a pod to its replacement, and the nodes that a workload avoids.

A node refuses a pod for what the graph does not know: a port in use, a volume, an affinity to other pods. So
the next match is requested without that node. This is a preference. Work that could never fit on the other
nodes is matched on all of them, and is never called unsatisfiable because of nodes that it avoids. While the
other nodes are only busy, it waits for them, and its reason names the avoided nodes, and until when.

A Job keeps its requeue state in its own row. A pod that a controller replaces is another workload each time,
so its replacement begins with the requeue state of the pod before it. That state is kept for the controlling
owner and its template (`owner_and_revision`), in the rows of the pods that failed, and by the leader in
`OwnerRequeueStates`. The submit time of a pod that was preempted passes in the same way, but to one
replacement only: pods by which the owner is scaled up are new.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from fluxqueue.api.formatting import some_of
from fluxqueue.api.pods import Pod
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.requeue_records import NO_REQUEUE_STATE, NodeRefusal, RequeueState

__all__ = [
    "REMEMBERED",
    "OwnerRequeueStates",
    "merge_requeue_states",
    "owner_and_revision",
    "refusals_in_words",
]

_T = TypeVar("_T")

REMEMBERED = timedelta(minutes=30)
"""How long the requeue states of an owner's pods count."""
_MAX_OWNERS = 10_000
_MAX_SUBMIT_TIMES = 1000
"""Of one owner."""
_NOBODY = "-"
_MAX_NAMED = 5
_REVISION_LABEL = "controller-revision-hash"


def owner_and_revision(pod: Pod) -> str:
    """Return the owner and the revision whose pods are created alike; empty for a pod that no controller
    replaces.

    A Deployment has a ReplicaSet for each template. A StatefulSet's pods carry the revision in a label. A
    changed template begins with no requeue state, because the change may be the repair.
    """
    owner = pod.metadata.controller
    if owner is None:
        return ""
    revision = pod.metadata.label(_REVISION_LABEL)
    return f"{owner.uid}/{revision}" if revision else owner.uid


@dataclass(slots=True)
class _SubmitTime:
    """The submit time of a pod that was preempted, since when it may be taken,
    and the replacement (uid) that took it.
    """

    submitted_at: datetime
    at: datetime
    taken_by: str = ""


class OwnerRequeueStates:
    """Requeue states of the last half hour, and submit times of preempted pods, by owner;
    the least recent are dropped first.
    """

    def __init__(self) -> None:
        self._of: OrderedDict[str, tuple[RequeueState, datetime]] = OrderedDict()
        self._submit_times: OrderedDict[str, deque[_SubmitTime]] = OrderedDict()

    def record(
        self, requeue_state: RequeueState, at: datetime, former: RequeueState = NO_REQUEUE_STATE
    ) -> None:
        """Record the requeue state of a pod, merged with those of other pods of its owner.

        The submit time that it hands on counts once, whatever else of it changes. It is withdrawn if the pod
        waits again itself.
        """
        if requeue_state.submitted_at is not None and former.submitted_at is None:
            times = self._submit_times.pop(requeue_state.owner, None) or deque(maxlen=_MAX_SUBMIT_TIMES)
            times.append(_SubmitTime(requeue_state.submitted_at, max(at, requeue_state.stop_at or at)))
            _keep(self._submit_times, requeue_state.owner, times)
        elif requeue_state.submitted_at is None and former.submitted_at is not None:
            self._mark_taken(former.owner, former.submitted_at, _NOBODY)
        if not requeue_state.owner:
            return
        passed = msgspec.structs.replace(
            requeue_state, submitted_at=None, stop_at=None, preempted_for=0, unused=None
        )
        known = self._of.pop(requeue_state.owner, None)
        if known is not None and at - known[1] <= REMEMBERED:
            passed = merge_requeue_states(known[0], passed)
        _keep(self._of, requeue_state.owner, (passed, at))

    def note_taken(self, workload: Workload) -> None:
        """Note that a replacement has the submit time of a preempted pod, as a new leader reads."""
        if workload.requeue_state.owner and workload.requeue_state.submitted_at is None:
            self._mark_taken(workload.requeue_state.owner, workload.submitted_at, workload.uid)

    def of(self, pod: Pod, now: datetime) -> RequeueState:
        """Return the requeue state that a new pod begins with."""
        owner = owner_and_revision(pod)
        known, at = self._of.get(owner, (NO_REQUEUE_STATE, now))
        if now - at > REMEMBERED:
            del self._of[owner]
            return NO_REQUEUE_STATE
        return known

    def take_submit_time(self, pod: Pod, now: datetime) -> datetime | None:
        """Return the submit time of a preempted pod that a new pod replaces, for this pod alone;
        None if there is none left.
        """
        owner, uid = owner_and_revision(pod), pod.metadata.uid
        times = [each for each in self._submit_times.get(owner, ()) if now - each.at <= REMEMBERED]
        if not times:
            self._submit_times.pop(owner, None)
            return None
        taken = next((each for each in times if each.taken_by == uid), None) or next(
            (each for each in times if not each.taken_by), None
        )
        if taken is None:
            return None
        taken.taken_by = uid
        return taken.submitted_at

    def _mark_taken(self, owner: str, submitted_at: datetime, uid: str) -> None:
        for each in self._submit_times.get(owner, ()):
            if each.submitted_at == submitted_at and not each.taken_by:
                each.taken_by = uid
                return


def _keep(entries: OrderedDict[str, _T], owner: str, entry: _T) -> None:
    entries[owner] = entry
    while len(entries) > _MAX_OWNERS:
        entries.popitem(last=False)


def merge_requeue_states(first: RequeueState, second: RequeueState) -> RequeueState:
    """Return the requeue state of two pods of one owner:
    all nodes that refused one of them, and the longer back-off.
    """
    times = [at for at in (first.not_before, second.not_before) if at is not None]
    return msgspec.structs.replace(
        second,
        starts=max(first.starts, second.starts),
        not_before=max(times, default=None),
        refused={**first.refused, **second.refused},
    )


def refusals_in_words(refused: Mapping[str, NodeRefusal]) -> str:
    """Return a part of a reason, such as ``not on node-2 (refused a pod at ..., until ...)``;
    empty if no node refused.
    """
    named = [
        f"{node} (refused a pod at {time_text(refusal.at)}, until {time_text(refusal.until)})"
        for node, refusal in sorted(refused.items())
    ]
    return f"not on {some_of(named, _MAX_NAMED)}" if named else ""
