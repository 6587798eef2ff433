"""Follows how far the Job controller is, and waits for the first status of a new Job where the API server
resumes none without it.

The controller writes that a suspended Job is suspended some milliseconds after its creation, and in a quiet
cluster that is when the release is due. The release tests the generation and not the resourceVersion, so
neither refuses the other: a Job that is released first is found resumed, and its controller never writes that
it was suspended. That saves the API server a status and two Events.

How many Jobs the controller has not looked at yet says how late the pods of a released Job will be created,
and so how long they are to be pinned.

Kubernetes 1.36.0 and 1.36.1 accept no template of a Job without that status. There every new Job is waited
for, once one was refused. To wait for the watch costs nothing; a refused patch costs the API server as much
as an accepted one, and a read.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.kube.object_cache import Change

__all__ = ["NewJobs"]

YOUNG_S: Final = 2.0
"""A Job that waited longer has its first status, or its controller is not there: nothing is waited for."""
_PATIENCE_S: Final = 0.25
_SUSPENDED: Final = "Suspended"


class NewJobs:
    """Jobs that the Job controller has not looked at yet."""

    def __init__(self) -> None:
        self._awaited: dict[str, asyncio.Event] = {}
        self._unseen: set[str] = set()
        """The uids of the Jobs that the controller has not looked at."""
        self._required = False

    @property
    def waiting(self) -> int:
        """How many Jobs the controller has not looked at."""
        return len(self._unseen)

    def require_status(self) -> None:
        """Record that the API server resumes no Job without a status."""
        self._required = True

    async def first_status_if_required(self, job: Job) -> None:
        """Do as `first_status` if the API server resumes no Job without a status."""
        if self._required:
            await self.first_status(job)

    async def first_status(self, job: Job) -> None:
        """Return once a suspended Job shows that it is, or after a quarter of a second."""
        if _looked_at(job):
            return
        uid = job.metadata.uid
        seen = self._awaited.setdefault(uid, asyncio.Event())
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await seen.wait()
        except TimeoutError:
            pass
        finally:
            self._awaited.pop(uid, None)

    def job_changed(self, change: Change[Job]) -> None:
        """Note whether the Job controller has looked at a Job."""
        uid = change.obj.metadata.uid
        if change.new is None or _has_status(change.new):
            self._unseen.discard(uid)
        elif change.old is None and _is_of_the_controller(change.new):
            self._unseen.add(uid)
        if (seen := self._awaited.get(uid)) is not None and (change.new is None or _looked_at(change.new)):
            seen.set()


def _is_of_the_controller(job: Job) -> bool:
    return job.spec.managed_by in (None, "", names.JOB_CONTROLLER)


def _has_status(job: Job) -> bool:
    return bool(job.status.conditions) or job.status.start_time is not None


def _looked_at(job: Job) -> bool:
    """Return True if a Job shows what it waits for: that it is suspended, or that it was resumed."""
    return not job.spec.suspend or job.status.has_condition(_SUSPENDED)
