"""Pods that a JobSet creates later, because it starts its Jobs one after another.

With ``startupPolicy: InOrder`` or ``dependsOn`` the JobSet controller creates (or resumes) a Job only when
the Jobs before it are ready or complete, which they cannot be before they have nodes. So the queue cannot
wait for all pods. The pods that exist are matched together with slots for those that come later, whose number
and size the JobSet states. Those slots are kept free until their Jobs had their turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.jobsets import JobSet
from fluxqueue.api.pods import PodSpec
from fluxqueue.queue.model.jobs import pods_wanted
from fluxqueue.queue.model.records import Allocation

__all__ = ["LaterPods", "later_pods", "reserved_ranks"]


@dataclass(frozen=True, slots=True)
class LaterPods:
    """A number of pods of one template that do not exist yet."""

    spec: PodSpec
    pods: int
    labels: Mapping[str, str] = field(default_factory=dict)


def later_pods(jobset: JobSet | None, jobs: Iterable[Job]) -> Sequence[LaterPods]:
    """Return the pods of Jobs whose turn has not come.

    Parameters
    ----------
    jobset
        As it is now; None if it does not exist any more, or cannot be read.
    jobs
        Those that it controls, finished ones too.

    Returns
    -------
    sequence of LaterPods
        Empty if all Jobs are created at once, or none will be created any more.
    """
    if jobset is None or not jobset.sequential or not jobset.active:
        return ()
    existing = list(jobs)
    later: list[LaterPods] = []
    for role in jobset.spec.replicated_jobs or ():
        own = [job for job in existing if job.metadata.label(names.JOBSET_ROLE_LABEL) == role.name]
        missing = role.replicas - len(own)
        if missing > 0 and role.template.spec.pods_at_once > 0:
            template = role.template.spec.template
            later.append(
                LaterPods(
                    template.spec, missing * role.template.spec.pods_at_once, template.metadata.labels or {}
                )
            )
        later += [
            LaterPods(job.spec.template.spec, pods_wanted(job), job.spec.template.metadata.labels or {})
            for job in own
            if job.spec.suspend and not job.finished
        ]
    return later


def reserved_ranks(allocation: Allocation, later: Counter[str] | None, in_use: Container[str]) -> set[int]:
    """Return the ranks of empty slots that are kept for later pods.

    Parameters
    ----------
    allocation
        With its slots, by rank.
    later
        How many pods will come for slots of each label; None if that is not known at present, so that all
        empty slots are kept.
    in_use
        Uids of pods that are in their slots, or succeeded there.
    """
    empty = [slot for slot in allocation.open_slots if (slot.pod_uid or "") not in in_use]
    if later is None:
        return {slot.rank for slot in empty}
    left = later.copy()
    reserved: set[int] = set()
    for slot in empty:
        if left[slot.label] > 0:
            left[slot.label] -= 1
            reserved.add(slot.rank)
    return reserved
