"""Which slots of a JobSet's allocation are for Jobs that it starts later."""

from __future__ import annotations

from collections import Counter

from fluxqueue.api.hostports import pod_needs
from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.owners import read_jobset
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.jobspecs import label_for
from fluxqueue.queue.model.later_pods import later_pods
from fluxqueue.queue.model.records import Workload

__all__ = ["later_slot_labels"]


async def later_slot_labels(api: Api, caches: Caches, workload: Workload, key: GroupKey) -> Counter[str]:
    """Return how many pods come later, by the label of the slots that were matched for their size.

    Raises
    ------
    ApiError
        The JobSet cannot be read.
    """
    jobset = await read_jobset(api, key.namespace, key.name)
    cluster = caches.cluster_context(key.namespace)
    labels: Counter[str] = Counter()
    for each in later_pods(jobset, caches.jobs_of_jobset(key)):
        spec = with_defaults(each.spec, cluster.limit_ranges, cluster.runtime_classes.get(each.spec.runtime_class_name or ""))
        try:
            label = label_for(workload.jobspec, pod_needs(spec))
        except InvalidRequest:
            continue
        if label is not None:
            labels[label] += each.pods
    return labels
