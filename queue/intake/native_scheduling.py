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

from dataclasses import replace

from fluxqueue.api.jobs import Job
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Readable
from fluxqueue.queue.intake.stated_scheduling import stated_scheduling
from fluxqueue.queue.intake.submission import NO_NATIVE_SCHEDULING, NativeScheduling
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.native_groups import (
    NATIVE_POD_GROUPS,
    claims_of_group,
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
    if job.spec.scheduling is not None:
        return _with_its_group(stated_scheduling(job), job, caches)
    if not (named := job.pod_group):
        return NO_NATIVE_SCHEDULING
    found = caches.gang_objects.find(NATIVE_POD_GROUPS, job.metadata.namespace, named)
    where = f"PodGroup {job.metadata.namespace}/{named}"
    try:
        if found.obj is not None:
            return NativeScheduling(domain_of_group(found.obj))
    except InvalidGang as error:
        return NativeScheduling(problem=f"{where}: {error}")
    if found.readable is not Readable.YES:
        return NO_NATIVE_SCHEDULING  # it is not known what it says, and the Job starts as one anyway
    return NativeScheduling(
        problem=(
            f"spec.template.spec.schedulingGroup: {where} does not exist: create it and the work can start"
        )
    )


def _with_its_group(stated: NativeScheduling, job: Job, caches: Caches) -> NativeScheduling:
    """Return what a Job says, with what the PodGroup that was made of it knows of its claims."""
    if not stated.claims:
        return stated
    readable = caches.gang_objects.find(NATIVE_POD_GROUPS, "", "").readable
    group = caches.pod_group_of_job(job)
    return replace(
        stated,
        problem=stated.problem or _UNREADABLE.get(readable, ""),
        claims=claims_of_group(group) if group is not None else stated.claims,
    )
