"""Suspends Jobs that are evicted, and removes the allocation from stopped ones."""

from __future__ import annotations

from fluxqueue.api.jobs import Job
from fluxqueue.kube.errors import Conflict, Invalid, NotFound
from fluxqueue.kube.kinds import JOBS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.release.patches import clear_job, clear_start_time, suspend_job

__all__ = ["JobSuspender"]


class JobSuspender:
    """Patches Jobs. A patch fails if the Job changed or is gone since it was read; the watch shows that."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def suspend(self, job: Job) -> bool:
        """Suspend a Job; False if it changed."""
        return await self._patch(job, suspend_job(job))

    async def clear(self, job: Job) -> bool:
        """Remove the allocation from a stopped Job; False if the Job has to be read again first."""
        patch = clear_job(job)
        if patch is None:
            return True
        try:
            return await self._patch(job, patch)
        except Invalid:
            # Before Kubernetes 1.36 the template of a Job that has a startTime may not change.
            if job.status.start_time is None:
                raise
            await self._patch(job, clear_start_time(job), subresource="status")
            return False

    async def _patch(self, job: Job, patch: dict[str, object], subresource: str | None = None) -> bool:
        meta = job.metadata
        kind = PatchType.STRATEGIC if subresource is None else PatchType.MERGE
        try:
            await self._api.patch(
                JOBS, meta.name, patch, namespace=meta.namespace, patch_type=kind, subresource=subresource
            )
        except (Conflict, NotFound):
            return False
        return True
