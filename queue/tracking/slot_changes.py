"""What changes about the slots of a released workload.

Pods come, go, fail and are replaced. Jobs are suspended and resumed while old pods still terminate. So
nothing is concluded from one event, or from the status of a Job alone. Each time something changes, the slots
are planned again from the Job, all its pods and the stored slots: `fluxqueue.queue.tracking.job_plan` for
Jobs, `fluxqueue.queue.tracking.group_plan` for groups, and `plan_pod_slot` for single pods.

A slot returns to the cluster when its pod is gone or terminal **and** no other can follow (architecture,
section 3.5). A pod that is being deleted keeps its slot until it is gone, because the node still holds its
resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import Allocation, Workload

__all__ = [
    "PlannedChanges",
    "SlotChanges",
    "as_preempted",
    "empty_ranks",
    "first_bound",
    "plan_pod_slot",
    "still_gated",
    "unplaced_pods",
    "why_failed",
]

_NOT_STARTED = ("StartError", "ContainerCannotRun")
"""Reasons whose message is that of the container runtime, not of a program."""
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class SlotChanges:
    """The changes to an allocation's slots.

    Attributes
    ----------
    take
        (rank, pod) pairs: the pod is on the slot's node, and is to be stored in the slot.
    assign
        (rank, pod) pairs: the pod has our gate, and is to be released onto this free slot.
    vacate
        Ranks whose pod is gone, where another may follow.
    end
        Ranks that return to the cluster.
    more_end_later
        True if more slots end when the pin window closes.
    running
        True if every pod that is expected now is bound to a node.
    state, outcome
        How the workload ends once all its slots have ended; None while it may go on.
    message
        For the end.
    began_at
        Of what ends: when its first pod got its node.
    """

    take: tuple[tuple[int, Pod], ...] = ()
    assign: tuple[tuple[int, Pod], ...] = ()
    vacate: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    more_end_later: bool = False
    running: bool = False
    state: State | None = None
    outcome: Outcome = Outcome.NONE
    message: str = ""
    began_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlannedChanges:
    """A released workload, its allocation, and what changes about its slots."""

    workload: Workload
    allocation: Allocation
    changes: SlotChanges


def plan_pod_slot(pod: Pod | None, allocation: Allocation, last_phase: str = "") -> SlotChanges:
    """Plan the one slot of a pod that is a workload of its own.

    Parameters
    ----------
    pod
        As it is now; None once it is gone.
    allocation
        With its slot.
    last_phase
        The phase in which the pod was last seen, for when it is gone.
    """
    if pod is not None and not pod.terminal:
        slot = next(iter(allocation.open_slots), None)
        if slot is None:
            return SlotChanges()
        if pod.held:
            return SlotChanges(assign=((slot.rank, pod),))
        take = ((slot.rank, pod),) if slot.pod_uid != pod.metadata.uid else ()
        return SlotChanges(take=take, running=bool(pod.spec.node_name))
    phase = pod.status.phase if pod is not None else last_phase
    ends = {
        "Succeeded": (State.COMPLETED, Outcome.SUCCEEDED, ""),
        "Failed": (State.FAILED, Outcome.FAILED, why_failed(pod) if pod else ""),
        "": (State.CANCELLED, Outcome.UNKNOWN, "the pod was deleted while no leader watched"),
    }
    state, outcome, message = ends.get(phase, (State.CANCELLED, Outcome.CANCELLED, "the pod was deleted"))
    end, began_at = (
        tuple(slot.rank for slot in allocation.open_slots),
        first_bound([pod] if pod else [], allocation.granted_at),
    )
    return SlotChanges(end=end, state=state, outcome=outcome, message=message, began_at=began_at)


def first_bound(pods: Iterable[Pod], since: datetime | None) -> datetime | None:
    """Return when the first of these pods got its node, of those that got it since then; None if that is not
    known.

    Times in pods are whole seconds, so a pod that got its node in the second of ``since`` counts.
    """
    if since is None:
        return None
    bound = (pod.status.condition("PodScheduled") for pod in pods if pod.spec.node_name)
    times = (
        _time(each.last_transition_time or "") for each in bound if each is not None and each.status == "True"
    )
    return min((at for at in times if at is not None and at > since - timedelta(seconds=1)), default=None)


def _time(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:  # also years that only the API server knows
        return None
    return at if at.tzinfo is not None else None


def why_failed(pod: Pod) -> str:
    """Return what Kubernetes says of a pod that failed;
    empty if only the exit codes of its programs say something.
    """
    ends = [
        status.state.terminated
        for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    ]
    not_started = next((end.message for end in ends if end is not None and end.reason in _NOT_STARTED), "")
    return pod.status.message or not_started[:_LONGEST] or pod.status.reason


def as_preempted(workload: Workload, pod: Pod | None, changes: SlotChanges, now: datetime) -> SlotChanges:
    """Return the changes of a pod's slot; if it ends because the pod was preempted, in whatever phase, the
    end says so.

    While its grace is not over nothing was evicted, so it ended by itself.
    """
    preempted = workload.evicting and workload.reason is Reason.PREEMPTED and not grace_left_s(workload, now)
    if changes.state is None or not preempted or (pod is not None and not pod.metadata.deletion_timestamp):
        return changes
    return replace(changes, state=State.CANCELLED, outcome=Outcome.CANCELLED, message=workload.message)


def still_gated(pod: Pod) -> bool:
    """True if a pod that is stored in a slot still has our gate:
    the process ended before it removed the gate.
    """
    return pod.held and not pod.metadata.deletion_timestamp


def empty_ranks(allocation: Allocation, changes: SlotChanges) -> set[int]:
    """Return the open slots that have no pod once the changes are carried out."""
    busy = {rank for rank, _ in (*changes.take, *changes.assign)} | set(changes.end)
    vacated = set(changes.vacate)
    return {
        slot.rank
        for slot in allocation.open_slots
        if slot.rank not in busy and (slot.pod_uid is None or slot.rank in vacated)
    }


def unplaced_pods(pods: Sequence[Pod], allocation: Allocation, changes: SlotChanges) -> list[Pod]:
    """Return the gated pods that get no slot: their node may take no pod any more,
    so each may have to be matched alone.
    """
    placed = {pod.metadata.uid for _, pod in changes.assign} | allocation.pod_uids
    return [pod for pod in pods if pod.metadata.uid not in placed and pod.active and pod.held]
