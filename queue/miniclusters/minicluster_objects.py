"""Creates the objects of a MiniCluster, and applies edits of its spec to its Job.

A MiniCluster becomes a Secret with the certificate, Services and an Indexed Job that is suspended. The Job
comes last, so a Job that exists proves that all before it exist. After a crash in between, the other objects
are applied again, which changes nothing: the certificate is created once and never written again.

While its Job has no pods, any edit of the spec can be applied: the Job is deleted and created again. Later
only size, deadline, queue, priority and duration can change.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.jobs import Job
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.certs import curve
from fluxqueue.kube.errors import Conflict, Forbidden, Invalid
from fluxqueue.kube.kinds import JOBS, MINICLUSTERS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.minicluster.render import objects
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.miniclusters.owned_objects import NameConflict, OwnedObjects
from fluxqueue.queue.miniclusters.preparations import CONFLICT_RETRY_S, MiniClusterSettings
from fluxqueue.queue.miniclusters.problems import KnownProblems
from fluxqueue.queue.model.minicluster_jobs import (
    PASSED_ON_ANNOTATIONS,
    deadline_of,
    digest_of,
    job_served_by,
    owner_uid,
    queued_job,
)
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["MiniClusterObjects", "conflict_retry_s", "job_patch"]

log = structlog.get_logger()

_CREATED_LATER = ("Job", "Pod")
"""The Job, which is created last, and the services pod, which names the Job."""
_EDIT_RETRY_S = 0.3
_ORPHAN_RETRY_S = 0.5
"""How often an object is checked that the garbage collector is about to delete."""

Json = dict[str, Any]


class MiniClusterObjects:
    """Makes the objects equal to the spec.

    Parameters
    ----------
    api, owned
        Where objects are patched, and created or deleted.
    caches, ledger
        Pods and rows of Jobs; the clock.
    problems
        Where it is recorded what cannot be created or applied.
    settings
        Of the installation.
    """

    def __init__(
        self,
        api: Api,
        owned: OwnedObjects,
        caches: Caches,
        ledger: Ledger,
        problems: KnownProblems,
        settings: MiniClusterSettings,
    ) -> None:
        self._api = api
        self._owned = owned
        self._caches = caches
        self._ledger = ledger
        self._problems = problems
        self._settings = settings

    async def create(self, minicluster: MiniCluster, other: Job | None) -> float | None:
        """Create all missing objects up to the Job.

        Parameters
        ----------
        minicluster
            Without a Job of its own.
        other
            A Job of its name.

        Returns
        -------
        float or None
            Seconds after which to try again, if an object of another owner has one of the names.
        """
        meta, spec, problems = minicluster.metadata, minicluster.spec, self._problems
        if problems.invalid(minicluster) or not self._caches.manages(meta.namespace):
            return None
        if other is not None and owner_uid(other) is not None:
            await self.delete_job(other)  # of a deleted MiniCluster of this name
            return None
        conflict = problems.conflict(minicluster)
        if conflict is not None and await self._owned.still_exists(conflict):
            return CONFLICT_RETRY_S
        rendered = self._rendered(minicluster)
        try:
            await asyncio.gather(
                *(self._owned.apply(each) for each in rendered if each["kind"] not in _CREATED_LATER)
            )
            reach(CrashPoint.MINICLUSTER_CREATED)
            await asyncio.gather(
                *(
                    self._owned.apply(queued_job(each, minicluster))
                    for each in rendered
                    if each["kind"] == "Job"
                )
            )
        except NameConflict as error:
            problems.add_conflict(minicluster, error)
            return conflict_retry_s(error)
        except (Invalid, Forbidden) as error:
            problems.refuse(minicluster, str(error))
            return None
        problems.remove_conflict(minicluster)
        problems.accept(minicluster)
        log.info(
            "minicluster.created", minicluster=f"{meta.namespace}/{meta.name}", uid=meta.uid, size=spec.size
        )
        return None

    async def apply_edits(self, minicluster: MiniCluster, job: Job) -> float | None:
        """Apply what was edited since the Job was created, as far as possible;
        return the seconds after which to try again.
        """
        if job.finished or self._problems.invalid(minicluster):
            return None
        if job.metadata.annotation(names.SPEC_DIGEST_ANNOTATION) != digest_of(minicluster.spec):
            await self._replace_job(minicluster, job)
            return None
        self._problems.accept(minicluster)
        workload = self._ledger.by_uid(job.metadata.uid)
        patch = job_patch(job, minicluster, limited=workload is not None and is_over_time_limit(workload))
        if patch is None:
            return None
        guard = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **guard}}
        try:
            await self._api.patch(
                JOBS, job.metadata.name, body, namespace=job.metadata.namespace, patch_type=PatchType.MERGE
            )
        except Conflict:
            return _EDIT_RETRY_S
        except Invalid as error:
            self._problems.refuse(minicluster, f"the edit could not be applied to its Job: {error}")
        return None

    async def delete_job(self, job: Job) -> None:
        """Delete a Job, unless it is being deleted."""
        if job.metadata.deletion_timestamp is None:
            await self._owned.delete(JOBS, job.metadata)

    async def delete(self, minicluster: MiniCluster) -> None:
        """Delete a MiniCluster that has ended and asks for it (``spec.cleanup``)."""
        await self._owned.delete(MINICLUSTERS, minicluster.metadata)

    async def _replace_job(self, minicluster: MiniCluster, job: Job) -> None:
        """Delete a Job that has no pods, so that it is created again; refuse the edit if it has pods."""
        workload = self._ledger.by_uid(job.metadata.uid)
        waits = workload is None or workload.state is State.PENDING
        pods = self._caches.pods_of_job(job.metadata.uid)
        if not waits or not job.spec.suspend or any(job_served_by(pod) is None for pod in pods):
            reason = (
                "its spec was edited after its pods were created from it: "
                "delete the MiniCluster and apply it again"
            )
            self._problems.refuse(minicluster, reason)
            return
        log.info(
            "minicluster.job_replaced",
            uid=minicluster.metadata.uid,
            reason="its spec was edited while it waits",
        )
        await self.delete_job(job)

    def _rendered(self, minicluster: MiniCluster) -> list[Json]:
        meta, spec = minicluster.metadata, minicluster.spec
        certificate = (
            curve.read(spec.flux.curve_cert)
            if spec.flux.curve_cert
            else curve.make(meta.name, self._ledger.wall())
        )
        token = secrets.token_urlsafe(32) if spec.serves_rest and not spec.restful.token_secret else None
        return objects(
            minicluster,
            certificate=certificate,
            image=self._settings.image,
            rest_token=token,
            cluster_domain=self._settings.cluster_domain,
        )


def conflict_retry_s(conflict: NameConflict) -> float:
    """Return the seconds after which to check whether the object of another owner still exists."""
    return _ORPHAN_RETRY_S if conflict.orphaned else CONFLICT_RETRY_S


def job_patch(job: Job, minicluster: MiniCluster, *, limited: bool = False) -> Json | None:
    """Return a merge patch of the fields that may change while the Job exists; None if they are equal to the
    spec.

    A Job that is ended at its time limit (``limited``) keeps the deadline that ends it.
    """
    spec, meta = minicluster.spec, job.metadata
    patch: Json = {}
    changed: Json = {}
    if job.spec.completions != spec.size or job.spec.parallelism != spec.size:
        changed |= {"completions": spec.size, "parallelism": spec.size}
    if job.spec.active_deadline_seconds != deadline_of(spec) and not limited:
        changed["activeDeadlineSeconds"] = deadline_of(spec)
    if changed:
        patch["spec"] = changed
    wanted = {
        names.PRIORITY_ANNOTATION: str(spec.priority) if spec.priority is not None else None,
        names.DURATION_ANNOTATION: spec.duration or None,
        **{key: minicluster.metadata.annotation(key) for key in PASSED_ON_ANNOTATIONS},
    }
    annotations = {key: value for key, value in wanted.items() if meta.annotation(key) != value}
    labels = (
        {names.QUEUE_LABEL: spec.queue or None} if (meta.label(names.QUEUE_LABEL) or "") != spec.queue else {}
    )
    if annotations or labels:
        patch["metadata"] = {
            **({"annotations": annotations} if annotations else {}),
            **({"labels": labels} if labels else {}),
        }
    return patch or None
