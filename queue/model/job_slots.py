"""Which pods of a released Job have no slot in its allocation.

A Job that was made larger runs more pods than it has slots. A pod may also replace one whose node takes no
pod any more. Such a pod is matched alone, as a workload of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Set

from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.jobs import is_elastic
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT
from fluxqueue.queue.model.minicluster_jobs import job_served_by
from fluxqueue.queue.model.pods import age
from fluxqueue.queue.model.records import Allocation

__all__ = ["JobSlots"]


def _none_closed(_node: str) -> bool:
    return False


class JobSlots:
    """The slots of a released Job, shared out among its pods. Made once for all pods that are read together.

    Parameters
    ----------
    job
        As it is now.
    pods
        Pods of the Job that may use its slots: all that are not matched alone.
    allocation
        The Job's.
    closed
        True for the name of a node that takes no pod of the Job at present. It is asked once about each node.
    leaving
        Ranks of slots that the Job gives back: no further pod gets one.
    """

    def __init__(
        self,
        job: Job,
        pods: Iterable[Pod],
        allocation: Allocation,
        closed: Callable[[str], bool] = _none_closed,
        leaving: Set[int] = frozenset(),
    ) -> None:
        self._has_services_slot = any(slot.label == SERVICES_SLOT for slot in allocation.open_slots)
        kept = [slot for slot in allocation.open_slots if slot.rank not in leaving]
        placed, given = (
            {slot.pod_uid for slot in kept},
            {slot.pod_uid for slot in allocation.open_slots if slot.rank in leaving},
        )
        own = [
            each
            for each in pods
            if each.active and each.metadata.uid not in given and job_served_by(each) is None
        ]
        staying = sorted(own, key=lambda each: (each.metadata.uid not in placed, age(each)))
        held = {each.metadata.uid for each in staying}
        closed = functools.cache(closed)
        self._open_ranks = {
            slot.rank
            for slot in kept
            if slot.label != SERVICES_SLOT and (slot.pod_uid in held or not closed(slot.node))
        }
        self._by_index = is_elastic(job)
        self._first = {each.metadata.uid for each in staying[: len(self._open_ranks)]}

    def lack(self, pod: Pod) -> bool:
        """Return true if a gated pod, in no slot, has none in the allocation, and will get none."""
        if job_served_by(pod) is not None:
            return not self._has_services_slot
        if pod.completion_index is not None and self._by_index:
            return pod.completion_index not in self._open_ranks
        return pod.metadata.uid not in self._first
