"""How long the Job controller waits before it replaces pods that failed, so that this wait is not taken for a
refusal.

The controller creates no pod of a Job for 10 s after a failure of one of its pods, twice as long after each
further one, and 10 min at most. How many failures it counts in a row is not in the Job. So all failures count
here, and the wait is never underestimated.

When a pod failed is noted in memory, from what the watch shows. A new leader counts the wait again from its
own start.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta

from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.pods import owning_job_uid

__all__ = ["JobBackoffs"]

_FIRST = timedelta(seconds=10)
_LONGEST = timedelta(minutes=10)
_MARGIN = timedelta(seconds=5)
"""For the creation of the pods when the wait is over."""
_MOST_JOBS = 10_000


class JobBackoffs:
    """The latest failure of a pod of each Job."""

    def __init__(self, caches: Caches, clock: Callable[[], datetime]) -> None:
        self._jobs = caches.jobs
        self._clock = clock
        self._failed_at: OrderedDict[str, datetime] = OrderedDict()

    def failed_at(self, job_uid: str) -> datetime | None:
        """Return when a pod of a Job failed last; None if none did."""
        return self._failed_at.get(job_uid)

    def until(self, job: Job) -> datetime | None:
        """Return until when the Job controller may create no pods of a Job; None if no pod of it failed."""
        at = self._failed_at.get(job.metadata.uid)
        return (
            at + min(_FIRST * 2 ** min(max(job.status.failed, 1) - 1, 10), _LONGEST) + _MARGIN
            if at is not None
            else None
        )

    def pod_changed(self, change: Change[Pod]) -> None:
        """Record when a pod of a Job failed."""
        uid = owning_job_uid(change.obj) if _has_failed(change) else None
        job = self._jobs.get_by_uid(uid) if uid is not None else None
        if uid is None or job is None or job.spec.suspend:
            return  # to suspend a Job deletes its pods, and that is no failure
        self._failed_at.pop(uid, None)
        self._failed_at[uid] = self._clock()
        while len(self._failed_at) > _MOST_JOBS:
            self._failed_at.popitem(last=False)


def _has_failed(change: Change[Pod]) -> bool:
    """True if a pod just failed. One that is deleted while it runs counts as a failure of its Job."""
    old, new = change.old, change.new
    if new is None:
        return old is not None and old.active
    return not new.active and new.status.phase != "Succeeded" and (old is None or old.active)
