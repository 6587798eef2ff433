"""The objects that receive the Events about a workload or a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from fluxqueue.kube.events import Subject
from fluxqueue.kube.kinds import JOBS, PODS
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Subjects", "object_subjects", "subjects_of", "workload_subjects"]

_MEMBERS = 8
"""Of a pod group: an Event on each pod of a large group would cost more than the group itself."""
_FAILED_MEMBERS = 3

K = TypeVar("K")
Subjects = Callable[[K], Iterable[Subject]]
"""Return the objects that a key names."""


def subjects_of(workload: Workload, caches: Caches, allocation: Allocation | None = None) -> list[Subject]:
    """Return the workload's own object, or the first pods of a group."""
    if workload.release_mode is not ReleaseMode.GROUP:
        return [Subject(workload.api_version, workload.kind, workload.namespace, workload.name, workload.uid)]
    members = sorted(caches.members_of(workload, allocation), key=lambda pod: pod.metadata.name)
    return [Subject.of(PODS, pod) for pod in members[:_MEMBERS]]


def workload_subjects(caches: Caches, ledger: Ledger) -> Subjects[WorkloadId]:
    """Make a function that finds the objects of a workload by its id."""

    def find(workload_id: WorkloadId) -> list[Subject]:
        workload = ledger.get(workload_id)
        return subjects_of(workload, caches, ledger.allocation(workload_id)) if workload is not None else []

    return find


def object_subjects(caches: Caches) -> Subjects[str | GroupKey]:
    """Make a function that finds the Job or Pod of a uid, or the first pods of a group."""

    def find(key: str | GroupKey) -> list[Subject]:
        if isinstance(key, GroupKey):
            return [Subject.of(PODS, pod) for pod in caches.pods_of_group(key)[:_FAILED_MEMBERS]]
        if (job := caches.jobs.get_by_uid(key)) is not None:
            return [Subject.of(JOBS, job)]
        pod = caches.pods.get_by_uid(key)
        return [Subject.of(PODS, pod)] if pod is not None else []

    return find
