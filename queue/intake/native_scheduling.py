"""What a Job says in the words of Kubernetes' own Workload API: in one domain of which node label all its
pods must run, and which claims of devices they share.

A Job says it itself (``spec.scheduling``, Kubernetes 1.37), or its template names a PodGroup that does
(``spec.schedulingGroup``). The scheduler of the cluster then places its pods in one domain only, and refuses
pins to several (KEP-5732). Its pods start together anyway; with how few of them it may start is read with
its size (`fluxqueue.api.moldable`).

Of a Job that says it itself the Job controller makes a PodGroup, before the Job starts for the first time.
That keeps its claims, and their devices, as long as the Job exists.
"""

from __future__ import annotations

from fluxqueue.api.job_scheduling import JobScheduling, scheduling_problem
from fluxqueue.api.jobs import Job
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Readable
from fluxqueue.queue.intake.submission import NO_NATIVE_SCHEDULING, NativeScheduling
from fluxqueue.queue.model.jobs import pods_wanted
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.native_groups import (
    NATIVE_POD_GROUPS,
    claims_of_group,
    domain_of,
    domain_of_group,
)

__all__ = ["native_scheduling"]


_CLAIMS = "spec.scheduling.resourceClaims are those of a PodGroup"
_UNREADABLE = {
    Readable.NOT_YET: f"{_CLAIMS}, and the queue has not read all podgroups.scheduling.k8s.io yet",
    Readable.NOT_SERVED: f"{_CLAIMS}, but the cluster has no podgroups.scheduling.k8s.io: leave them out",
    Readable.FORBIDDEN: (
        f"{_CLAIMS}, and the queue may not read podgroups.scheduling.k8s.io: "
        "add it to gangs.resources of the chart"
    ),
}
"""Without the PodGroup it is not known which devices a Job that ran before still has."""


def native_scheduling(job: Job, caches: Caches) -> NativeScheduling:
    """Return what a Job, or the PodGroup that its template names, says."""
    own, named = job.spec.scheduling, job.pod_group
    try:
        if problem := scheduling_problem(own, named, job.spec.parallelism, pods_wanted(job)):
            return NativeScheduling(problem=problem)
        if own is not None:
            return _stated(job, own, caches)
        if not named:
            return NO_NATIVE_SCHEDULING
        found = caches.gang_objects.find(NATIVE_POD_GROUPS, job.metadata.namespace, named)
        where = f"PodGroup {job.metadata.namespace}/{named}"
        if found.obj is not None:
            return NativeScheduling(domain_of_group(found.obj))
    except InvalidGang as error:
        return NativeScheduling(problem=f"PodGroup {named}: {error}" if named else str(error))
    if found.readable is not Readable.YES:
        return NO_NATIVE_SCHEDULING  # it is not known what it says, and the Job starts as one anyway
    return NativeScheduling(
        problem=(
            f"spec.template.spec.schedulingGroup: {where} does not exist: create it and the work can start"
        )
    )


def _stated(job: Job, own: JobScheduling, caches: Caches) -> NativeScheduling:
    """Return what the Job itself says.

    Raises
    ------
    InvalidGang
        It names several domains.
    """
    domain = domain_of(own.scheduling_constraints, "spec.scheduling.schedulingConstraints")
    if not own.resource_claims:
        return NativeScheduling(domain)
    readable = caches.gang_objects.find(NATIVE_POD_GROUPS, "", "").readable
    group = caches.pod_group_of_job(job.metadata.uid)
    claims = claims_of_group(group) if group is not None else dict.fromkeys(own.resource_claims, "")
    return NativeScheduling(domain, _UNREADABLE.get(readable, ""), claims)
