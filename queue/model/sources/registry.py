"""The sources of gangs, and which of them a pod, a Job or a workload belongs to.

The order decides if a pod shows several. What controls a pod knows its roles and its minimum better than a
PodGroup that was made of it for another scheduler, or an AppWrapper around it.
"""

from __future__ import annotations

from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import OwnerReference
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.pods import controlling_job
from fluxqueue.queue.model.sources.appwrappers import APP_WRAPPERS
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS
from fluxqueue.queue.model.sources.gang_sources import GangSource, api_group
from fluxqueue.queue.model.sources.kubeflow import KUBEFLOW_JOBS
from fluxqueue.queue.model.sources.kueue import KUEUE_POD_GROUPS
from fluxqueue.queue.model.sources.leaderworkersets import LEADER_WORKER_SETS
from fluxqueue.queue.model.sources.mpijobs import MPI_JOBS
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS, NATIVE_WORKLOADS
from fluxqueue.queue.model.sources.rayclusters import RAY_CLUSTERS
from fluxqueue.queue.model.sources.scheduler_plugins import SCHEDULER_PLUGINS
from fluxqueue.queue.model.sources.spark import SPARK_APPLICATIONS
from fluxqueue.queue.model.sources.volcano import VOLCANO

__all__ = ["SOURCES", "recreates_pods", "source_named", "source_of_job", "source_of_object", "source_of_pod"]

SOURCES: tuple[GangSource, ...] = (
    MPI_JOBS,
    *KUBEFLOW_JOBS,
    RAY_CLUSTERS,
    SPARK_APPLICATIONS,
    LEADER_WORKER_SETS,
    NATIVE_POD_GROUPS,
    COMPOSITE_POD_GROUPS,
    NATIVE_WORKLOADS,
    SCHEDULER_PLUGINS,
    VOLCANO,
    KUEUE_POD_GROUPS,
    APP_WRAPPERS,
)

_RESUMING = tuple(source for source in SOURCES if source.resumes_jobs)
_BY_NAME = {source.name: source for source in SOURCES}
_BY_OBJECT = {(api_group(source.api_version), source.kind): source for source in SOURCES}
_MARKS = frozenset(mark for source in SOURCES for mark in source.marks)
_CONTROLLERS = frozenset(controller for source in SOURCES for controller in source.controllers)


def recreates_pods(owner: OwnerReference) -> bool:
    """True for the controller of a gang's pods that creates those again which are deleted."""
    return (api_group(owner.api_version), owner.kind) in _CONTROLLERS


def source_named(name: str) -> GangSource:
    """Return the source of a name; raises KeyError for another."""
    return _BY_NAME[name]


def source_of_object(api_version: str, kind: str) -> GangSource | None:
    """Return the source whose workloads have this kind, in any version, or None."""
    return _BY_OBJECT.get((api_group(api_version), kind))


def source_of_pod(pod: Pod, job: Job | None = None) -> tuple[GangSource, str] | None:
    """Return the source of a pod and the name of its gang; None if no source knows the pod.

    The pods of a Job are the Job's, whatever group they name, unless the controller of that Job resumes it.

    Parameters
    ----------
    pod
        As it is now.
    job
        The Job that controls it, if that is known.
    """
    meta = pod.metadata
    owner = meta.controller
    controlled = owner is not None and (api_group(owner.api_version), owner.kind) in _CONTROLLERS
    native = pod.spec.scheduling_group is not None or pod.spec.workload_ref is not None
    if (
        not (controlled or native)
        and _MARKS.isdisjoint(meta.labels or ())
        and _MARKS.isdisjoint(meta.annotations or ())
    ):
        return None
    for source in SOURCES if controlling_job(pod) is None else _RESUMING:
        if (name := source.group_of(pod, job)) is not None:
            return source, name
    return None


def source_of_job(job: Job) -> tuple[GangSource, str] | None:
    """Return the source of a Job that its own controller resumes, and the name of its gang, or None."""
    if job.metadata.controller is None:
        return None
    for source in _RESUMING:
        if (name := source.job_of(job)) is not None:
            return source, name
    return None
