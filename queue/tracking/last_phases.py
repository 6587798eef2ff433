"""The phases in which objects were last seen before they were deleted, in memory.

A deleted pod or Job has no status any more, but how its workload ends depends on it. A new leader knows
nothing of what was deleted before it led.
"""

from __future__ import annotations

from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.groups import group_of
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["LastPhases"]


class LastPhases:
    """Phases of deleted pods, and deleted Jobs, by uid."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pods: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}

    def note_job(self, job: Job) -> None:
        """Store a deleted Job."""
        if self._ledger.by_uid(job.metadata.uid) is not None:
            self._jobs[job.metadata.uid] = job

    def note_pod(self, pod: Pod) -> bool:
        """Store the phase of a deleted pod that is a workload or part of a group; False if it is neither."""
        if self._ledger.by_uid(pod.metadata.uid) is None and group_of(pod) is None:
            return False
        self._pods[pod.metadata.uid] = pod.status.phase
        return True

    def of_job(self, uid: str) -> Job | None:
        """Return a deleted Job as it was last seen; None if it is unknown."""
        return self._jobs.get(uid)

    def of_pod(self, uid: str) -> str:
        """Return the last phase of a deleted pod; empty if it is unknown."""
        return self._pods.get(uid, "")

    def take_pod(self, uid: str, default: str) -> str:
        """Return the last phase of a deleted pod and forget it."""
        return self._pods.pop(uid, default)

    def forget(self, uid: str) -> None:
        """Forget the phase of an object whose workload ended."""
        self._pods.pop(uid, None)
        self._jobs.pop(uid, None)

    def prune(self) -> None:
        """Forget the objects that have neither a workload nor a slot of a group any more."""
        groups = (
            allocation
            for workload, allocation in self._ledger.live()
            if workload.release_mode is ReleaseMode.GROUP
        )
        in_slots = {slot.pod_uid for allocation in groups for slot in allocation.slots}
        self._pods = {
            uid: phase
            for uid, phase in self._pods.items()
            if uid in in_slots or self._ledger.by_uid(uid) is not None
        }
        self._jobs = {uid: job for uid, job in self._jobs.items() if self._ledger.by_uid(uid) is not None}
