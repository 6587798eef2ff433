"""Learns from the first pod of each release what it requests beyond its template
(`fluxqueue.queue.model.extra_requests`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fluxqueue.api.hostports import pod_needs
from fluxqueue.api.pods import Pod
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.model.extra_requests import ExtraRequests, extra_requests
from fluxqueue.queue.model.jobspecs import SLOT, extra_requests_in, sizes_in, slot_resources
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ExtraRequestLearner"]


class ExtraRequestLearner:
    """Knows what pods of Jobs request beyond their templates.

    Parameters
    ----------
    ledger
        The workloads.
    changed
        Called with each namespace whose other work is to request something else from now on.
    """

    def __init__(self, ledger: Ledger, changed: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._changed = changed
        self._learned = ExtraRequests()
        self._seen: dict[WorkloadId, FluxionJobId] = {}
        """The allocation of each workload of which a pod was read."""

    def of(self, uid: str, namespace: str, row: Workload | None) -> Mapping[str, int]:
        """Return what to request for each pod of a Job beyond its template, in the graph's units."""
        own = self._learned.of(uid)
        # a former leader learned it, from pods that are gone
        if own is None and row is not None and row.requeues:
            own = extra_requests_in(row.jobspec) or None
        return own if own is not None else self._learned.common(namespace)

    def forget_ended(self) -> None:
        """Forget which releases were read of workloads that do not exist any more."""
        self._seen = {
            workload_id: jobid
            for workload_id, jobid in self._seen.items()
            if self._ledger.get(workload_id) is not None
        }

    def pod_changed(self, change: Change[Pod]) -> None:
        """Learn from the first pod of a Job what its pods request beyond the template."""
        pod = change.new
        owner = pod.metadata.controller if pod is not None else None
        if pod is None or owner is None or owner.kind != "Job" or pod.spec.node_name or pod.terminal:
            return
        workload = self._ledger.by_uid(owner.uid)
        allocation = self._ledger.allocation(workload.id) if workload is not None else None
        if workload is None or allocation is None or self._seen.get(workload.id) == allocation.jobid:
            return
        size = sizes_in(workload.jobspec).get(SLOT)
        if size is None or self._ledger.by_uid(pod.metadata.uid) is not None:
            return
        self._seen[workload.id] = allocation.jobid
        known = extra_requests_in(workload.jobspec)
        template = {kind: amount - known.get(kind, 0) for kind, amount in size.items()}
        try:
            extra = extra_requests(slot_resources(pod_needs(pod.spec)), template)
        except InvalidRequest:
            return
        if self._learned.record(workload.uid, workload.namespace, extra):
            self._changed(workload.namespace)
