"""What a Job says in the words of Kubernetes' own Workload API: in one domain of which node label all its
pods must run.

A Job says it itself (``spec.scheduling``, Kubernetes 1.37), or its template names a PodGroup that does
(``spec.schedulingGroup``). The scheduler of the cluster then places its pods in one domain only, and refuses
pins to several (KEP-5732). Its pods start together anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.api.jobs import Job
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Readable
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS, domain_of

__all__ = ["NativeScheduling", "native_scheduling"]


@dataclass(frozen=True, slots=True)
class NativeScheduling:
    """What is known of a Job's own scheduling.

    Attributes
    ----------
    domain
        Label of nodes that must have one value on all nodes of its pods; empty: any nodes.
    problem
        Why that cannot be matched; empty if it can.
    """

    domain: str = ""
    problem: str = ""


_NONE = NativeScheduling()


def native_scheduling(job: Job, caches: Caches) -> NativeScheduling:
    """Return what a Job, or the PodGroup that its template names, says."""
    own, named = job.spec.scheduling, job.pod_group
    try:
        if own is not None and own.scheduling_constraints is not None:
            return NativeScheduling(
                domain_of(own.scheduling_constraints, "spec.scheduling.schedulingConstraints")
            )
        if not named:
            return _NONE
        found = caches.gang_objects.find(NATIVE_POD_GROUPS, job.metadata.namespace, named)
        where = f"PodGroup {job.metadata.namespace}/{named}"
        if found.obj is not None:
            return NativeScheduling(
                domain_of(found.obj.spec.scheduling_constraints, f"{where}: spec.schedulingConstraints")
            )
    except InvalidGang as error:
        return NativeScheduling(problem=str(error))
    if found.readable is not Readable.YES:
        return _NONE  # it is not known what it says, and the Job starts as one anyway
    return NativeScheduling(
        problem=(
            f"spec.template.spec.schedulingGroup: {where} does not exist: create it and the work can start"
        )
    )
