"""What becomes of work that does not start where it was placed, or whose node is lost under it.

Both are told from objects alone. Pods that were let go and do not bind, or are not even made, within the time for that are a failed start;
what was observed (the scheduler's own sentence, a gate of somebody else, pods that nobody made) is what people are told. The work is
matched again, for a while not on the nodes that would not have it, and is held after three failed starts in a row: by then somebody has to
look. A lost node is nobody's fault, so there is more patience: the first time it is matched again at once, then after a pause that
doubles, and it is held in the end as well. Whoever ran for ten minutes begins to count anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.names import GATE
from fluxqueue.api.objects import Pod
from fluxqueue.queue.records import Allocation, Setbacks, SlotState, TakeBack, Workload

__all__ = ["FailedStart", "after_failed_start", "after_loss", "failed_start", "nodes_under"]

MOST_STARTS = 3
MOST_LOSSES = 5
_AVOIDED = timedelta(minutes=10)
_FORGIVEN = timedelta(minutes=10)
_FIRST_PAUSE = timedelta(seconds=10)
_LONGEST_PAUSE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class FailedStart:
    """What keeps a workload's pods from their nodes.

    Attributes
    ----------
    reason
        `Reason.BIND_FAILED` where the scheduler refused one, else `Reason.START_TIMEOUT`.
    message
        What was observed.
    nodes
        Those that would not have a pod.
    others_gate
        Whether it is somebody else's gate: making the pod anew would not help.
    """

    reason: Reason
    message: str
    nodes: tuple[str, ...] = ()
    others_gate: bool = False


def failed_start(allocation: Allocation, pods: Sequence[Pod], within_s: float) -> FailedStart | None:
    """What is missing of a workload that was let go long ago; None if nothing is.

    Parameters
    ----------
    allocation
        With its slots.
    pods
        All pods of the workload.
    within_s
        How long they had.
    """
    open_slots = {slot.rank: slot for slot in allocation.slots if slot.state is not SlotState.ENDED}
    living = [pod for pod in pods if pod.staying]
    unbound = sorted((pod for pod in living if not pod.spec.node_name), key=lambda pod: pod.metadata.name)
    node_of = {slot.pod_uid: slot.node for slot in open_slots.values() if slot.pod_uid}
    refused = [pod for pod in unbound if _refusal(pod)]
    if refused:
        first = refused[0]
        nodes = tuple(sorted({node for pod in refused if (node := node_of.get(pod.metadata.uid)) is not None}))
        where = f" to {node_of[first.metadata.uid]}" if first.metadata.uid in node_of else ""
        more = f", and {len(unbound) - 1} more" if len(unbound) > 1 else ""
        return FailedStart(
            Reason.BIND_FAILED, f"pod {first.metadata.name}{more} could not be bound{where} in {within_s:g} s: {_refusal(first)}", nodes
        )
    if unbound:
        first = unbound[0]
        gates = [gate.name for gate in first.spec.scheduling_gates or () if gate.name != GATE]
        if gates:
            text = f"pod {first.metadata.name} still has the scheduling gate {gates[0]} of somebody else after {within_s:g} s"
            return FailedStart(Reason.START_TIMEOUT, text, others_gate=True)
        return FailedStart(
            Reason.START_TIMEOUT, f"pod {first.metadata.name} was not bound in {within_s:g} s: is its scheduler running?", ()
        )
    missing = len(open_slots) - len(living)
    if missing > 0:
        return FailedStart(
            Reason.START_TIMEOUT,
            f"{missing} of {len(open_slots)} pods were not made in {within_s:g} s: a quota or an admission plugin may refuse them, "
            "their owner's Events say so",
        )
    return None


def _refusal(pod: Pod) -> str:
    """Why the scheduler does not bind it, in its own words; empty if it did not say."""
    condition = pod.status.condition("PodScheduled")
    if condition is None or condition.status != "False" or condition.reason != "Unschedulable":
        return ""
    return condition.message.split(". preemption:")[0].rstrip(".") or condition.reason


def nodes_under(allocation: Allocation, lost: Callable[[str], bool]) -> tuple[str, ...]:
    """The lost nodes that a workload still has places on."""
    return tuple(sorted({slot.node for slot in allocation.slots if slot.state is not SlotState.ENDED and lost(slot.node)}))


def after_failed_start(workload: Workload, failed: FailedStart, now: datetime) -> TakeBack:
    """Match it again elsewhere, or hold it."""
    where = f"{workload.kind} {workload.namespace}/{workload.name}"
    before = _counted(workload, now)
    starts = before.starts + 1
    if starts >= MOST_STARTS:
        return TakeBack(
            workload=workload.id,
            reason=Reason.HELD,
            message=(
                f"{where} did not start {starts} times in a row and is held: {failed.message}; "
                "mend that, then set spec.hold of its FluxJob to false"
            ),
            setbacks=Setbacks(),
        )
    avoided = {node: until for node, until in before.avoided.items() if until > now} | dict.fromkeys(failed.nodes, now + _AVOIDED)
    again = f"it is matched again (start {starts + 1} of {MOST_STARTS})"
    if failed.nodes:
        again += f", for {_AVOIDED.total_seconds() / 60:g} min not on {', '.join(failed.nodes[:5])}"
    return TakeBack(
        workload=workload.id,
        reason=failed.reason,
        message=f"{where} did not start: {failed.message}; {again}",
        setbacks=Setbacks(starts=starts, losses=before.losses, avoided=avoided),
    )


def after_loss(workload: Workload, nodes: Sequence[str], now: datetime) -> TakeBack:
    """Match it again after a pause, or hold it."""
    where = f"{workload.kind} {workload.namespace}/{workload.name}"
    what = f"node {nodes[0]} was lost under it" if len(nodes) == 1 else f"nodes {', '.join(nodes[:5])} were lost under it"
    before = _counted(workload, now)
    losses = before.losses + 1
    if losses > MOST_LOSSES:
        return TakeBack(
            workload=workload.id,
            reason=Reason.HELD,
            message=f"{where} lost its nodes {losses} times in a row and is held: {what}; set spec.hold of its FluxJob to false to go on",
            setbacks=Setbacks(),
        )
    pause = min(_FIRST_PAUSE * 2 ** (losses - 2), _LONGEST_PAUSE) if losses > 1 else timedelta()
    again = f"after {pause.total_seconds():g} s" if pause else "at once"
    return TakeBack(
        workload=workload.id,
        reason=Reason.NODES_UNAVAILABLE,
        message=f"{where} waits again: {what}; it is matched again {again} (time {losses} of {MOST_LOSSES})",
        setbacks=Setbacks(starts=before.starts, losses=losses, not_before=now + pause if pause else None, avoided=before.avoided),
    )


def _counted(workload: Workload, now: datetime) -> Setbacks:
    """What still counts: nothing, if it ran well for a while since."""
    if workload.started_at is not None and now - workload.started_at > _FORGIVEN:
        return Setbacks(avoided=workload.setbacks.avoided)
    return workload.setbacks
