"""Keeps pods in the groups whose slots they have: the tree of PodGroups above them may change meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from fluxqueue.api.pods import Pod
from fluxqueue.queue.cluster.composite_trees import CompositeTrees
from fluxqueue.queue.model.groups import GroupKey, group_of_workload
from fluxqueue.queue.model.jobids import jobid_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["keep_in_slots"]


def keep_in_slots(trees: CompositeTrees, ledger: Ledger) -> None:
    """Let trees ask the ledger of a leader for the pods in slots."""

    def holder_of(pod: Pod) -> GroupKey | None:
        jobid = jobid_of(pod.metadata)
        workload = ledger.by_jobid(jobid) if jobid is not None else None
        if workload is None or workload.namespace != pod.metadata.namespace:
            return None
        allocation = ledger.allocation(workload.id)
        if allocation is None or pod.metadata.uid not in allocation.pod_uids:
            return None
        return group_of_workload(workload)

    def held_by(key: GroupKey) -> Iterable[str]:
        workload = ledger.group(key)
        allocation = ledger.allocation(workload.id) if workload is not None else None
        return allocation.pod_uids if allocation is not None else ()

    trees.holder_of, trees.held_by = holder_of, held_by
