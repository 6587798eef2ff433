"""What keeps released pods from their nodes, read from objects alone.

A start failed if released pods are not bound within the time for that, or were not even created. The message
has what was observed: the message of the scheduler, a scheduling gate of another controller, or the number of
missing pods. What is done about a failed start is decided in `fluxqueue.queue.requeue.start_decisions`, and
when the work is matched again in `fluxqueue.queue.requeue.evictions`. Pods that the API server refuses,
because of a quota for example, are found by `fluxqueue.queue.requeue.pod_refusals`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.jobs import Job
from fluxqueue.api.names import JOB_CONTROLLER
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.refusals import refusal
from fluxqueue.api.templatepins import is_pinned
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.given_back import staying_slots
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT
from fluxqueue.queue.model.pods import pinned_node
from fluxqueue.queue.model.records import Allocation, Slot, Workload
from fluxqueue.queue.noderules.node_checks import closed

__all__ = [
    "StartFailure",
    "StartFailureCause",
    "find_bind_refusal",
    "find_closed_nodes",
    "find_empty_slots",
    "find_gate_refusal",
    "find_retry",
    "find_timeout",
    "find_unseen",
    "is_refused",
    "lost_nodes",
    "release_seen_at",
]


class StartFailureCause(enum.Enum):
    """Why pods do not start."""

    TIMEOUT = "timeout"
    """They were not created or not bound in time."""
    CLOSED = "closed"
    """Their node takes no pods of this kind any more."""
    REFUSED = "refused"
    """The API server refuses to create them, or to release them."""
    RETRIED = "retried"
    """The Job controller waits before it replaces pods that failed."""
    UNSEEN = "unseen"
    """The Job controller has not acted on the release yet."""
    UNBINDABLE = "unbindable"
    """Our own scheduler reports that it cannot bind them to their nodes."""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """What keeps pods of a workload from their nodes.

    Attributes
    ----------
    reason
        `Reason.BIND_FAILED` if the scheduler refused a pod, else `Reason.START_TIMEOUT`.
    message
        What was observed.
    nodes
        The nodes that refused a pod.
    foreign_gate
        True if a pod has the scheduling gate of another controller. Its replacement would have it too.
    pods
        The pods that exist and have no node.
    empty_slots
        Slots whose pods do not exist although the time for the first start is over, if no other pod waits.
    without_slots
        True if pods that do not exist have no slots, because these were given back.
    cause
        Decides when the workload is matched again.
    scheduler_waits
        True if our own scheduler has all of the pods and refuses none. It waits for something, or it is not
        running; another match would not help.
    """

    reason: Reason
    message: str
    nodes: tuple[str, ...] = ()
    foreign_gate: bool = False
    pods: tuple[Pod, ...] = ()
    empty_slots: tuple[Slot, ...] = ()
    without_slots: bool = False
    cause: StartFailureCause = StartFailureCause.TIMEOUT
    scheduler_waits: bool = False


def find_timeout(
    allocation: Allocation, pods: Sequence[Pod], within_s: float, *, late: Container[str] | None = None
) -> StartFailure | None:
    """Return what is missing of a workload whose time to start is over; None if nothing is.

    Parameters
    ----------
    allocation
        With its slots.
    pods
        All pods of the workload that are not matched alone.
    within_s
        The time they had.
    late
        The uids of pods whose time is over. None: the time of the whole workload is over, so pods that were
        not created count too.
    """
    slots = allocation.open_slots
    active = [pod for pod in pods if pod.active]
    waiting = [pod for pod in active if not pod.spec.node_name and not pod.held]
    unbound = tuple(sorted((pod for pod in waiting if late is None or pod.metadata.uid in late), key=_name))
    refused = [pod for pod in unbound if _scheduler_message(pod)]
    if refused:
        return _refused_by_scheduler(refused, unbound, slots, within_s)
    if unbound:
        first = unbound[0]
        gates = [gate.name for gate in first.spec.scheduling_gates or ()]
        if gates:
            text = (
                f"pod {first.metadata.name} still has the scheduling gate {gates[0]} of another controller "
                f"after {within_s:g} s"
            )
            return StartFailure(Reason.START_TIMEOUT, text, foreign_gate=True, pods=unbound)
        waits = all(pod.revocable for pod in unbound) and len(active) >= len(slots)
        text = (
            f"pod {first.metadata.name} was not bound in {within_s:g} s: "
            f"{_awaited(first) if waits else 'is its scheduler running?'}"
        )
        return StartFailure(Reason.START_TIMEOUT, text, pods=unbound, scheduler_waits=waits)
    missing = len(slots) - len(active)
    if (
        missing > 0
        and late is None
        and (ending := sum(1 for pod in pods if pod.metadata.deletion_timestamp and not pod.terminal))
    ):
        what = "is being deleted and is" if ending == 1 else "are being deleted and are"
        text = f"{missing} of {len(slots)} pods are missing: {ending} {what} replaced once gone"
        return StartFailure(Reason.START_TIMEOUT, text, empty_slots=find_empty_slots(allocation, active))
    if missing > 0 and late is None:
        return StartFailure(
            Reason.START_TIMEOUT,
            f"{missing} of {len(slots)} pods were not created in {within_s:g} s: a quota or an admission "
            "plugin may refuse them, see the Events of their owner",
            empty_slots=find_empty_slots(allocation, active),
        )
    return None


def find_retry(allocation: Allocation, pods: Sequence[Pod], until: datetime) -> StartFailure | None:
    """Return how many pods of a Job the Job controller creates again after a pause,
    at this time at the latest; None if none is missing.
    """
    missing = len(allocation.open_slots) - sum(1 for pod in pods if pod.active)
    if missing <= 0:
        return None
    what, them = ("pod is", "it") if missing == 1 else ("pods are", "them")
    text = (
        f"{missing} {what} missing because a pod failed: the Job controller creates {them} again by "
        f"{time_text(until)} (its back-off)"
    )
    return StartFailure(Reason.START_TIMEOUT, text, cause=StartFailureCause.RETRIED)


def find_unseen(job: Job, within_s: float) -> StartFailure | None:
    """Return that the Job controller has not acted on the release of a Job;
    None if it has, or if it is another controller whose ways are not known.

    With tens of thousands of new Jobs it comes to each after many minutes. To suspend the Job and to release
    it again only adds to that.
    """
    if not _has_known_controller(job) or job.spec.suspend or release_seen_at(job) is not None:
        return None
    text = (
        f"the Job controller has not acted on its release in {within_s:g} s: it has much to do, or it does "
        "not run (kube-controller-manager)"
    )
    return StartFailure(Reason.START_TIMEOUT, text, cause=StartFailureCause.UNSEEN)


def release_seen_at(job: Job) -> datetime | None:
    """Return when the Job controller acted on the release of a Job: pods come only then. None if it has not
    yet, or if it is another controller.
    """
    at = job.status.start_time
    if at is None or job.status.has_condition("Suspended") or not _has_known_controller(job):
        return None
    return datetime.fromisoformat(at)


def _has_known_controller(job: Job) -> bool:
    return job.spec.managed_by in (None, JOB_CONTROLLER)


def find_gate_refusal(pod: str, message: str) -> StartFailure:
    """Return that a pod (by name) was created and keeps its gate, as the API server refuses to remove it."""
    return StartFailure(
        Reason.RELEASE_FAILED,
        f"pod {pod} could not be released: {message}",
        cause=StartFailureCause.REFUSED,
    )


def find_empty_slots(allocation: Allocation, pods: Sequence[Pod]) -> tuple[Slot, ...]:
    """Return the slots that no pod has; none while one of the active pods has no node,
    or no slot is stored for it.
    """
    active = {pod.metadata.uid for pod in pods if pod.active}
    if any(pod.active and not pod.spec.node_name for pod in pods) or active - {
        slot.pod_uid for slot in allocation.open_slots
    }:
        return ()
    return tuple(
        slot for slot in allocation.open_slots if slot.label != SERVICES_SLOT and slot.pod_uid not in active
    )


def _refused_by_scheduler(
    refused: Sequence[Pod], unbound: Sequence[Pod], slots: Sequence[Slot], within_s: float
) -> StartFailure:
    node_of = {slot.pod_uid: slot.node for slot in slots if slot.pod_uid}
    nodes = {node for pod in refused if (node := node_of.get(pod.metadata.uid)) is not None}
    first = refused[0]
    where = f" to {node_of[first.metadata.uid]}" if first.metadata.uid in node_of else ""
    text = (
        f"pod {first.metadata.name}{_and_more(unbound)} could not be bound{where} in {within_s:g} s: "
        f"{_scheduler_message(first)}"
    )
    return StartFailure(Reason.BIND_FAILED, text, tuple(sorted(nodes)), pods=tuple(unbound))


def _scheduler_message(pod: Pod) -> str:
    """Return the scheduler's message about a pod it cannot bind; empty if there is none."""
    if pod.fluxion_binds:
        return refusal(pod)
    condition = pod.status.condition("PodScheduled")
    if condition is None or condition.status != "False" or condition.reason != "Unschedulable":
        return ""
    return condition.message.split(". preemption:")[0].rstrip(".") or condition.reason


def is_refused(pod: Pod) -> bool:
    """True if the scheduler says that it cannot bind a pod."""
    return bool(_scheduler_message(pod))


def _awaited(pod: Pod) -> str:
    """Return what our own scheduler waits for."""
    condition = pod.status.condition("PodScheduled")
    if condition is not None and condition.status == "False" and condition.reason.startswith("WaitingFor"):
        return condition.message.rstrip(".") or condition.reason
    return "is the scheduler of fluxqueue running?"


def find_bind_refusal(pods: Sequence[Pod]) -> StartFailure:
    """Return what our own scheduler reports about pods that it cannot bind.

    Parameters
    ----------
    pods
        One or more, each with a refusal (`fluxqueue.api.refusals`) of its present node.
    """
    ordered = sorted(pods, key=_name)
    nodes = {node for pod in ordered if (node := pinned_node(pod)) is not None}
    first = ordered[0]
    where = f" to {node}" if (node := pinned_node(first)) is not None else ""
    text = f"pod {first.metadata.name}{_and_more(ordered)} could not be bound{where}: {refusal(first)}"
    return StartFailure(
        Reason.BIND_FAILED,
        text,
        tuple(sorted(nodes)),
        pods=tuple(ordered),
        cause=StartFailureCause.UNBINDABLE,
    )


def _no_obstacle(_pod: Pod, _node: str) -> str:
    return ""


def find_closed_nodes(
    allocation: Allocation,
    pods: Iterable[Pod],
    node_of_name: Callable[[str], Node | None],
    obstacle_to: Callable[[Pod, str], str] = _no_obstacle,
) -> StartFailure | None:
    """Return which pods wait for a node that does not take them any more; None if no pod does.

    Parameters
    ----------
    allocation
        With its slots: they have the node of each pod.
    pods
        Pods of the workload.
    node_of_name
        Returns the node of a name; None if there is none.
    obstacle_to
        Returns what else keeps a pod from the node of this name; empty if nothing is known to.
    """
    node_of = {slot.pod_uid: slot.node for slot in allocation.open_slots if slot.pod_uid}
    waiting: list[tuple[Pod, str]] = []
    for pod in sorted(pods, key=_name):
        name = node_of.get(pod.metadata.uid) or (pinned_node(pod) if is_pinned(pod.metadata) else None)
        if name is None or not pod.active or pod.spec.node_name or pod.spec.scheduling_gates:
            continue
        node = node_of_name(name)
        if node is not None and not node.status.ready:
            continue  # it may be ready again in a moment: `NodeLosses` measures how long that is tolerated
        if problem := closed(node, pod.spec) or obstacle_to(pod, name):
            waiting.append((pod, problem))
    if not waiting:
        return None
    closed_out = tuple(pod for pod, _ in waiting)
    text = f"pod {closed_out[0].metadata.name}{_and_more(closed_out)} cannot be bound: {waiting[0][1]}"
    return StartFailure(Reason.NODES_UNAVAILABLE, text, pods=closed_out, cause=StartFailureCause.CLOSED)


def lost_nodes(workload: Workload, allocation: Allocation, lost: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the lost nodes on which a workload still has slots that it does not give back."""
    return tuple(sorted({slot.node for slot in staying_slots(workload, allocation) if lost(slot.node)}))


def _and_more(pods: Sequence[Pod]) -> str:
    return f", and {len(pods) - 1} more" if len(pods) > 1 else ""


def _name(pod: Pod) -> str:
    return pod.metadata.name
