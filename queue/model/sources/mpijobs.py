"""MPIJob of the MPI Operator (``kubeflow.org/v2beta1``): the launcher and its workers are one gang.

Workers are pods that the MPIJob controls. The launcher is the pod of a Job, which the MPI Operator resumes
itself, so that it comes gated. With ``launcherCreationPolicy: WaitForWorkersReady`` the launcher is created
when all workers run, and a slot is kept for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.sources.gang_sources import (
    Gang,
    GangSource,
    Resource,
    Role,
    SizedObject,
    controller_name,
    limited,
    named,
    whole_number,
)
from fluxqueue.queue.model.sources.kubeflow_fields import ReplicaSpec, RunPolicy, is_active

__all__ = ["MPI_JOBS"]

_GROUP, _KIND = "kubeflow.org", "MPIJob"
_OPERATOR, _OPERATOR_NAME = "training.kubeflow.org/operator-name", "mpi-operator"
_JOB_NAME = "training.kubeflow.org/job-name"
_ROLE = "training.kubeflow.org/job-role"
_LAUNCHER, _WORKER = "launcher", "worker"


class _Replicas(PartialObject, frozen=True, rename=None):
    Launcher: ReplicaSpec | None = None
    Worker: ReplicaSpec | None = None


class _Spec(PartialObject, frozen=True):
    mpi_replica_specs: _Replicas = _Replicas()
    run_policy: RunPolicy = RunPolicy()
    launcher_creation_policy: str = ""


class _MPIJob(SizedObject, frozen=True):
    spec: _Spec = _Spec()


def _job_of(job: Job) -> str | None:
    return controller_name(job.metadata, _GROUP, frozenset({_KIND}))


def _group_of(pod: Pod, job: Job | None) -> str | None:
    meta = pod.metadata
    if (name := controller_name(meta, _GROUP, frozenset({_KIND}))) is not None:
        return name
    owner = meta.controller
    if owner is None or owner.kind != "Job" or meta.label(_OPERATOR) != _OPERATOR_NAME:
        return None
    name = named(meta.label(_JOB_NAME))
    return name if job is None or _job_of(job) == name else None


def _role_of(pod: Pod) -> str:
    return pod.metadata.label(_ROLE) or _WORKER


def _read(_pods: Sequence[Pod], mpijob: _MPIJob) -> Gang:
    spec = mpijob.spec
    launcher, worker = spec.mpi_replica_specs.Launcher, spec.mpi_replica_specs.Worker
    roles: list[Role] = []
    if launcher is not None:
        roles.append(
            Role(
                _LAUNCHER,
                1,
                launcher.template if spec.launcher_creation_policy == "WaitForWorkersReady" else None,
            )
        )
    if worker is not None:
        replicas = whole_number(worker.replicas, "spec.mpiReplicaSpecs.Worker.replicas", least=0, default=0)
        roles += [Role(_WORKER, replicas)] if replicas else []
    policy = spec.run_policy.scheduling_policy
    late_s = policy.schedule_timeout_seconds
    return Gang(
        limited(roles, policy.min_available, "spec.runPolicy.schedulingPolicy.minAvailable"),
        late_after_s=float(late_s) if late_s and late_s > 0 else None,
        active=is_active(mpijob.metadata, spec.run_policy),
    )


MPI_JOBS = GangSource(
    name="mpijob",
    api_version="kubeflow.org/v2beta1",
    kind=_KIND,
    group_of=_group_of,
    read=_read,
    marks=frozenset({_OPERATOR}),
    controllers=frozenset({(_GROUP, _KIND)}),
    role_of=_role_of,
    resource=Resource(_GROUP, "mpijobs", _KIND, ("v2beta1",), _MPIJob),
    job_of=_job_of,
)
