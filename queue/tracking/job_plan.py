"""Plans the slots of a released Job.

A slot ends when its index succeeded or failed for good, when the Job finished, was deleted or was suspended,
or when no completions are left to start. While the pin window of a Job is open, the node list in its template
still pins new pods. So until then only the slot of an index that is done ends (`fluxqueue.api.pinwindows`).

A slot is not reused while its node takes no pod, because the node is drained, lost, tainted or full. The next
pod for it is matched alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.jobs import is_elastic
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT
from fluxqueue.queue.model.minicluster_jobs import job_served_by
from fluxqueue.queue.model.pods import age, pinned_node
from fluxqueue.queue.model.records import Allocation, Slot, SlotState
from fluxqueue.queue.tracking.free_slots import FreeSlots
from fluxqueue.queue.tracking.slot_changes import SlotChanges, first_bound, still_gated, why_failed
from fluxqueue.queue.tracking.slot_ends import finished_ranks, has_succeeded, unneeded_ranks

__all__ = ["ALL_OPEN", "ClosedNodes", "JobPhase", "conclude_job", "job_phase", "plan_job_slots"]


class JobPhase(Enum):
    """What a Job may still start."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GONE = "gone"


def _none(_node: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ClosedNodes:
    """The nodes, by name, that take no pod of a Job at present.

    Attributes
    ----------
    to_job
        True for a node onto which no pod of this Job is released, also because it refused one of them.
    to_all
        True for a node that takes no pod of this kind at all. An empty slot there stays open until its pod is
        bound elsewhere.
    """

    to_job: Callable[[str], bool] = _none
    to_all: Callable[[str], bool] = _none


ALL_OPEN = ClosedNodes()


def job_phase(job: Job | None) -> JobPhase:
    """Return a Job's phase. A Job that is missing or being deleted is GONE."""
    if job is None:
        return JobPhase.GONE
    if job.status.has_condition("Complete"):
        return JobPhase.SUCCEEDED
    if job.status.has_condition("Failed"):
        return JobPhase.FAILED
    if job.metadata.deletion_timestamp:
        return JobPhase.GONE  # finalizers keep the object, but its controller starts no more pods
    return JobPhase.SUSPENDED if job.spec.suspend else JobPhase.ACTIVE


def plan_job_slots(
    job: Job | None,
    pods: Sequence[Pod],
    allocation: Allocation,
    last: Job | None = None,
    *,
    elsewhere: Sequence[Pod] = (),
    closed: ClosedNodes = ALL_OPEN,
    pin_window_open: bool = False,
    leaving: Set[int] = frozenset(),
) -> SlotChanges:
    """Plan the slots of a released Job. Once the changes are carried out, the next plan has none.

    Parameters
    ----------
    job
        As it is now; None once it is gone.
    pods
        All its pods in any phase, with the services pod of a MiniCluster.
    allocation
        With its slots, by rank.
    last
        The Job as it was last seen, for when it is gone.
    elsewhere
        Its living pods that are matched alone: those it grew by, and replacements of pods whose node is
        closed.
    closed
        The nodes that take no pod of it.
    pin_window_open
        True while the node list in its template still pins new pods.
    leaving
        Ranks of slots that it gives back: no further pod gets one, and it ends with its pod.
    """
    if job is not None and job.metadata.label(names.JOBID_LABEL) != str(allocation.jobid):
        return SlotChanges()  # read before the release, which writes the label
    phase = job_phase(job)
    own = [pod for pod in pods if job_served_by(pod) is None]
    given = [slot for slot in allocation.open_slots if slot.rank in leaving]
    kept = [slot for slot in allocation.open_slots if slot.rank not in leaving]
    slots = [slot for slot in kept if slot.label != SERVICES_SLOT]
    staying = _without_those_in(given, own)
    placement = _place(job, phase, staying, slots, closed)
    end, end_later = _slots_to_end(job, phase, staying, placement, elsewhere, closed, pin_window_open)
    bound = 0 < placement.bound >= len(slots) - len(end) - len(end_later)
    end |= _left_ranks(given, own)
    state, outcome, message = _conclusion(job, last, own)
    changes = SlotChanges(
        take=placement.take,
        assign=placement.assign,
        vacate=tuple(slot.rank for slot in placement.vacated if slot.rank not in end),
        end=tuple(sorted(end)),
        more_end_later=bool(end_later),
        running=phase is JobPhase.ACTIVE and bound,
        state=state,
        outcome=outcome,
        message=message,
        began_at=first_bound(own, allocation.granted_at) if state is not None else None,
    )
    services_slot = next((slot for slot in allocation.open_slots if slot.label == SERVICES_SLOT), None)
    return changes if services_slot is None else _with_services(changes, services_slot, phase, pods)


def _left_ranks(given: Iterable[Slot], pods: Iterable[Pod]) -> set[int]:
    """Return the ranks of those slots whose pod has ended."""
    living = {pod.metadata.uid for pod in pods if not pod.terminal}
    return {slot.rank for slot in given if slot.pod_uid not in living}


@dataclass(frozen=True, slots=True)
class _Placement:
    """Which pods use which slots.

    Attributes
    ----------
    take, assign
        As in `SlotChanges`.
    vacated
        Slots whose stored pod is gone or terminal.
    idle
        Slots that no living pod has or gets.
    busy
        The number of the others.
    bound
        The number of living pods that are bound to a node.
    """

    take: tuple[tuple[int, Pod], ...]
    assign: tuple[tuple[int, Pod], ...]
    vacated: Sequence[Slot]
    idle: Sequence[Slot]
    busy: int
    bound: int


def _without_those_in(given: Sequence[Slot], pods: Sequence[Pod]) -> list[Pod]:
    """Return pods without those in slots that are given back: as for the others, it is as if the Job had been
    started without them.

    One that succeeds while it is ended may not be counted by the Job controller. What that counts is in the
    Job's status.
    """
    going = {slot.pod_uid for slot in given}
    return [pod for pod in pods if pod.metadata.uid not in going] if going else list(pods)


def _place(
    job: Job | None, phase: JobPhase, pods: Sequence[Pod], slots: Sequence[Slot], closed: ClosedNodes
) -> _Placement:
    """Give each living pod without a slot a free one, the oldest pod first."""
    living = {pod.metadata.uid: pod for pod in pods if not pod.terminal}
    placed = {slot.pod_uid: slot for slot in slots if slot.pod_uid in living}
    empty = [slot for slot in slots if slot.pod_uid not in living]
    vacated = [slot for slot in empty if slot.state is SlotState.TAKEN]
    free = FreeSlots(sorted(empty, key=lambda slot: slot.pod_uid is not None))
    take: list[tuple[int, Pod]] = []
    assign: list[tuple[int, Pod]] = []
    for pod in sorted((pod for uid, pod in living.items() if uid not in placed), key=age):
        slot = _slot_for(pod, job, free, closed)
        if slot is None:
            continue
        free.take(slot)
        if not pod.held:
            take.append((slot.rank, pod))
        elif phase is JobPhase.ACTIVE:
            assign.append((slot.rank, pod))
    if phase is JobPhase.ACTIVE:
        assign += [
            (slot.rank, living[uid])
            for uid, slot in placed.items()
            if uid is not None and still_gated(living[uid])
        ]
    busy = {rank for rank, _ in (*take, *assign)} | {slot.rank for slot in placed.values()}
    return _Placement(
        take=tuple(take),
        assign=tuple(assign),
        vacated=vacated,
        idle=[slot for slot in slots if slot.rank not in busy],
        busy=len(busy),
        bound=sum(1 for pod in living.values() if pod.spec.node_name),
    )


def _slot_for(pod: Pod, job: Job | None, free: FreeSlots, closed: ClosedNodes) -> Slot | None:
    """Return the slot a pod has or gets: by node if it is tied to one, else by completion index, else the
    first free one.

    A slot that never had a pod is preferred to one whose pod has ended. So each pod of a gang gets the slot
    that was matched for it, even if the first pod ends before the last is released.
    """
    gated = pod.held
    tied = None if gated else pod.spec.node_name or pinned_node(pod)
    index = pod.completion_index
    if index is not None and job is not None and is_elastic(job):
        slot = free.of_rank(index)
        return (
            None
            if slot is None or (tied and slot.node != tied) or (gated and closed.to_job(slot.node))
            else slot
        )
    if tied:
        return free.on_node(tied)
    return free.first_open(gated, closed.to_job if gated else _none)


def _slots_to_end(
    job: Job | None,
    phase: JobPhase,
    pods: Sequence[Pod],
    placement: _Placement,
    elsewhere: Sequence[Pod],
    closed: ClosedNodes,
    pin_window_open: bool,
) -> tuple[set[int], set[int]]:
    """Return the ranks that end now, and those that end when the pin window closes."""
    idle = placement.idle
    if phase is not JobPhase.ACTIVE or job is None:
        return {slot.rank for slot in idle}, set()
    succeeded = [pod for pod in pods if pod.status.phase == "Succeeded"]
    end = unneeded_ranks(job, idle, placement.busy, succeeded, elsewhere)
    if end and pin_window_open:
        now = end & finished_ranks(job, idle, succeeded)
        return now, end - now
    if on_closed := {slot.rank for slot in idle if closed.to_all(slot.node)}:
        # A slot on a closed node stays open until its pod is bound elsewhere: it shows how many pods the Job
        # lacks.
        bound_elsewhere = [pod for pod in elsewhere if pod.spec.node_name]
        end = end - on_closed | on_closed & unneeded_ranks(
            job, idle, placement.busy, succeeded, bound_elsewhere
        )
    return end, set()


def _with_services(changes: SlotChanges, slot: Slot, phase: JobPhase, pods: Sequence[Pod]) -> SlotChanges:
    """Add the slot of the services pod. It ends when the Job is over, or when its pod has ended for good."""
    pods = [pod for pod in pods if job_served_by(pod) is not None]
    rank, active = slot.rank, phase is JobPhase.ACTIVE
    living = sorted(
        (pod for pod in pods if not pod.terminal),
        key=lambda pod: (pod.metadata.uid != slot.pod_uid, age(pod)),
    )
    pod = next(
        (pod for pod in living if pod.held or (pod.spec.node_name or pinned_node(pod)) == slot.node), None
    )
    if pod is None:
        ended = any(
            each.metadata.uid == slot.pod_uid and not each.metadata.deletion_timestamp for each in pods
        )
        if ended or not active:
            return replace(changes, end=(*changes.end, rank))
        vacate = (rank,) if slot.state is SlotState.TAKEN else ()
        return replace(changes, vacate=(*changes.vacate, *vacate), running=False)
    if slot.state is SlotState.TAKEN and slot.pod_uid != pod.metadata.uid:
        # the pod before it is gone, and both events came together
        changes = replace(changes, vacate=(*changes.vacate, rank))
    if not pod.held:
        take = ((rank, pod),) if pod.metadata.uid != slot.pod_uid else ()
        return replace(
            changes, take=(*changes.take, *take), running=changes.running and bool(pod.spec.node_name)
        )
    if not active:
        return replace(changes, end=(*changes.end, rank))
    assign = () if pod.metadata.deletion_timestamp else ((rank, pod),)
    return replace(changes, assign=(*changes.assign, *assign), running=False)


def conclude_job(
    job: Job | None, pods: Sequence[Pod], last: Job | None = None, since: datetime | None = None
) -> SlotChanges:
    """Plan the end of a released Job whose slots have all ended:
    it ends when it is finished and none of its pods is left.
    """
    if any(not pod.terminal for pod in pods):
        return SlotChanges()
    own = [pod for pod in pods if job_served_by(pod) is None]
    state, outcome, message = _conclusion(job, last, own)
    return SlotChanges(state=state, outcome=outcome, message=message, began_at=first_bound(own, since))


def _conclusion(job: Job | None, last: Job | None, pods: Sequence[Pod]) -> tuple[State | None, Outcome, str]:
    """Return how a Job ends, as it is or, once it is gone, by how it was last seen;
    None as its state if it goes on.
    """
    seen = job or last
    phase = job_phase(seen)
    if job is None and phase not in (JobPhase.SUCCEEDED, JobPhase.FAILED):
        phase = JobPhase.GONE  # it was deleted while it ran
    match phase:
        case JobPhase.SUCCEEDED:
            return State.COMPLETED, Outcome.SUCCEEDED, ""
        case JobPhase.FAILED:
            last_failed = max((pod for pod in pods if pod.status.phase == "Failed"), key=age, default=None)
            return (
                State.FAILED,
                Outcome.FAILED,
                (why_failed(last_failed) if last_failed else "") or "the Job failed",
            )
        case JobPhase.GONE:
            succeeded = [pod for pod in pods if pod.status.phase == "Succeeded"]
            if seen is not None and pods and len(succeeded) == len(pods) and has_succeeded(seen, succeeded):
                return State.COMPLETED, Outcome.SUCCEEDED, "the Job was deleted after its pods succeeded"
            return State.CANCELLED, Outcome.CANCELLED, "the Job was deleted"
    return None, Outcome.NONE, ""
