"""Reads the ResourceQuotas of the cluster for each cycle: what they leave, and what waiting work asks of
them.

Only Jobs whose pods do not exist yet ask for anything: a pod that exists is in the quota already. A quota
leaves its hard bound without what it says is used, and without what was granted and is not used yet. A pod
counts as used once it is bound, or has existed for a second: by then the watch has shown the use of its
quota. So for a moment a pod may count twice, and then work starts a moment later; no pod is missed.

A cycle is requested when there may be more room, and only for namespaces in which work did not fit. That may
be found out after the room came and by an older count. So what came since the last count is remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from fluxqueue.api.clusterobjects import ResourceQuota
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.jobs import Job
from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.jobs import pods_wanted
from fluxqueue.queue.model.moldable import started_pods
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.resource_quotas import LARGEST, amounts_left, counts, hard_amounts, pod_amounts
from fluxqueue.queue.scheduling.limits.quota_room import Bound, NamespaceRoom, QuotaRoom, Vector
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["NamespaceQuotas"]

_SHOWN_S = 1.0
"""By then the watch has shown what a new pod uses of its quota."""
_MOST_UNUSED = 1_000
"""Jobs that are gone and still known, before all is read again."""
_MOST_TEMPLATES = 10_000


@dataclass(slots=True)
class _Requests:
    """The quotas of a namespace, and what its Jobs ask of them.

    Attributes
    ----------
    quotas
        The quotas that bound what pods use, as they were when this was read.
    bounds
        Of all of them.
    left
        Of each bound, as the quotas count.
    numbers, vectors
        All that was asked for: the number of each vector, and the vectors by number. Number 0 asks for
        nothing.
    of_template
        What one pod asks for, by what decides that in its template.
    asked
        By uid of a Job: the Job as it was read, the number of its pods, and the number of what they ask for.
    """

    quotas: tuple[ResourceQuota, ...]
    bounds: tuple[Bound, ...]
    left: Vector
    numbers: dict[tuple[int, ...], int] = field(default_factory=dict)
    vectors: list[tuple[int, ...]] = field(default_factory=list)
    of_template: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    asked: dict[str, tuple[Job, int, int]] = field(default_factory=dict)
    table: Vector | None = None

    def number_of(self, vector: tuple[int, ...]) -> int:
        """Return the number of a vector; a new one if it is not known."""
        number = self.numbers.get(vector)
        if number is None:
            number = self.numbers[vector] = len(self.vectors)
            self.vectors.append(vector)
            self.table = None
        return number

    def as_table(self) -> Vector:
        """Return all vectors."""
        if self.table is None:
            self.table = np.array(self.vectors, dtype=np.int64).reshape(len(self.vectors), len(self.bounds))
        return self.table


class NamespaceQuotas:
    """The ResourceQuotas of all namespaces."""

    def __init__(self, caches: Caches, ledger: Ledger) -> None:
        self._caches = caches
        self._ledger = ledger
        self._quotas: dict[str, dict[str, ResourceQuota]] = {}
        self._requests: dict[str, _Requests] = {}
        self._stale: set[str] = set()
        self._recent: set[str] = set()
        self._closed: set[str] = set()
        self._roomier: set[str] = set()
        self._listener: Callable[[], None] = lambda: None

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener when a quota may leave more room than before."""
        self._listener = listener

    def room(self) -> QuotaRoom:
        """Return what the quotas leave now."""
        for namespace in self._stale:
            self._read(namespace)
        self._stale.clear()
        self._closed.clear()
        self._roomier.clear()
        granted = self._granted() if self._requests else {}
        return QuotaRoom(
            {name: self._space(each, granted.get(name)) for name, each in self._requests.items()},
            self._note_closed,
        )

    # ---- what is asked for ---------------------------------------------------------------------------------

    def _read(self, namespace: str) -> None:
        """Read the quotas of a namespace.
        What its Jobs ask for stays known if the bounds and scopes are as before.
        """
        ordered = sorted(self._quotas.get(namespace, {}).items())
        quotas = tuple(quota for _, quota in ordered if hard_amounts(quota))
        known = self._requests.pop(namespace, None)
        if not quotas:
            return
        bounds = tuple(
            Bound(quota.metadata.name, name, hard)
            for quota in quotas
            for name, hard in hard_amounts(quota).items()
        )
        left = np.array(
            [amount for quota in quotas for amount in amounts_left(quota).values()], dtype=np.int64
        )
        alike = (
            known is not None
            and known.bounds == bounds
            and [each.spec for each in known.quotas] == [each.spec for each in quotas]
        )
        if known is None or not alike or len(known.asked) > 2 * len(self._caches.jobs) + _MOST_UNUSED:
            known = _Requests(quotas, bounds, left)
            known.number_of((0,) * len(bounds))
        known.quotas, known.left = quotas, left
        self._requests[namespace] = known

    def _space(self, requests: _Requests, granted: Vector | None) -> NamespaceRoom:
        free = np.maximum(requests.left - granted, 0) if granted is not None else requests.left.copy()
        return NamespaceRoom(
            requests.bounds, free, requests.as_table, lambda workload: self._asked_by(requests, workload)
        )

    def _asked_by(self, requests: _Requests, workload: Workload) -> int:
        """Return the number of what a workload asks for: 0 unless it is a Job whose pods do not exist yet."""
        job = self._caches.jobs.get_by_uid(workload.uid) if workload.kind == "Job" else None
        if job is None or not job.spec.suspend:
            return 0
        known = requests.asked.get(workload.uid)
        if known is not None and known[0] is job and known[1] == workload.pods:
            return known[2]
        number = requests.number_of(
            tuple(min(amount * workload.pods, LARGEST) for amount in self._of_one_pod(requests, job))
        )
        requests.asked[workload.uid] = job, workload.pods, number
        return number

    def _of_one_pod(self, requests: _Requests, job: Job) -> tuple[int, ...]:
        """Return what one pod of a Job takes of each bound."""
        template = job.spec.template.spec
        key = _deciding(template)
        known = requests.of_template.get(key)
        if known is not None:
            return known
        spec = self._completed(template, job.metadata.namespace)
        amounts, default_class = pod_amounts(spec), self._default_class()
        counting = {quota.metadata.name for quota in requests.quotas if counts(quota, spec, default_class)}
        each = tuple(
            amounts.get(bound.name, 0) if bound.quota in counting else 0 for bound in requests.bounds
        )
        if len(requests.of_template) >= _MOST_TEMPLATES:
            requests.of_template.clear()
        requests.of_template[key] = each
        return each

    def _completed(self, spec: PodSpec, namespace: str) -> PodSpec:
        around = self._caches.cluster_context(namespace)
        return with_defaults(
            spec, around.limit_ranges, around.runtime_classes.get(spec.runtime_class_name or "")
        )

    def _default_class(self) -> str:
        return next(
            (each.metadata.name for each in self._caches.priority_classes.list() if each.global_default), ""
        )

    # ---- what is granted and not used yet ------------------------------------------------------------------

    def _granted(self) -> Mapping[str, Vector]:
        """Return what pods will use that were granted and do not count as used yet, by namespace."""
        granted: dict[str, Vector] = {}
        for workload, allocation in self._ledger.live():
            requests = self._requests.get(workload.namespace)
            if requests is None or allocation.remnant or not workload.state.placed:
                continue
            job = self._caches.jobs.get_by_uid(workload.uid)
            missing = self._missing(workload, job) if job is not None else 0
            if job is not None and missing > 0:
                vector = np.array(self._of_one_pod(requests, job), dtype=np.int64) * missing
                granted[workload.namespace] = granted.get(workload.namespace, 0) + vector
        return granted

    def _missing(self, workload: Workload, job: Job) -> int:
        """Count the pods that a Job still creates for the nodes that it has,
        and those that its quotas may not count yet.
        """
        if workload.state is State.ALLOCATED:
            return started_pods(workload) - self._used(workload)
        if job.spec.suspend or job.starts_no_pods:
            return 0
        if job.status.active >= job.spec.pods_at_once == job.spec.completions:
            return 0
        follow = job.spec.completions is None or job.spec.completions > job.spec.pods_at_once
        return pods_wanted(job) - (self._used(workload) if follow else job.status.active)

    def _used(self, workload: Workload) -> int:
        """Count the pods of a Job that its quotas count by now."""
        pods = self._caches.pods_of_job(workload.uid)
        return sum(
            1 for pod in pods if pod.active and (pod.spec.node_name or pod.metadata.uid not in self._recent)
        )

    # ---- events --------------------------------------------------------------------------------------------

    def defaults_changed(self, _change: object) -> None:
        """Read all quotas again: pods may count otherwise."""
        self._requests.clear()
        self._stale.update(self._quotas)

    def quota_changed(self, change: Change[ResourceQuota]) -> None:
        """Read the quotas of a namespace again, and request a cycle if there may be more room."""
        old, new, meta = change.old, change.new, change.obj.metadata
        quotas = self._quotas.setdefault(meta.namespace, {})
        if new is not None:
            quotas[meta.name] = new
        else:
            quotas.pop(meta.name, None)
        if not quotas:
            del self._quotas[meta.namespace]
        self._stale.add(meta.namespace)
        if new is None or old is None or _leaves_more(old, new):
            self._recheck(meta.namespace)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Note new pods, which quotas may not count yet, and those that were bound."""
        pod = change.obj
        if pod.metadata.namespace not in self._quotas or change.new is None:
            return
        if change.old is None and not pod.spec.node_name:
            self._recent.add(pod.metadata.uid)
            asyncio.get_running_loop().call_later(_SHOWN_S, self._note_shown, pod)
        elif change.old is not None and pod.spec.node_name and not change.old.spec.node_name:
            self._recheck(pod.metadata.namespace)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Look for room when a workload runs: fewer of its pods may be awaited."""
        workload = self._ledger.get(workload_id)
        if workload is not None and workload.state is State.RUNNING:
            self._recheck(workload.namespace)  # fewer of its pods may be awaited

    def _note_closed(self, namespace: str) -> None:
        self._closed.add(namespace)
        if namespace in self._roomier:
            self._roomier.discard(namespace)
            self._listener()

    def _note_shown(self, pod: Pod) -> None:
        self._recent.discard(pod.metadata.uid)
        self._recheck(pod.metadata.namespace)

    def _recheck(self, namespace: str) -> None:
        """Have work looked at again that does not fit, or of which that is found out by the last count."""
        self._roomier.add(namespace)
        if namespace in self._closed:
            self._listener()


def _deciding(spec: PodSpec) -> bytes:
    """Return the parts of a template that decide what quotas count of its pods."""
    amounts = (spec.containers, spec.init_containers, spec.overhead, spec.resources, spec.runtime_class_name)
    return msgspec.msgpack.encode((amounts, spec.priority_class_name, spec.active_deadline_seconds))


def _leaves_more(old: ResourceQuota, new: ResourceQuota) -> bool:
    before, now = amounts_left(old), amounts_left(new)
    return old.spec != new.spec or any(now.get(name, amount + 1) > amount for name, amount in before.items())
