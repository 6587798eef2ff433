"""Which slots of an allocation are for pods that come later,
such as those of Jobs that a JobSet starts later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.cluster.owners import read_jobset
from fluxqueue.queue.cluster.slot_labels import label_for_pod
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.later_pods import LaterPods, later_pods
from fluxqueue.queue.model.records import Workload

__all__ = ["labels_of_later_pods", "later_slot_labels"]


async def later_slot_labels(api: Api, caches: Caches, workload: Workload, key: GroupKey) -> Counter[str]:
    """Return how many pods come later, by the label of the slots that were matched for their size.

    Raises
    ------
    ApiError
        The JobSet cannot be read.
    """
    jobset = await read_jobset(api, key.namespace, key.name)
    return labels_of_later_pods(
        later_pods(jobset, caches.jobs_of_jobset(key)), workload, caches.cluster_context(key.namespace)
    )


def labels_of_later_pods(
    later: Iterable[LaterPods], workload: Workload, cluster: ClusterContext
) -> Counter[str]:
    """Return how many pods come later, by the label of the slots of a workload that have their size;
    others are left out.
    """
    labels: Counter[str] = Counter()
    for each in later:
        spec = with_defaults(
            each.spec, cluster.limit_ranges, cluster.runtime_classes.get(each.spec.runtime_class_name or "")
        )
        label = label_for_pod(workload.jobspec, workload.namespace, spec, cluster)
        if label is not None:
            labels[label] += each.pods
    return labels
