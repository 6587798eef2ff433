"""What a Job itself says to the cluster's own scheduler (``spec.scheduling``, Kubernetes 1.37), as far as the
Job alone says it. A forecast of a Job that does not exist yet knows no more.
"""

from __future__ import annotations

from fluxqueue.api.job_scheduling import scheduling_problem
from fluxqueue.api.jobs import Job
from fluxqueue.queue.intake.submission import NO_NATIVE_SCHEDULING, NativeScheduling
from fluxqueue.queue.model.jobs import pods_wanted
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.native_groups import domain_of

__all__ = ["stated_scheduling"]


def stated_scheduling(job: Job) -> NativeScheduling:
    """Return what a Job says; nothing was made of its claims yet."""
    own = job.spec.scheduling
    if own is None:
        return NO_NATIVE_SCHEDULING
    problem = scheduling_problem(own, job.pod_group, job.spec.parallelism, pods_wanted(job))
    try:
        domain = domain_of(own.scheduling_constraints, "spec.scheduling.schedulingConstraints")
    except InvalidGang as error:
        return NativeScheduling(problem=problem or str(error))
    return NativeScheduling(domain, problem, dict.fromkeys(own.resource_claims or (), ""))
