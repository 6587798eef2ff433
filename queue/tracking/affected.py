"""Which workloads a change of an object affects."""

from __future__ import annotations

from collections.abc import Iterator

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.groups import GroupKey, group_of_job
from fluxqueue.queue.model.jobids import parse_jobid
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import ReleaseMode, Workload
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["affected_by_job", "affected_by_pod", "groups_in"]


def affected_by_job(job: Job, ledger: Ledger) -> Iterator[Workload]:
    """Yield the workload of a Job, and that of the group that it belongs to with all its pods."""
    if (workload := ledger.by_uid(job.metadata.uid)) is not None:
        yield workload
    if (key := group_of_job(job)) is not None and (group := ledger.group(key)) is not None:
        yield group


def affected_by_pod(pod: Pod, key: GroupKey | None, ledger: Ledger) -> Iterator[Workload]:
    """Yield the workload of a pod, of the Job or the allocation it is part of, and of its group, if any.

    A Job that is deleted may leave its pods without an owner. Such a pod still names its allocation.
    """
    uid, job_uid = pod.metadata.uid, owning_job_uid(pod)
    if (workload := ledger.by_uid(uid)) is not None:
        yield workload
    if job_uid is not None:
        if (of_job := ledger.by_uid(job_uid)) is not None:
            yield of_job
    elif (jobid := parse_jobid(pod.metadata.annotation(names.ALLOCATION_ANNOTATION))) is not None:
        holder = ledger.by_jobid(jobid)
        if holder is not None and holder.uid != uid:
            yield holder
    if key is not None and (group := ledger.group(key)) is not None:
        yield group


def groups_in(namespace: str, ledger: Ledger) -> Iterator[Workload]:
    """Yield the groups in a namespace that have an allocation."""
    for workload, _ in ledger.live():
        if workload.namespace == namespace and workload.release_mode is ReleaseMode.GROUP:
            yield workload
