"""The work queue of the MiniCluster controller:
which MiniCluster or annotated Job to check after a change.
"""

from __future__ import annotations

from collections.abc import Iterable

from fluxqueue.api.jobs import Job
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.pods import Pod
from fluxqueue.kube.events import Subject
from fluxqueue.kube.kinds import JOBS, MINICLUSTERS
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.workqueue import WorkQueue
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.miniclusters.preparations import Preparations
from fluxqueue.queue.miniclusters.problems import KnownProblems
from fluxqueue.queue.model.minicluster_jobs import (
    PASSED_ON_ANNOTATIONS,
    is_flux_cluster,
    job_served_by,
    owner_uid,
)
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Key", "MiniClusterKeys"]

Key = tuple[str, str, str]
"""Kind (MiniCluster or Job), namespace and name."""


class MiniClusterKeys:
    """Enqueues the key of whatever a change concerns.

    Parameters
    ----------
    caches, ledger
        The cluster and the queue.
    preparations, problems
        Told which objects are deleted.

    Attributes
    ----------
    queue
        The keys to work on.
    """

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        preparations: Preparations,
        problems: KnownProblems,
    ) -> None:
        self.queue: WorkQueue[Key] = WorkQueue("miniclusters")
        self._caches = caches
        self._ledger = ledger
        self._preparations = preparations
        self._problems = problems

    def add_all(self) -> None:
        """Enqueue every MiniCluster and annotated Job."""
        for minicluster in self._caches.miniclusters.list():
            self.queue.add(_key(minicluster))
        for job in self._caches.jobs.list():
            self._enqueue_job(job)

    def subjects(self, key: Key) -> Iterable[Subject]:
        """Return the object of a key, if it exists."""
        kind, namespace, name = key
        if kind == "Job":
            job = self._caches.jobs.get(namespace, name)
            return [Subject.of(JOBS, job)] if job is not None else []
        minicluster = self._caches.miniclusters.get(namespace, name)
        return [Subject.of(MINICLUSTERS, minicluster)] if minicluster is not None else []

    def minicluster_changed(self, change: Change[MiniCluster]) -> None:
        """Enqueue a MiniCluster that is requested otherwise."""
        if change.old is not None and change.new is not None and _same_request(change.old, change.new):
            return  # only the status changed, which the controller writes
        if change.new is None:
            self._problems.forget(change.obj.metadata.uid)
        self.queue.add(_key(change.obj))

    def job_changed(self, change: Change[Job]) -> None:
        """Enqueue the Job: its Flux cluster follows it."""
        if change.new is None:
            self._preparations.forget(change.obj.metadata.uid)
        self._enqueue_job(change.obj)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Enqueue the MiniCluster or the Job that a pod serves."""
        owner = change.obj.metadata.controller
        if owner is not None and job_served_by(change.obj) is not None:
            self.queue.add(("MiniCluster", change.obj.metadata.namespace, owner.name))
        else:
            self.enqueue_job_of(owning_job_uid(change.obj))

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Enqueue the Job of a workload: its status shows the state."""
        workload = self._ledger.get(workload_id)
        if workload is not None:
            self.enqueue_job_of(workload.uid)

    def enqueue_job_of(self, uid: str | None) -> None:
        """Enqueue the Job of a uid, if there is one."""
        job = self._caches.jobs.get_by_uid(uid) if uid else None
        if job is not None:
            self._enqueue_job(job)

    def _enqueue_job(self, job: Job) -> None:
        if not is_flux_cluster(job):
            return
        meta = job.metadata
        if owner_uid(job) is not None:
            self.queue.add(("MiniCluster", meta.namespace, meta.name))
        elif self._preparations.has_work_for(job):
            self.queue.add(("Job", meta.namespace, meta.name))


def _key(minicluster: MiniCluster) -> Key:
    return ("MiniCluster", minicluster.metadata.namespace, minicluster.metadata.name)


def _same_request(old: MiniCluster, new: MiniCluster) -> bool:
    before, after = old.metadata, new.metadata
    alike = all(before.annotation(key) == after.annotation(key) for key in PASSED_ON_ANNOTATIONS)
    return (
        before.generation == after.generation
        and before.deletion_timestamp == after.deletion_timestamp
        and alike
    ) and not (new.status.finished_at and new.spec.cleanup)
