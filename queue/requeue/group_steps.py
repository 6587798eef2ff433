"""The next step of evicting a preempted group, until it can be requeued.

Its pods are evicted, and its slots stay booked until no pod in them lives. Then the group is requeued, and
the pods that its owner creates instead are matched again together. Pods on nodes that are missing or NotReady
may go on running without a report: their slots stay booked until the pod objects are gone, as those of a Job
do (`fluxqueue.queue.requeue.steps`).

Everything is read from the objects, so any leader can ask for the next step at any time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.records import Allocation, FluxionJobId

__all__ = ["GroupStep", "NextGroupStep", "next_group_step"]


class GroupStep(enum.Enum):
    """What is done next about a group that is evicted."""

    EVICT = "evict"
    """Ask for the eviction of pods."""
    WAIT = "wait"
    """For pods to end; an event follows."""
    REQUEUE = "requeue"
    """Nothing of it lives any more."""


@dataclass(frozen=True, slots=True)
class NextGroupStep:
    """A step; the pods for `GroupStep.EVICT`, the slots (job id, rank) that stay booked for
    `GroupStep.REQUEUE`.
    """

    step: GroupStep
    pods: tuple[Pod, ...] = ()
    kept: tuple[tuple[FluxionJobId, int], ...] = ()


def next_group_step(
    pods: Iterable[Pod], allocation: Allocation, lost: Callable[[str], bool]
) -> NextGroupStep:
    """Return the next step.

    Parameters
    ----------
    pods
        Those that its open slots name and that exist, in any phase.
    allocation
        What it holds.
    lost
        True if the node of this name is missing or NotReady.
    """
    living = {pod.metadata.uid: pod for pod in pods if not pod.terminal}
    due = tuple(pod for pod in living.values() if not pod.metadata.deletion_timestamp)
    if due:
        return NextGroupStep(GroupStep.EVICT, pods=due)
    if any(not pod.spec.node_name or not lost(pod.spec.node_name) for pod in living.values()):
        return NextGroupStep(GroupStep.WAIT)
    kept = tuple((allocation.jobid, slot.rank) for slot in allocation.open_slots if slot.pod_uid in living)
    return NextGroupStep(GroupStep.REQUEUE, kept=kept)
