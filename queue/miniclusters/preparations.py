"""Creates what the pods of a Flux cluster need before they are released.

Only the ConfigMap with the broker configuration depends on the allocation. The releaser has it written before
it releases a Job, and pods mount it by name on their nodes; there is no other ordering. Jobs that a person
annotated also need a Secret and a Service, which are created as soon as the Job is seen.

A problem of one Job must not end a round in which others are released. A Job that cannot be rendered, or
whose object has the name of another owner's, gets a blocker (`fluxqueue.queue.release.blockers`), and the
round learns only that the Job is not prepared. Such an object is checked again until it is deleted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import structlog

from fluxqueue.api.jobs import Job
from fluxqueue.api.nodes import Node
from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.certs import curve
from fluxqueue.kube.errors import Forbidden, Invalid, NotFound
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.kube.kinds import JOBS
from fluxqueue.minicluster.injection_settings import InvalidInjection
from fluxqueue.minicluster.render import annotated_objects, objects
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.miniclusters.owned_objects import NameConflict, OwnedObjects
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT
from fluxqueue.queue.model.minicluster_jobs import is_flux_cluster, minicluster_of_job, owner_uid, shares_for
from fluxqueue.queue.model.records import Allocation
from fluxqueue.queue.release.blockers import PreparationFailed, ReleaseBlockers
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["CONFLICT_RETRY_S", "MiniClusterSettings", "Preparations"]

log = structlog.get_logger()

CONFLICT_RETRY_S = 3.0
"""How often an object of another owner is checked."""

_REFUSED_RETRY_S = 30.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MiniClusterSettings:
    """Settings of the installation.

    Attributes
    ----------
    image
        Of the queue, for the REST service of a MiniCluster that names none.
    cluster_domain
        Of the cluster's DNS.
    """

    image: str
    cluster_domain: str


class Preparations:
    """Creates what Jobs that are Flux clusters need.

    Parameters
    ----------
    owned
        Where objects are created.
    caches, ledger
        The cluster, and the clock.
    blockers
        Where it is recorded what keeps a Job from being released.
    recorder
        For Events on the Job.
    settings
        Of the installation.
    """

    def __init__(
        self,
        owned: OwnedObjects,
        caches: Caches,
        ledger: Ledger,
        blockers: ReleaseBlockers,
        recorder: EventRecorder,
        settings: MiniClusterSettings,
    ) -> None:
        self._owned = owned
        self._caches = caches
        self._ledger = ledger
        self._blockers = blockers
        self._recorder = recorder
        self._settings = settings
        self._created: set[str] = set()
        """Uids of annotated Jobs whose Secret and Service this process has created."""
        self._conflicts: dict[str, NameConflict] = {}

    def has_work_for(self, job: Job) -> bool:
        """True if `reconcile` has something to do for a Job."""
        uid = job.metadata.uid
        return uid in self._conflicts or (owner_uid(job) is None and uid not in self._created)

    async def reconcile(self, job: Job) -> float | None:
        """Create what an annotated Job needs, and check whether a name conflict of a Job has ended.

        Returns
        -------
        float or None
            Seconds after which to check again.
        """
        conflict = self._conflicts.get(job.metadata.uid)
        if conflict is not None:
            if await self._owned.still_exists(conflict):
                return CONFLICT_RETRY_S
            self._conflicts.pop(job.metadata.uid, None)
            self._blockers.clear(job.metadata.uid)
        if owner_uid(job) is None and job.metadata.uid not in self._created:
            try:
                await self._create_for(job)
            except PreparationFailed:
                return CONFLICT_RETRY_S if job.metadata.uid in self._conflicts else _REFUSED_RETRY_S
            except Invalid as error:
                self._warn(job, str(error))
                return _REFUSED_RETRY_S
            self._blockers.clear(job.metadata.uid)
        return None

    def forget(self, uid: str) -> None:
        """Forget a Job that is deleted."""
        self._created.discard(uid)
        self._conflicts.pop(uid, None)
        self._blockers.clear(uid)

    async def prepare(self, job: Job, allocation: Allocation) -> None:
        """Write what the pods of a Flux cluster need before it is released; nothing for other Jobs.

        Raises
        ------
        PreparationFailed
            It cannot be written now: the blocker of the Job has the reason.
        NotFound
            Its MiniCluster is deleted.
        ApiError
            It could not be written; the release is tried again.
        """
        if not is_flux_cluster(job):
            return
        if owner_uid(job) is None and job.metadata.uid not in self._created:
            await self._create_for(job)
        try:
            rendered = self._rendered(job, allocation)
        except NotFound:
            raise
        except Exception as error:
            # rendering reads only this Job and its MiniCluster, so any error is theirs
            log.exception("flux_cluster.not_rendered", job=f"{job.metadata.namespace}/{job.metadata.name}")
            raise self._blocked(
                job, f"it cannot be rendered ({error}): correct it, or delete it", until_edited=True
            ) from None
        await self._apply(job, [each for each in rendered if each["kind"] == "ConfigMap"])
        reach(CrashPoint.PREPARED)

    def _rendered(self, job: Job, allocation: Allocation) -> list[Json]:
        meta, template = job.metadata, job.spec.template
        cluster = self._caches.cluster_context(meta.namespace)
        runtime = cluster.runtime_classes.get(template.spec.runtime_class_name or "")
        spec = with_defaults(template.spec, cluster.limit_ranges, runtime)
        hosts = [slot.node for slot in allocation.slots if slot.label != SERVICES_SLOT]
        shares = shares_for(spec, template.metadata, meta.namespace, hosts, self._node_cpus)
        domain = self._settings.cluster_domain
        if owner_uid(job) is None:
            return annotated_objects(
                minicluster_of_job(job), certificate=None, shares=shares, cluster_domain=domain
            )
        minicluster = self._caches.minicluster_of(job)
        if minicluster is None:
            raise NotFound(404, "NotFound", f"the MiniCluster of Job {meta.namespace}/{meta.name} is gone")
        return objects(
            minicluster, certificate=None, image=self._settings.image, shares=shares, cluster_domain=domain
        )

    async def _create_for(self, job: Job) -> None:
        try:
            rendered = annotated_objects(
                minicluster_of_job(job),
                certificate=curve.make(job.metadata.name, self._ledger.wall()),
                cluster_domain=self._settings.cluster_domain,
            )
        except InvalidInjection as error:
            raise self._blocked(job, str(error), until_edited=True) from None
        try:
            await self._apply(job, rendered)
        except Forbidden as error:
            raise self._blocked(job, str(error)) from None
        self._created.add(job.metadata.uid)

    async def _apply(self, job: Job, rendered: list[Json]) -> None:
        """Create or update objects of a Job; a name conflict becomes a blocker of the Job."""
        try:
            await asyncio.gather(*(self._owned.apply(each) for each in rendered))
        except NameConflict as conflict:
            self._conflicts[job.metadata.uid] = conflict
            raise self._blocked(job, str(conflict)) from None

    def _blocked(self, job: Job, message: str, *, until_edited: bool = False) -> PreparationFailed:
        self._blockers.note(job, message, until_edited=until_edited)
        self._warn(job, message)
        return PreparationFailed(message)

    def _warn(self, job: Job, message: str) -> None:
        self._recorder.record(Subject.of(JOBS, job), "NotAFluxCluster", message, severity=Severity.WARNING)

    def _node_cpus(self, name: str) -> Decimal | None:
        node: Node | None = self._caches.nodes.get("", name)
        cpus = (node.status.allocatable or {}).get("cpu") if node is not None else None
        return parse_quantity(cpus) if cpus is not None else None
