"""How a Job gives its nodes back and waits again: which step is next.

A requeue of a whole Job deletes no pod: that would cost the Job its back-off and count as failures. The Job is suspended; once it says so
and counts no active pod, every trace of the allocation is taken out of it; and once its pods are terminal or gone, the workload waits
again, with its submit time (architecture, section 5). In that order, because a stale allocation is a free pass: whoever resumed the Job
would get pods that are not gated.

Pods on nodes that are not ready, or not there any more, may run on without anybody knowing. Nobody waits for them: their slots stay booked
in the old allocation until the pod objects are gone, and the others are free.

Only indexes that are not done are matched again. In the hostlist the others read `none.invalid`, so that place and index agree.

Everything here is read from the objects, so a step may be looked for at any time, by any leader.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fluxqueue.api import names
from fluxqueue.api.objects import Job, Pod
from fluxqueue.queue.fluxclusters import is_flux_cluster
from fluxqueue.queue.records import Allocation, FluxionJobId, ReleaseMode, SlotState, Workload
from fluxqueue.queue.tracking import nowhere, parse_indexes

__all__ = [
    "Step",
    "Turn",
    "done_indexes",
    "failures_left",
    "goes_pod_by_pod",
    "hosts_by_index",
    "lost_places",
    "next_turn",
    "pods_wanted",
    "write_indexes",
]

_BACKOFF_LIMIT = 6
"""Kubernetes' default."""


class Step(enum.Enum):
    """What is to be done next about a Job that gives its nodes back."""

    SUSPEND = "suspend"
    WAIT = "wait"
    """For the Job controller, or for pods to end; an event tells."""
    CLEAR = "clear"
    """Take the allocation out of it, if there is any of it left, and put the workload back."""
    END = "end"
    """The Job is gone or finished: nothing is put back."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A step, and the slots (job id, rank) that stay booked where it is `Step.CLEAR`."""

    step: Step
    kept: tuple[tuple[FluxionJobId, int], ...] = ()


def next_turn(job: Job | None, pods: Sequence[Pod], allocation: Allocation | None, lost: Callable[[str], bool]) -> Turn:
    """What is next.

    Parameters
    ----------
    job
        As it stands; None once it is gone.
    pods
        All its pods, of whatever phase.
    allocation
        What it holds.
    lost
        Whether nobody hears from the node of this name.
    """
    if job is None or job.finished or job.metadata.deletion_timestamp:
        return Turn(Step.END)
    if not job.spec.suspend:
        return Turn(Step.SUSPEND)
    if job.status.active or not job.status.holds("Suspended"):
        return Turn(Step.WAIT)
    living = [pod for pod in pods if not pod.terminal]
    if any(not pod.spec.node_name or not lost(pod.spec.node_name) for pod in living):
        return Turn(Step.WAIT)
    return Turn(Step.CLEAR, _slots_of(living, allocation))


def _slots_of(pods: Sequence[Pod], allocation: Allocation | None) -> tuple[tuple[FluxionJobId, int], ...]:
    """The slots these pods stand in: those that know them, else free ones of their nodes."""
    if allocation is None:
        return ()
    open_slots = [slot for slot in allocation.slots if slot.state is not SlotState.ENDED]
    kept: list[int] = []
    for pod in sorted(pods, key=lambda pod: all(slot.pod_uid != pod.metadata.uid for slot in open_slots)):
        fitting = [slot for slot in open_slots if slot.node == pod.spec.node_name and slot.rank not in kept]
        own = [slot for slot in fitting if slot.pod_uid == pod.metadata.uid] or [slot for slot in fitting if slot.pod_uid is None]
        kept += [slot.rank for slot in own[:1]]
    return tuple((allocation.jobid, rank) for rank in sorted(kept))


def done_indexes(job: Job) -> set[int]:
    """Completion indexes of a Job for which no pod will come: they succeeded, or failed for good."""
    return parse_indexes(job.status.completed_indexes) | parse_indexes(job.status.failed_indexes)


def write_indexes(indexes: Iterable[int]) -> str:
    """Write a set of indexes as Kubernetes does: ``0-2,5``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def pods_wanted(job: Job) -> int:
    """How many pods of a Job are still to run at once; at least one, as long as it wants any, until it says that it is finished."""
    spec = job.spec
    at_once = spec.pods_at_once
    if spec.completions is None or at_once < 1:
        return at_once
    done = len(done_indexes(job)) if spec.indexed else job.status.succeeded
    return max(min(at_once, spec.completions - done), 1)


def goes_pod_by_pod(workload: Workload, job: Job | None) -> bool:
    """Whether each pod of a Job is let go onto its own node as it comes, so that one can be made anew without the others.

    The brokers of a Flux cluster are let go like that too, but do without none of their number.
    """
    return workload.release_mode is ReleaseMode.GATE and job is not None and not is_flux_cluster(job)


def lost_places(workload: Workload, job: Job | None, lost: Callable[[str], bool]) -> Callable[[str], bool]:
    """On which nodes a Job's places are for no other pod: lost ones, if it goes pod by pod; any other is taken back as a whole."""
    return lost if goes_pod_by_pod(workload, job) else nowhere


def failures_left(job: Job) -> int:
    """How many more pods may fail, or be deleted, which counts the same, before the Job has failed; 0 where indexes are counted alone."""
    spec = job.spec
    if spec.backoff_limit_per_index is not None:
        return 0
    return max((_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit) - job.status.failed, 0)


def hosts_by_index(hosts: Sequence[str], done: str) -> tuple[str, ...]:
    """The node of each index, where done ones (``0-2,5``) have none.

    Parameters
    ----------
    hosts
        The nodes that were granted, one for each index that is not done.
    done
        As `fluxqueue.queue.records.Workload` has it.
    """
    over = parse_indexes(done)
    if not over:
        return tuple(hosts)
    left = iter(hosts)
    return tuple(names.NO_NODE if index in over else next(left) for index in range(len(hosts) + len(over)))
