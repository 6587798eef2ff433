"""Which empty slots of an active Job no pod will use.

The Job controller counts pods up to a second late. A pod that is seen to have succeeded counts all the same,
so the larger number of the two is the right one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.indexes import done_indexes, parse_indexes
from fluxqueue.queue.model.jobs import is_elastic
from fluxqueue.queue.model.records import Slot

__all__ = ["finished_ranks", "has_succeeded", "unneeded_ranks"]


def unneeded_ranks(
    job: Job, idle: Sequence[Slot], busy: int, succeeded: Sequence[Pod], elsewhere: Sequence[Pod]
) -> set[int]:
    """Return the ranks of idle slots that no pod will use, as the Job is scaled now.

    Parameters
    ----------
    job
        Active.
    idle
        Its slots that no living pod has or gets.
    busy
        The number of its other open slots.
    succeeded
        Its pods that succeeded.
    elsewhere
        Its living pods that are matched alone.
    """
    if job.starts_no_pods:
        return {slot.rank for slot in idle}
    if is_elastic(job):
        done = done_indexes(job) | _indexes_of([*succeeded, *elsewhere])
        return {slot.rank for slot in idle if slot.rank in done or slot.rank >= (job.spec.completions or 0)}
    if job.spec.completions is None:
        # Without completions, the first success ends the starting of pods. The others run to their end.
        wanted = 0 if job.status.succeeded else job.spec.pods_at_once
    else:
        wanted = min(job.spec.pods_at_once, job.spec.completions - _over(job, succeeded))
    spare = len(idle) + busy - max(wanted - len(elsewhere), busy)
    return {
        slot.rank
        for slot in sorted(idle, key=lambda slot: (slot.pod_uid is None, -slot.rank))[: max(spare, 0)]
    }


def finished_ranks(job: Job, idle: Sequence[Slot], succeeded: Sequence[Pod]) -> set[int]:
    """Return the ranks of idle slots that no pod will use, however the Job is scaled."""
    if job.starts_no_pods:
        return {slot.rank for slot in idle}
    if is_elastic(job):
        done = done_indexes(job) | _indexes_of(succeeded)
        return {slot.rank for slot in idle if slot.rank in done}
    over = _over(job, succeeded)
    finished = over > 0 if job.spec.completions is None else over >= job.spec.completions
    return {slot.rank for slot in idle} if finished else set()


def has_succeeded(job: Job, succeeded: Sequence[Pod]) -> bool:
    """True if nothing is left of a Job: all its completions succeeded,
    or any pod of one without completions.
    """
    if job.spec.indexed:
        done = parse_indexes(job.status.completed_indexes) | _indexes_of(succeeded)
        return len(done) >= (job.spec.completions or 0)
    return max(job.status.succeeded, len(succeeded)) >= (
        1 if job.spec.completions is None else job.spec.completions
    )


def _over(job: Job, succeeded: Sequence[Pod]) -> int:
    """Count the completions for which no more pods start:
    those that succeeded and, of an Indexed Job, those that failed for good.
    """
    if job.spec.indexed:
        return len(done_indexes(job) | _indexes_of(succeeded))
    return max(job.status.succeeded, len(succeeded))


def _indexes_of(pods: Iterable[Pod]) -> set[int]:
    return {pod.completion_index for pod in pods if pod.completion_index is not None}
