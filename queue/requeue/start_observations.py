"""What is observed of released work: which of its pods have no node, and what keeps them from it.

How long a released pod has no node, and how long pods of a workload are refused, is measured on this process'
own clock: the times in objects are written by other programs.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from functools import partial

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.api.templatepins import is_pinned
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.watched_objects import BY_NODE_NAME
from fluxqueue.queue.model.jobids import parse_jobid
from fluxqueue.queue.model.jobs import pods_wanted
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT
from fluxqueue.queue.model.pods import pinned_node
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.job_backoffs import JobBackoffs
from fluxqueue.queue.requeue.pod_refusals import PodRefusals
from fluxqueue.queue.requeue.start_failures import (
    StartFailure,
    find_closed_nodes,
    find_empty_slots,
    find_gate_refusal,
    find_retry,
    find_timeout,
    find_unseen,
    is_refused,
    release_seen_at,
)
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["StartObservations"]

_OVERLOOKED_S = 30.0
"""How long a pod may be refused that asks for a share of a device.

kube-scheduler counts a share twice from the moment in which it stores the claim until it has noted that it
did. A pod that it tries in between is refused although there is room, and nothing makes it try again for five
minutes.
"""
_SETTLED_S = 5.0
"""How long a node may look full to a pod: what leaves it may not be gone yet,
and the scheduler may not have looked."""


class StartObservations:
    """Finds what keeps pods from their nodes; for the parameters see `StartupMonitor`."""

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        refusals: PodRefusals,
        gates: PodGates,
        backoffs: JobBackoffs,
        start_timeout_s: float,
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._refusals = refusals
        self._gates = gates
        self._gated: dict[WorkloadId, StartFailure] = {}
        self._backoffs = backoffs
        self._start_timeout_s = start_timeout_s
        self._unbound_since: dict[str, float] = {}
        self._late: dict[WorkloadId, set[str]] = {}
        self._with_unbound: set[WorkloadId] = set()
        self._refused_since: dict[WorkloadId, float] = {}

    def begin_check(self) -> None:
        """Look at all pods, once for a check."""
        self._late = self._late_pods()
        self._gated = {each: find_gate_refusal(*refusal) for each, refusal in self._gates.refusals().items()}
        self._refused_since = {
            id_: since for id_, since in self._refused_since.items() if self._ledger.get(id_) is not None
        }

    def failure(self, workload: Workload, allocation: Allocation, now: datetime) -> StartFailure | None:
        """Return what keeps pods of a workload from their nodes;
        None if nothing does, or if they still have time.
        """
        assert allocation.released_at is not None
        late = self._late.get(workload.id, set())
        due = (
            workload.state is State.ALLOCATED
            and (now - allocation.released_at).total_seconds() > self._start_timeout_s
        )
        job = self._caches.jobs.get_by_uid(workload.uid) if due and workload.kind == "Job" else None
        if job is not None and (acted_at := release_seen_at(job)) is not None:
            due = (self._ledger.wall() - acted_at).total_seconds() > self._start_timeout_s
        if (refused := self._refusals.of(workload, allocation)) is not None and self._lacks_pods(workload):
            over = self._refused_for_s(workload) > self._start_timeout_s
            empty = find_empty_slots(allocation, self.pods(workload, allocation)) if due or over else ()
            return replace(refused, empty_slots=empty, without_slots=self._lacks_slots(workload, allocation))
        self._refused_since.pop(workload.id, None)
        if (gated := self._gated.get(workload.id)) is not None:
            return gated
        if not due and workload.id not in self._with_unbound:
            return None
        pods = self.pods(workload, allocation)
        obstacle_to = partial(self._obstacle_to_later_pod, workload)
        closed = find_closed_nodes(
            allocation, pods, lambda name: self._caches.nodes.get("", name), obstacle_to
        )
        if closed is not None:
            return closed
        unseen = find_unseen(job, self._start_timeout_s) if job is not None else None
        if unseen is not None and not any(pod.active for pod in pods):
            return unseen
        if due and unseen is None:
            failure = find_timeout(allocation, pods, self._start_timeout_s)
            retried = self._retried_until(workload, now) if failure is not None and not failure.pods else None
            return failure if retried is None else find_retry(allocation, pods, retried)
        within_s = min(
            (self._patience_s(pod) for pod in pods if pod.metadata.uid in late), default=self._start_timeout_s
        )
        return find_timeout(allocation, pods, within_s, late=late) if late else None

    def _refused_for_s(self, workload: Workload) -> float:
        """Return for how long each check has found that the API server refuses pods of a workload."""
        now = asyncio.get_running_loop().time()
        return now - self._refused_since.setdefault(workload.id, now)

    def _lacks_slots(self, workload: Workload, allocation: Allocation) -> bool:
        """True if a Job wants more pods than it has slots."""
        job = self._caches.jobs.get_by_uid(workload.uid)
        return job is not None and sum(
            1 for slot in allocation.open_slots if slot.label != SERVICES_SLOT
        ) < pods_wanted(job)

    def _retried_until(self, workload: Workload, now: datetime) -> datetime | None:
        """Return until when the Job controller waits before it replaces failed pods of a Job;
        None if it does not wait.
        """
        job = self._caches.jobs.get_by_uid(workload.uid)
        until = self._backoffs.until(job) if job is not None else None
        return until if until is not None and until > now else None

    def _obstacle_to_later_pod(self, workload: Workload, pod: Pod, node: str) -> str:
        """Return what fills the node of a pod that came after the first start and can only run there,
        as its template holds the node.
        """
        now = asyncio.get_running_loop().time()
        if workload.state is not State.RUNNING or not is_pinned(pod.metadata):
            return ""
        if now - self._unbound_since.get(pod.metadata.uid, now) < min(_SETTLED_S, self._start_timeout_s):
            return ""
        present = [
            each
            for each in self._caches.pods.by_index(BY_NODE_NAME, node)
            if not each.metadata.deletion_timestamp
        ]
        return self._caches.obstacle(node, pod.metadata.namespace, pod.spec, present)

    def _lacks_pods(self, workload: Workload) -> bool:
        job = self._caches.jobs.get_by_uid(workload.uid)
        if job is None or job.spec.suspend or job.finished:
            return False
        return sum(1 for pod in self._caches.pods_of_job(workload.uid) if pod.active) < pods_wanted(job)

    def _late_pods(self) -> dict[WorkloadId, set[str]]:
        """Return the pods (uids) that were released and have had no node for too long, by workload."""
        now = asyncio.get_running_loop().time()
        unbound: dict[str, float] = {}
        self._with_unbound.clear()
        late: dict[WorkloadId, set[str]] = {}
        for pod in self._caches.pods.list():
            if pod.spec.node_name or not pod.active or pod.held:
                continue
            if pod.metadata.annotation(names.ALLOCATION_ANNOTATION) is None:
                continue
            uid = pod.metadata.uid
            unbound[uid] = since = self._unbound_since.get(uid, now)
            if (workload := self._workload_of(pod)) is not None:
                self._with_unbound.add(workload)
                if now - since > self._patience_s(pod):
                    late.setdefault(workload, set()).add(uid)
        self._unbound_since = unbound
        return late

    def _patience_s(self, pod: Pod) -> float:
        """Return how long a released pod may have no node."""
        node = pinned_node(pod) if is_refused(pod) else None
        if node is None or not self._caches.devices.gives_shares(node, pod.metadata.namespace, pod.spec):
            return self._start_timeout_s
        return min(_OVERLOOKED_S, self._start_timeout_s)

    def _workload_of(self, pod: Pod) -> WorkloadId | None:
        jobid = parse_jobid(pod.metadata.annotation(names.ALLOCATION_ANNOTATION))
        allocation = self._ledger.allocation_of_job(jobid) if jobid is not None else None
        return allocation.workload if allocation is not None and not allocation.remnant else None

    def pods(self, workload: Workload, allocation: Allocation) -> list[Pod]:
        """Return the pods that are in a workload's slots or come for them:
        not those of its Job that are matched alone.
        """
        if workload.kind == "Job":
            return [
                pod
                for pod in self._caches.pods_of_job(workload.uid)
                if self._ledger.by_uid(pod.metadata.uid) is None
            ]
        uids = {workload.uid, *(slot.pod_uid for slot in allocation.slots if slot.pod_uid)}
        return [pod for uid in uids if (pod := self._caches.pods.get_by_uid(uid)) is not None]
