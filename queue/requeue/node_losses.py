"""Which nodes are lost, and which pods on them are replaced.

A Job whose pods are released one by one loses only its pods on a lost node: each replacement is matched
alone. If the replacements are not bound in time, the Job is evicted as a whole after all.
"""

from __future__ import annotations

import asyncio

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.given_back import given_ranks, staying_slots
from fluxqueue.queue.model.jobs import pods_wanted
from fluxqueue.queue.model.minicluster_jobs import is_flux_cluster
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.requeue.deletion_budget import failures_left
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["NodeLosses"]

_DELETED_S = 2.0
"""A node that is deleted and created again at once was not lost."""
_REPLACED_S = 30.0
"""The Job controller may take 10 s to create a pod again (its back-off after a failure).
Then the pod has to be matched and bound."""


class NodeLosses:
    """Measures how long nodes are silent, and how long Jobs lack pods.

    Parameters
    ----------
    caches, ledger
        The cluster and the queue.
    start_timeout_s
        How long pods may take to be bound after their release.
    node_lost_s
        How long a node may be NotReady before it counts as lost.
    """

    def __init__(self, caches: Caches, ledger: Ledger, *, start_timeout_s: float, node_lost_s: float) -> None:
        self._caches = caches
        self._ledger = ledger
        self._start_timeout_s = start_timeout_s
        self._node_lost_s = node_lost_s
        self._silent_since: dict[str, float] = {}
        self._lacking_since: dict[WorkloadId, float] = {}
        self._lacking: dict[WorkloadId, float] = {}

    def check(self) -> set[str]:
        """Begin a check, and return the nodes with slots that are missing or NotReady for too long."""
        now = asyncio.get_running_loop().time()
        used = {
            slot.node
            for _, allocation in self._ledger.live()
            for slot in allocation.slots
            if slot.node != names.NO_NODE
        }
        lost: set[str] = set()
        silent: dict[str, float] = {}
        for name in used:
            node = self._caches.nodes.get("", name)
            if node is not None and node.status.ready:
                continue
            silent[name] = since = self._silent_since.get(name, now)
            if now - since >= (min(_DELETED_S, self._node_lost_s) if node is None else self._node_lost_s):
                lost.add(name)
        self._silent_since = silent
        self._lacking = {}
        return lost

    def end_check(self) -> None:
        """End a check: forget the Jobs that lack no pods any more."""
        self._lacking_since = self._lacking

    def pods_to_replace(self, workload: Workload, allocation: Allocation, lost: set[str]) -> list[Pod] | None:
        """Return the pods on lost nodes that are still to be deleted;
        None if the Job is to be evicted as a whole.
        """
        job = self._caches.jobs.get_by_uid(workload.uid)
        slots = staying_slots(workload, allocation)
        kept = [slot for slot in slots if slot.node not in lost]
        if (
            workload.state is not State.RUNNING
            or job is None
            or not kept
            or not _released_one_by_one(workload, job)
        ):
            return None
        uids = [slot.pod_uid for slot in slots if slot.pod_uid and slot.node in lost]
        pods = [pod for uid in uids if (pod := self._caches.pods.get_by_uid(uid)) is not None and pod.active]
        if sum(1 for pod in pods if not pod.revocable) > failures_left(job):
            return None  # the Job would fail
        leaving = {slot.pod_uid for slot in allocation.open_slots} - {slot.pod_uid for slot in slots}
        bound = [pod for pod in self._caches.pods_of_job(workload.uid) if pod.active and pod.spec.node_name]
        # the parallelism of a Job that gave pods back is lowered later
        wanted = min(pods_wanted(job), len(slots)) if given_ranks(workload) else pods_wanted(job)
        if (
            sum(1 for pod in bound if pod.spec.node_name not in lost and pod.metadata.uid not in leaving)
            >= wanted
        ):
            return pods
        now = asyncio.get_running_loop().time()
        self._lacking[workload.id] = since = self._lacking_since.get(workload.id, now)
        return pods if now - since <= max(self._start_timeout_s, _REPLACED_S) else None


def _released_one_by_one(workload: Workload, job: Job) -> bool:
    """True if a pod of the Job can be replaced without the others.

    The brokers of a Flux cluster are released one by one too, but the cluster needs all of them.
    """
    return workload.release_mode is ReleaseMode.GATE and not is_flux_cluster(job)
