"""Which places of a released workload are taken, and which will never be needed again.

Pods come, go, fail and are replaced; Jobs are suspended and resumed while old pods still terminate. So nothing is concluded from one event
or from a Job's status alone: each time something changes, the places are judged anew from the Job, all pods seen and the places stored.

A place returns to the cluster when its pod is gone or terminal **and** none can follow: its index succeeded or failed for good; the Job
finished, was deleted or was suspended; or no completions are left to start (architecture, section 3.5). A pod that is being deleted
keeps its place until it is gone: the node still holds its resources.

The Job controller counts pods up to a second late. A pod that succeeded counts all the same, so whatever is the larger of its count and
the pods that can be seen to have succeeded is true by now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.hostlists import InvalidHostlist
from fluxqueue.api.objects import Job, Pod
from fluxqueue.queue.fluxclusters import job_served_by
from fluxqueue.queue.jobspecs import BESIDE
from fluxqueue.queue.records import Allocation, Slot, SlotState

__all__ = [
    "JobPhase",
    "Judgement",
    "conclude_group",
    "conclude_job",
    "job_phase",
    "judge_group",
    "judge_job",
    "judge_pod",
    "kept_ranks",
    "nowhere",
    "parse_indexes",
    "stands_beyond",
]


class JobPhase(Enum):
    """What a Job may still start."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do about an allocation's slots.

    Attributes
    ----------
    take
        (rank, pod) pairs: a pod stands in a slot that did not know it.
    assign
        (rank, pod) pairs: a gated pod of ours is to be released onto this free slot.
    vacate
        Ranks whose pod is gone, where another may follow.
    end
        Ranks that return to the cluster.
    running
        Whether every pod that is expected now is bound to a node.
    state, outcome
        What the workload ends as once all its slots have ended, None while it may go on.
    message
        For the end.
    """

    take: tuple[tuple[int, Pod], ...] = ()
    assign: tuple[tuple[int, Pod], ...] = ()
    vacate: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    running: bool = False
    state: State | None = None
    outcome: Outcome = Outcome.NONE
    message: str = ""


_OVER = (JobPhase.SUCCEEDED, JobPhase.FAILED)


def job_phase(job: Job | None) -> JobPhase:
    """Read a Job's phase; None is a Job that no longer exists."""
    if job is None:
        return JobPhase.GONE
    if job.status.holds("Complete"):
        return JobPhase.SUCCEEDED
    if job.status.holds("Failed"):
        return JobPhase.FAILED
    return JobPhase.SUSPENDED if job.spec.suspend else JobPhase.ACTIVE


def parse_indexes(text: str) -> set[int]:
    """Read ``status.completedIndexes`` (``1,3-5``).

    Raises
    ------
    InvalidHostlist
        Never for what the Job controller writes.
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise InvalidHostlist(f"{text!r} is not a list of indexes")
        found.update(range(int(first), int(last or first) + 1))
    return found


def nowhere(_node: str) -> bool:
    """No place counts as lost."""
    return False


def judge_job(
    job: Job | None,
    pods: Sequence[Pod],
    allocation: Allocation,
    last: JobPhase | None = None,
    *,
    elsewhere: Sequence[Pod] = (),
    lost: Callable[[str], bool] = nowhere,
) -> Judgement:
    """Judge the places of a Job that was let go.

    Parameters
    ----------
    job
        As it stands; None once it is gone.
    pods
        All its pods, of whatever phase, the one that runs services beside them among them.
    allocation
        With its slots, by rank.
    last
        The phase it was last seen in, for when it is gone.
    elsewhere
        Pods of it that have not ended and are matched on their own: those it grew by, and those that were made anew for a lost node.
    lost
        Whether nobody hears from the node of this name: no pod is let go onto it.

    Returns
    -------
    Judgement
        Nothing in it is to be done twice: a second judgement after carrying it out is empty.
    """
    if job is not None and job.metadata.label(names.JOBID_LABEL) != str(allocation.jobid):
        return Judgement()  # read before the release was: the label came with it
    phase = job_phase(job)
    serving = [pod for pod in pods if job_served_by(pod) is not None]
    pods = [pod for pod in pods if job_served_by(pod) is None]
    open_slots = [slot for slot in allocation.slots if slot.state is not SlotState.ENDED and slot.label != BESIDE]
    living = {pod.metadata.uid: pod for pod in pods if not pod.terminal}
    placed = {slot.pod_uid: slot for slot in open_slots if slot.pod_uid in living}
    vacated = [slot for slot in open_slots if slot.state is SlotState.TAKEN and slot.pod_uid not in living]
    free = [slot for slot in open_slots if slot.pod_uid not in living]

    take: list[tuple[int, Pod]] = []
    assign: list[tuple[int, Pod]] = []
    newcomers = sorted((pod for uid, pod in living.items() if uid not in placed), key=_age)
    for pod in newcomers:
        gated = pod.spec.gated_by(names.GATE)
        slot = _slot_for(pod, job, (slot for slot in free if not (gated and lost(slot.node))))
        if slot is None:
            continue
        free.remove(slot)
        if gated:
            if phase is JobPhase.ACTIVE:
                assign.append((slot.rank, pod))
        else:
            take.append((slot.rank, pod))
    if phase is JobPhase.ACTIVE:
        assign += [(slot.rank, living[uid]) for uid, slot in placed.items() if uid is not None and _still_gated(living[uid])]
    busy = {rank for rank, _ in take} | {rank for rank, _ in assign} | {slot.rank for slot in placed.values()}
    idle = [slot for slot in open_slots if slot.rank not in busy]

    succeeded = [pod for pod in pods if pod.status.phase == "Succeeded"]
    end = _ended(phase, job, idle, len(busy), succeeded, elsewhere)
    if away := {slot.rank for slot in idle if lost(slot.node)}:
        # A lost place stays open until another is found for its pod: by it is seen what the Job is short of.
        end = end - away | away & _ended(phase, job, idle, len(busy), succeeded, [pod for pod in elsewhere if pod.spec.node_name])
    vacate = tuple(slot.rank for slot in vacated if slot.rank not in end)
    bound = sum(1 for pod in living.values() if pod.spec.node_name)
    state, outcome, message = _conclusion(last if phase is JobPhase.GONE and last in _OVER else phase, pods)
    judgement = Judgement(
        take=tuple(take),
        assign=tuple(assign),
        vacate=vacate,
        end=tuple(sorted(end)),
        running=phase is JobPhase.ACTIVE and bound > 0 and bound >= len(open_slots) - len(end),
        state=state,
        outcome=outcome,
        message=message,
    )
    beside = next((slot for slot in allocation.slots if slot.state is not SlotState.ENDED and slot.label == BESIDE), None)
    return judgement if beside is None else _with_services(judgement, beside, phase, serving)


def _with_services(judgement: Judgement, slot: Slot, phase: JobPhase, pods: Sequence[Pod]) -> Judgement:
    """Judge the place beside those of a Job's pods as well: it goes back when the Job is over, or its pod has ended for good."""
    rank, active = slot.rank, phase is JobPhase.ACTIVE
    living = sorted((pod for pod in pods if not pod.terminal), key=lambda pod: (pod.metadata.uid != slot.pod_uid, _age(pod)))
    pod = next((pod for pod in living if pod.spec.gated_by(names.GATE) or (pod.spec.node_name or _pinned_node(pod)) == slot.node), None)
    if pod is None:
        ended = any(each.metadata.uid == slot.pod_uid and not each.metadata.deletion_timestamp for each in pods)
        if ended or not active:
            return replace(judgement, end=(*judgement.end, rank))
        vacate = (rank,) if slot.state is SlotState.TAKEN else ()
        return replace(judgement, vacate=(*judgement.vacate, *vacate), running=False)
    if not pod.spec.gated_by(names.GATE):
        take = ((rank, pod),) if pod.metadata.uid != slot.pod_uid else ()
        return replace(judgement, take=(*judgement.take, *take), running=judgement.running and bool(pod.spec.node_name))
    if not active:
        return replace(judgement, end=(*judgement.end, rank))
    assign = () if pod.metadata.deletion_timestamp else ((rank, pod),)
    return replace(judgement, assign=(*judgement.assign, *assign), running=False)


def conclude_job(job: Job | None, pods: Sequence[Pod], last: JobPhase | None = None) -> Judgement:
    """Judge a released Job whose places have all gone back already: it ends when it says so and no pod is left."""
    phase = job_phase(job)
    if any(not pod.terminal for pod in pods):
        return Judgement()
    own = [pod for pod in pods if job_served_by(pod) is None]
    state, outcome, message = _conclusion(last if phase is JobPhase.GONE and last in _OVER else phase, own)
    return Judgement(state=state, outcome=outcome, message=message)


def judge_pod(pod: Pod | None, allocation: Allocation, last_phase: str = "") -> Judgement:
    """Judge the one place of a pod of its own.

    Parameters
    ----------
    pod
        As it stands; None once it is gone.
    allocation
        With its slot.
    last_phase
        The phase it was last seen in, for when it is gone.
    """
    open_slots = [slot for slot in allocation.slots if slot.state is not SlotState.ENDED]
    if pod is not None and not pod.terminal:
        slot = open_slots[0] if open_slots else None
        if slot is None:
            return Judgement()
        if pod.spec.gated_by(names.GATE):
            return Judgement(assign=((slot.rank, pod),))
        take = ((slot.rank, pod),) if slot.pod_uid != pod.metadata.uid else ()
        return Judgement(take=take, running=bool(pod.spec.node_name))
    phase = pod.status.phase if pod is not None else last_phase
    ends = {
        "Succeeded": (State.COMPLETED, Outcome.SUCCEEDED, ""),
        "Failed": (State.FAILED, Outcome.FAILED, (pod.status.message or pod.status.reason) if pod else ""),
        "": (State.CANCELLED, Outcome.UNKNOWN, "the pod vanished while nobody watched"),
    }
    state, outcome, message = ends.get(phase, (State.CANCELLED, Outcome.CANCELLED, "the pod was deleted"))
    return Judgement(end=tuple(slot.rank for slot in open_slots), state=state, outcome=outcome, message=message)


def judge_group(
    pods: Iterable[Pod],
    allocation: Allocation,
    label_of: Callable[[Pod], str | None],
    seen: Mapping[str, str],
    *,
    expired: Collection[int] = (),
    lost: Callable[[str], bool] = nowhere,
) -> Judgement:
    """Judge the places of a pod group.

    A pod that failed or was deleted may be replaced: its place is kept for a while, and whoever comes first, of its size, takes it.

    Parameters
    ----------
    pods
        Those that name the group, and are not matched on their own.
    allocation
        With its slots, by rank.
    label_of
        The label of the slots that a pod fits exactly, None where there are none.
    seen
        The phases that pods (by uid) which stood in its places were last seen in.
    expired
        Ranks that were kept long enough.
    lost
        Whether nobody hears from the node of this name: no pod is let go onto it.
    """
    known = list(pods)
    living = {pod.metadata.uid: pod for pod in known if not pod.terminal}
    open_slots = [slot for slot in allocation.slots if slot.state is not SlotState.ENDED]
    placed = {slot.pod_uid for slot in open_slots if slot.pod_uid in living}
    idle = [slot for slot in open_slots if slot.pod_uid not in living]
    done = {slot.rank for slot in idle if seen.get(slot.pod_uid or "") == "Succeeded"}
    free = [slot for slot in idle if slot.rank not in done]

    take: list[tuple[int, Pod]] = []
    assign: list[tuple[int, Pod]] = []
    for pod in sorted((pod for uid, pod in living.items() if uid not in placed), key=_age):
        gated, tied = pod.spec.gated_by(names.GATE), pod.spec.node_name or _pinned_node(pod)
        if gated and pod.metadata.deletion_timestamp:
            continue
        label = label_of(pod)
        slot = next((slot for slot in free if slot.label == label and (not lost(slot.node) if gated else slot.node == tied)), None)
        if slot is None:
            continue
        free.remove(slot)
        (assign if gated else take).append((slot.rank, pod))
    assign += [(slot.rank, living[slot.pod_uid]) for slot in open_slots if slot.pod_uid in living and _still_gated(living[slot.pod_uid])]
    end = done | {slot.rank for slot in free if slot.rank in expired}
    vacate = tuple(slot.rank for slot in idle if slot.state is SlotState.TAKEN and slot.rank not in end)
    left = len(open_slots) - len(end)
    bound = sum(1 for uid in placed if living[uid].spec.node_name) + len(take)
    state, outcome, message = (None, Outcome.NONE, "") if left else conclude_group(len(allocation.slots), seen)
    return Judgement(
        take=tuple(take),
        assign=tuple(assign),
        vacate=vacate,
        end=tuple(sorted(end)),
        running=left > 0 and bound >= left,
        state=state,
        outcome=outcome,
        message=message,
    )


def kept_ranks(allocation: Allocation, judgement: Judgement) -> set[int]:
    """Open places in which no pod stands once a judgement is carried out."""
    busy = {rank for rank, _ in (*judgement.take, *judgement.assign)} | set(judgement.end)
    return {
        slot.rank
        for slot in allocation.slots
        if slot.state is not SlotState.ENDED and slot.rank not in busy and (slot.pod_uid is None or slot.rank in judgement.vacate)
    }


def _still_gated(pod: Pod) -> bool:
    """A pod that stands in its place and has our gate all the same: whoever was to take it off did not come to it."""
    return pod.spec.gated_by(names.GATE) and not pod.metadata.deletion_timestamp


def conclude_group(size: int, seen: Mapping[str, str]) -> tuple[State, Outcome, str]:
    """How a pod group ends whose places have all gone back: by the phases its pods (by uid) were last seen in."""
    phases = list(seen.values())
    succeeded = phases.count("Succeeded")
    if succeeded and (succeeded >= size or succeeded == len(phases)):
        return State.COMPLETED, Outcome.SUCCEEDED, ""
    if "Failed" in phases:
        return State.FAILED, Outcome.FAILED, f"{phases.count('Failed')} of its pods failed and were not replaced"
    return State.CANCELLED, Outcome.CANCELLED if phases else Outcome.UNKNOWN, "its pods were deleted and not replaced"


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def elastic(job: Job) -> bool:
    """Whether each index has a place of its own, and the Job may grow and shrink: the highest indexes come and go."""
    return job.spec.indexed and job.spec.completions is not None and job.spec.completions == job.spec.pods_at_once


def _slot_for(pod: Pod, job: Job | None, free: Iterable[Slot]) -> Slot | None:
    """The slot a pod stands in, or will: by node if it is tied to one, else by completion index, else the first free one.

    A place in which no pod has stood yet goes before one whose pod has ended: each pod of a gang gets the place that was matched for it,
    also where the first had ended before the last was let go.
    """
    candidates = list(free)
    tied = pod.spec.node_name or _pinned_node(pod)
    if tied and not pod.spec.gated_by(names.GATE):
        candidates = [slot for slot in candidates if slot.node == tied]
    index = pod.completion_index
    if index is not None and job is not None and elastic(job):
        return next((slot for slot in candidates if slot.rank == index), None)
    return min(candidates, key=lambda slot: slot.pod_uid is not None, default=None)


def stands_beyond(pod: Pod, job: Job, pods: Iterable[Pod], allocation: Allocation, lost: Callable[[str], bool] = nowhere) -> bool:
    """Whether a gated pod of a released Job has no place in its allocation, and will have none.

    The Job was made larger, or the pod was made for one on a lost node: whose place is no place for another.

    Parameters
    ----------
    pod
        Gated, and in no place.
    job
        As it stands.
    pods
        Pods of the Job that may stand in its places: all that are not matched on their own.
    allocation
        The Job's.
    lost
        Whether nobody hears from the node of this name.
    """
    open_slots = [slot for slot in allocation.slots if slot.state is not SlotState.ENDED]
    if job_served_by(pod) is not None:
        return all(slot.label != BESIDE for slot in open_slots)
    staying = sorted((each for each in pods if each.staying and job_served_by(each) is None), key=_age)
    held = {each.metadata.uid for each in staying}
    open_ranks = {slot.rank for slot in open_slots if slot.label != BESIDE and (slot.pod_uid in held or not lost(slot.node))}
    if pod.completion_index is not None and elastic(job):
        return pod.completion_index not in open_ranks
    return pod.metadata.uid not in {each.metadata.uid for each in staying[: len(open_ranks)]}


def _pinned_node(pod: Pod) -> str | None:
    text = pod.metadata.annotation(names.NODES_ANNOTATION)
    return text if text and "," not in text and "[" not in text else None


def _ended(
    phase: JobPhase, job: Job | None, idle: Sequence[Slot], busy: int, succeeded: Sequence[Pod], elsewhere: Sequence[Pod]
) -> set[int]:
    if phase is not JobPhase.ACTIVE or job is None:
        return {slot.rank for slot in idle}
    if elastic(job):
        over = parse_indexes(job.status.completed_indexes) | parse_indexes(job.status.failed_indexes)
        over |= {pod.completion_index for pod in (*succeeded, *elsewhere) if pod.completion_index is not None}
        return {slot.rank for slot in idle if slot.rank in over or slot.rank >= (job.spec.completions or 0)}
    if job.spec.completions is None:
        # Without completions the first success ends the starting of pods: the rest run out.
        wanted = 0 if job.status.succeeded else job.spec.pods_at_once
    else:
        wanted = min(job.spec.pods_at_once, job.spec.completions - max(job.status.succeeded, len(succeeded)))
    spare = len(idle) + busy - max(wanted - len(elsewhere), busy)
    return {slot.rank for slot in sorted(idle, key=lambda slot: (slot.pod_uid is None, -slot.rank))[: max(spare, 0)]}


def _conclusion(phase: JobPhase, pods: Sequence[Pod]) -> tuple[State | None, Outcome, str]:
    match phase:
        case JobPhase.SUCCEEDED:
            return State.COMPLETED, Outcome.SUCCEEDED, ""
        case JobPhase.FAILED:
            return State.FAILED, Outcome.FAILED, "the Job failed"
        case JobPhase.GONE:
            if pods and all(pod.status.phase == "Succeeded" for pod in pods):
                return State.COMPLETED, Outcome.SUCCEEDED, "the Job was deleted after its pods succeeded"
            return State.CANCELLED, Outcome.CANCELLED, "the Job was deleted"
    return None, Outcome.NONE, ""
