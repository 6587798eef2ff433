"""The rules about other pods that work has: in its request, else of its object as it is now."""

from __future__ import annotations

from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.noderules.jobspec_rules import rules_in
from fluxqueue.queue.noderules.pod_rules import PodRules, rules_of, with_labels
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["WorkloadRules"]


class WorkloadRules:
    """Reads the rules of workloads, each once as long as its request stays."""

    def __init__(self, caches: Caches, ledger: Ledger) -> None:
        self._caches = caches
        self._ledger = ledger
        self._read: dict[WorkloadId, tuple[int, str, PodRules]] = {}

    def forget(self, workload_id: WorkloadId) -> None:
        """Forget a workload that has ended."""
        self._read.pop(workload_id, None)

    def of(self, workload: Workload) -> PodRules | None:
        """Rules and labels of the pods of a workload; None if its object is gone."""
        known = self._read.get(workload.id)
        if known is not None and known[:2] == (workload.generation, workload.shape):
            return known[2]
        rules = rules_in(workload.jobspec) or self._rules_of_object(workload)
        if rules is not None:
            self._read[workload.id] = workload.generation, workload.shape, rules
        return rules

    def _rules_of_object(self, workload: Workload) -> PodRules | None:
        if workload.release_mode is ReleaseMode.GROUP:
            members = self._caches.members_of(workload, self._ledger.allocation(workload.id))
            if not members:
                return None
            labels = [pod.metadata.labels or {} for pod in members]
            return with_labels(rules_of(members[0].spec, workload.namespace, labels[0]), labels)
        job = self._caches.jobs.get_by_uid(workload.uid)
        if job is not None:
            return rules_of(
                job.spec.template.spec, workload.namespace, job.spec.template.metadata.labels or {}
            )
        pod = self._caches.pods.get_by_uid(workload.uid)
        return rules_of(pod.spec, workload.namespace, pod.metadata.labels or {}) if pod is not None else None
