"""How many pods of a Job may be deleted before the Job has failed.

The Job controller counts a deleted pod as a failure of its Job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod

__all__ = ["DeletionBudget", "failures_left"]

_BACKOFF_LIMIT = 6
"""Kubernetes' default."""


def failures_left(job: Job) -> int:
    """Return how many more pods may fail before the Job has failed;
    0 if the failures of each index are counted.
    """
    spec = job.spec
    if spec.backoff_limit_per_index is not None:
        return 0
    return max((_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit) - job.status.failed, 0)


class DeletionBudget:
    """How many pods of each Job may be deleted before the Job has failed; pods that are being deleted count.

    It is for decisions that are made together: the pods of a Job are read once.

    Parameters
    ----------
    job_of
        Returns the Job of a uid; None if it is gone.
    pods_of
        Returns the pods of a Job, by its uid.
    """

    def __init__(self, job_of: Callable[[str], Job | None], pods_of: Callable[[str], Iterable[Pod]]) -> None:
        self._job_of = job_of
        self._pods_of = pods_of
        self._going: dict[str, int] = {}
        self._spent: dict[str, int] = {}

    def left(self, job: Job) -> int:
        """Return how many more pods of a Job may be deleted."""
        uid = job.metadata.uid
        if uid not in self._going:
            self._going[uid] = sum(
                1 for pod in self._pods_of(uid) if pod.metadata.deletion_timestamp and not pod.terminal
            )
        return failures_left(job) - self._going[uid] - self._spent.get(uid, 0)

    def spend(self, job_uid: str, pods: int) -> None:
        """Count pods that are about to be deleted."""
        self._spent[job_uid] = self._spent.get(job_uid, 0) + pods

    def take(self, pod: Pod) -> bool:
        """True if a pod may be deleted without failing the Job that controls it, if one does;
        the pod is counted then.
        """
        owner = pod.metadata.controller
        job = self._job_of(owner.uid) if owner is not None else None
        if job is None:
            return True
        if self.left(job) < 1:
            return False
        self.spend(job.metadata.uid, 1)
        return True
