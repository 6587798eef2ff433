"""Makes MiniClusters run: their objects, their services pod, their status and their end.

The Job of a MiniCluster is queued like any other, as one workload that includes its services pod. The
controller stores nothing about it. Each time a MiniCluster, its Job, its pods or its row changes, the
controller works out what should exist and creates what is missing. The services pod is created once the Job
is in the queue: it names the Job, and waits gated.

An object of another owner is never taken over: the problem is reported, and the object is checked again until
it is deleted. What annotated Jobs need, and what is written from the allocation, is created in
`fluxqueue.queue.miniclusters.preparations`.
"""

from __future__ import annotations

from fluxqueue.api.jobs import Job
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.kube.errors import Forbidden, Invalid
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.transport import Api
from fluxqueue.kube.workqueue import run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.miniclusters.formation import Evict, FormationTimeout
from fluxqueue.queue.miniclusters.keys import Key, MiniClusterKeys
from fluxqueue.queue.miniclusters.minicluster_objects import MiniClusterObjects, conflict_retry_s
from fluxqueue.queue.miniclusters.minicluster_status import MiniClusterContext
from fluxqueue.queue.miniclusters.owned_objects import NameConflict, OwnedObjects
from fluxqueue.queue.miniclusters.preparations import MiniClusterSettings, Preparations
from fluxqueue.queue.miniclusters.problems import KnownProblems
from fluxqueue.queue.miniclusters.services_pod import ServicesPods
from fluxqueue.queue.miniclusters.status_writer import SETTLES_S, MiniClusterStatusWriter
from fluxqueue.queue.model.minicluster_jobs import annotated, job_served_by, owner_uid
from fluxqueue.queue.release.blockers import ReleaseBlockers
from fluxqueue.queue.status.failures import FailureReporter
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["MiniClusterController"]

_WORKERS = 8


class MiniClusterController:
    """Reconciles MiniClusters and annotated Jobs.

    Parameters
    ----------
    api, caches, ledger
        Where objects are created, which exist, and the queue.
    evict
        Evicts workloads from their nodes.
    recorder
        For Events.
    settings
        Of the installation.
    blockers
        Where it is recorded what keeps a Job from being released.

    Attributes
    ----------
    preparations
        What the releaser calls before it releases a Flux cluster.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        evict: Evict,
        recorder: EventRecorder,
        settings: MiniClusterSettings,
        blockers: ReleaseBlockers,
    ) -> None:
        owned = OwnedObjects(api)
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self.preparations = Preparations(owned, caches, ledger, blockers, recorder, settings)
        self._problems = KnownProblems(caches, recorder)
        self._objects = MiniClusterObjects(api, owned, caches, ledger, self._problems, settings)
        self._services = ServicesPods(owned, caches)
        self._formation = FormationTimeout(evict, self._problems, ledger.clock)
        self._status = MiniClusterStatusWriter(api, ledger.wall)
        self._keys = MiniClusterKeys(caches, ledger, self.preparations, self._problems)
        self.parts = self._keys, blockers

    def resync(self) -> None:
        """Check every MiniCluster and annotated Job."""
        self._keys.add_all()

    async def run(self) -> None:
        """Work until cancelled."""
        failures = FailureReporter(self._recorder, "brought to what its spec asks", self._keys.subjects)
        await run_workers(self._keys.queue, _WORKERS, self._reconcile, failures.counting("miniclusters"))

    async def _reconcile(self, key: Key) -> float | None:
        kind, namespace, name = key
        job = self._caches.jobs.get(namespace, name)
        if kind == "Job":
            if job is None or not annotated(job) or job.finished or not self._caches.manages(namespace):
                return None
            return await self.preparations.reconcile(job)
        minicluster = self._caches.miniclusters.get(namespace, name)
        if minicluster is not None and not minicluster.metadata.deletion_timestamp:
            return await self._reconcile_minicluster(minicluster, job)
        if minicluster is not None:
            self._problems.forget(minicluster.metadata.uid)
            self._status.forget(minicluster.metadata.uid)
        if job is not None and owner_uid(job) is not None:
            await self._objects.delete_job(job)
        return None

    async def _reconcile_minicluster(self, minicluster: MiniCluster, job: Job | None) -> float | None:
        own = job if job is not None and owner_uid(job) == minicluster.metadata.uid else None
        waits: list[float | None] = []
        if own is not None:
            waits.append(await self.preparations.reconcile(own))
            waits.append(await self._objects.apply_edits(minicluster, own))
        elif minicluster.status.finished_at is None:
            waits.append(await self._objects.create(minicluster, job))
        context = self._context(minicluster, own)
        waits.append(await self._reconcile_services(context))
        waits.append(await self._formation.check(context))
        waits.append(await self._status.write(context))
        if (
            own is not None
            and own.finished
            and minicluster.spec.cleanup
            and minicluster.status.finished_at is not None
        ):
            await self._objects.delete(minicluster)
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    async def _reconcile_services(self, context: MiniClusterContext) -> float | None:
        minicluster = context.minicluster
        try:
            await self._services.reconcile(context)
        except NameConflict as conflict:
            self._problems.add_conflict(minicluster, conflict)
            return conflict_retry_s(conflict)
        except (Invalid, Forbidden) as error:
            self._problems.refuse(minicluster, str(error))
            return None
        if context.job is not None and self._problems.remove_conflict(minicluster):
            return SETTLES_S  # for its status, which still shows the conflict
        return None

    def _context(self, minicluster: MiniCluster, job: Job | None) -> MiniClusterContext:
        problems = self._problems.of(minicluster)
        if job is None:
            return MiniClusterContext(minicluster, problems)
        workload = self._ledger.by_uid(job.metadata.uid)
        fluxjob = self._caches.fluxjob_of(job.metadata.uid)
        pods = self._caches.pods_of_job(job.metadata.uid)
        return MiniClusterContext(
            minicluster,
            problems,
            job,
            tuple(pod for pod in pods if job_served_by(pod) is None),
            workload,
            self._ledger.allocation(workload.id) if workload is not None else None,
            cancelled=fluxjob is not None and fluxjob.spec.cancel,
            services=next(
                (
                    pod
                    for pod in pods
                    if job_served_by(pod) is not None and not pod.metadata.deletion_timestamp
                ),
                None,
            ),
        )
