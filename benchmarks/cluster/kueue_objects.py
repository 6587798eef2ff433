"""Kueue's queues for a site, and a Job as its users write it."""

from __future__ import annotations

from typing import Any

from cluster.sites import Site, SiteQueue, Work, job

__all__ = ["KueueQueues", "submitted_to_kueue"]

_API = "kueue.x-k8s.io/v1beta2"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
_LEAST_ANNOTATION = "kueue.x-k8s.io/job-min-parallelism"
_FLAVOR = "all"


class KueueQueues:
    """The queues of a site: its own, or equal parts of the whole cluster.

    Parameters
    ----------
    site
        The cluster. Each cohort of its queues gets a ResourceFlavor with the labels of its nodes, so that a
        quota is room on nodes.
    parts
        Number of ClusterQueues where the site has no queues. They lend each other what is free.
    """

    def __init__(self, site: Site, parts: int) -> None:
        self._site = site
        self._parts = parts

    def name(self, number: int) -> str:
        """Return the name of the LocalQueue for the Job of a number: queues take turns."""
        return self._names[number % len(self._names)]

    @property
    def _names(self) -> list[str]:
        return [queue.name for queue in self._site.queues] or [f"queue-{part}" for part in range(self._parts)]

    def local_queues(self, namespace: str) -> list[dict[str, Any]]:
        """Return the LocalQueues of a namespace, one for each ClusterQueue."""
        return [
            {
                "apiVersion": _API,
                "kind": "LocalQueue",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"clusterQueue": name},
            }
            for name in self._names
        ]

    def cluster_objects(self) -> list[dict[str, Any]]:
        """Return flavors, ClusterQueues and priority classes."""
        if not self._site.queues:
            return [_flavor(_FLAVOR, {}), *(self._part(name) for name in self._names)]
        nodes = {queue.cohort: dict(queue.nodes) for queue in self._site.queues}
        return [
            *(_flavor(cohort, labels) for cohort, labels in nodes.items()),
            *map(_cluster_queue, self._site.queues),
            *(_priority_class(priority) for priority in self._site.priorities),
        ]

    def _part(self, name: str) -> dict[str, Any]:
        site = self._site
        quota = {
            "cpu": site.nodes * site.node_cpu * 1000 // self._parts,
            "memory": site.nodes * site.node_memory_gib * 1024 // self._parts,
        }
        units = {"cpu": "m", "memory": "Mi"}
        resources = [
            {"name": each, "nominalQuota": f"{amount}{units[each]}"} for each, amount in quota.items()
        ]
        spec: dict[str, Any] = {
            "namespaceSelector": {},
            "resourceGroups": [
                {"coveredResources": list(quota), "flavors": [{"name": _FLAVOR, "resources": resources}]}
            ],
        }
        if self._parts > 1:
            spec["cohortName"] = "site"
        return {"apiVersion": _API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def submitted_to_kueue(work: Work, queue: str) -> dict[str, Any]:
    """Return a Job for a LocalQueue, suspended as Kueue wants it."""
    document = job(work)
    document["metadata"]["labels"][_QUEUE_LABEL] = queue
    if work.priority is not None:
        document["metadata"]["labels"][_PRIORITY_LABEL] = f"priority-{work.priority}"
    if work.least:
        document["metadata"]["annotations"][_LEAST_ANNOTATION] = str(work.least)
    document["spec"]["suspend"] = True
    return document


def _flavor(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels} if labels else {},
    }


def _cluster_queue(queue: SiteQueue) -> dict[str, Any]:
    """Return the ClusterQueue of Kueue's own performance scenario."""
    cpu = {"name": "cpu", "nominalQuota": str(queue.cpu), "borrowingLimit": str(queue.borrowed_cpu)}
    return {
        "apiVersion": _API,
        "kind": "ClusterQueue",
        "metadata": {"name": queue.name},
        "spec": {
            "cohortName": queue.cohort,
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {"coveredResources": ["cpu"], "flavors": [{"name": queue.cohort, "resources": [cpu]}]}
            ],
        },
    }


def _priority_class(priority: int) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": f"priority-{priority}"},
        "value": priority,
    }
