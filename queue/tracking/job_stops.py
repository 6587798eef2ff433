"""When a released Job is evicted because it runs no pods for now:
it is suspended, or its parallelism is 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.tracking.job_plan import JobPhase, job_phase

__all__ = ["eviction_at_zero", "eviction_of_suspended", "wants_no_pods"]


def eviction_of_suspended(workload: Workload, job: Job, allocation: Allocation | None) -> Eviction | None:
    """Return the eviction of a released Job that its user suspended; None if it is evicted already, or was
    read before its release.

    A Job has no allocation any more if all its slots have ended, for example because its pods are matched
    alone since a drain.
    """
    if workload.evicting:
        return None
    label = job.metadata.label(names.JOBID_LABEL)  # the release writes it
    released = label is not None if allocation is None else label == str(allocation.jobid)
    if not released and workload.state is not State.DRAINING:
        return None
    message = (
        f"Job {workload.namespace}/{workload.name} was suspended by its user: "
        "set spec.suspend to false and it can start"
    )
    return Eviction(workload=workload.id, reason=Reason.USER_SUSPENDED, message=message)


def wants_no_pods(workload: Workload, job: Job, pods: Iterable[Pod]) -> bool:
    """True if a released Job without slots is scaled to zero: it waits until its parallelism is raised."""
    active = workload.state is not State.DRAINING and job_phase(job) is JobPhase.ACTIVE
    return active and job.spec.pods_at_once == 0 and all(pod.terminal for pod in pods)


def eviction_at_zero(workload: Workload) -> Eviction:
    """Return the eviction of a Job that is scaled to zero."""
    message = (
        f"Job {workload.namespace}/{workload.name} has spec.parallelism 0: raise it and the Job can start"
    )
    return Eviction(workload=workload.id, reason=Reason.USER_SUSPENDED, message=message)
