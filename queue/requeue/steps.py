"""The next step of evicting a Job, until its workload can be requeued.

The requeue of a whole Job deletes no pod: that would count as failures of the Job and use up its back-off.
The Job is suspended. Once it has the condition Suspended and counts no active pod, the allocation is removed
from it. Once its pods are terminal or gone, the workload is requeued with its first submit time
(architecture, section 5). The order matters: the webhook would honour a stale allocation, so a user who
resumed the Job would get pods that are not gated.

Pods on nodes that are missing or NotReady may go on running without a report. The requeue does not wait for
them. Their slots stay booked in the old allocation until the pod objects are gone, and the other slots are
freed.

Everything is read from the objects, so any leader can ask for the next step at any time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.records import Allocation, FluxionJobId

__all__ = ["NextStep", "RequeueStep", "next_step"]


class RequeueStep(enum.Enum):
    """What is done next about a Job that is evicted."""

    SUSPEND = "suspend"
    WAIT = "wait"
    """For the Job controller, or for pods to end; an event follows."""
    CLEAR = "clear"
    """Remove the allocation from the Job, if it still has one, and requeue the workload."""
    REQUEUE = "requeue"
    """The Job is over, and has no allocation any more: requeue the workload, and the intake ends it."""
    END = "end"
    """The Job is gone or finished: nothing is requeued."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """A step, and for `RequeueStep.CLEAR` the slots (job id, rank) that stay booked."""

    step: RequeueStep
    kept: tuple[tuple[FluxionJobId, int], ...] = ()


def next_step(
    job: Job | None, pods: Sequence[Pod], allocation: Allocation | None, lost: Callable[[str], bool]
) -> NextStep:
    """Return the next step.

    Parameters
    ----------
    job
        As it is now; None once it is gone.
    pods
        All its pods in any phase.
    allocation
        What it holds.
    lost
        True if the node of this name is missing or NotReady.
    """
    if job is None:
        return NextStep(RequeueStep.END)
    if job.finished or job.metadata.deletion_timestamp:
        cleared = allocation is not None and job.metadata.label(names.JOBID_LABEL) != str(allocation.jobid)
        return NextStep(RequeueStep.REQUEUE if cleared else RequeueStep.END)
    if not job.spec.suspend:
        return NextStep(RequeueStep.SUSPEND)
    if job.status.active or not job.status.has_condition("Suspended"):
        return NextStep(RequeueStep.WAIT)
    living = [pod for pod in pods if not pod.terminal]
    if any(not pod.spec.node_name or not lost(pod.spec.node_name) for pod in living):
        return NextStep(RequeueStep.WAIT)
    return NextStep(RequeueStep.CLEAR, _slots_of(living, allocation))


def _slots_of(pods: Sequence[Pod], allocation: Allocation | None) -> tuple[tuple[FluxionJobId, int], ...]:
    """Return the slots of these pods: those in which they are stored, else free ones of their nodes."""
    if allocation is None:
        return ()
    own: dict[tuple[str, str], int] = {}
    free: dict[str, list[int]] = {}
    for slot in reversed(allocation.open_slots):
        if slot.pod_uid is not None:
            own[slot.node, slot.pod_uid] = slot.rank
        else:
            free.setdefault(slot.node, []).append(slot.rank)
    kept: list[int] = []
    for pod in pods:
        node = pod.spec.node_name or ""
        if (rank := own.get((node, pod.metadata.uid))) is not None:
            kept.append(rank)
        elif there := free.get(node):
            kept.append(there.pop())
    return tuple((allocation.jobid, rank) for rank in sorted(kept))
