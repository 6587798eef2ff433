"""Jobs of Kubeflow's Training Operator (``kubeflow.org/v1``): all replicas of all types are one gang.

PyTorchJob, TFJob, XGBoostJob, PaddleJob and JAXJob differ in the name of one field. An elastic job starts
with its smallest number of workers, and later workers are matched one by one. ``minAvailable`` of the
scheduling policy counts before that.

The operator (1.9) creates a worker again that ends, under its own name, and the other workers of an elastic
PyTorchJob go on: they meet at the first one, which therefore stays. It fails the job instead if the workers'
``restartPolicy`` is ``Never``, with ``ExitCode`` if the worker ended by itself with a code below 128, and
with a ``backoffLimit`` of 0. Then the job goes on only with all.

A TrainJob of Trainer v2 makes a JobSet, which is known without this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
    whole_number,
)
from fluxqueue.queue.model.sources.kubeflow_fields import ElasticPolicy, ReplicaSpec, RunPolicy, is_active

__all__ = ["KUBEFLOW_JOBS"]

_GROUP = "kubeflow.org"
_ROLE, _INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_WORKER = "worker"
_CREATES_AGAIN = (None, "OnFailure", "Always")
"""Restart policies with which a worker that ended is created again, whatever its exit code."""
_KINDS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}

_Replicas = dict[str, ReplicaSpec]


class _Spec(PartialObject, frozen=True):
    pytorch_replica_specs: _Replicas | None = None
    tf_replica_specs: _Replicas | None = None
    xgb_replica_specs: _Replicas | None = None
    paddle_replica_specs: _Replicas | None = None
    jax_replica_specs: _Replicas | None = None
    elastic_policy: ElasticPolicy | None = None
    run_policy: RunPolicy = RunPolicy()

    @property
    def replica_specs(self) -> _Replicas:
        """Those of the one kind that the job has."""
        kinds = (
            self.pytorch_replica_specs,
            self.tf_replica_specs,
            self.xgb_replica_specs,
            self.paddle_replica_specs,
            self.jax_replica_specs,
        )
        return next((each for each in kinds if each), {})


class _TrainingJob(SizedObject, frozen=True):
    spec: _Spec = _Spec()


def _role_of(pod: Pod) -> str:
    return (pod.metadata.label(_ROLE) or _WORKER).lower()


def _is_first_worker(pod: Pod) -> bool:
    return _role_of(pod) == _WORKER and pod.metadata.label(_INDEX) == "0"


def _leasts_of(job: _TrainingJob) -> Mapping[str, int]:
    """Return with how few workers an elastic PyTorchJob goes on: its ``minReplicas``."""
    spec = job.spec
    workers = [each for name, each in (spec.pytorch_replica_specs or {}).items() if name.lower() == _WORKER]
    comes_again = spec.run_policy.backoff_limit != 0 and all(
        each.restart_policy in _CREATES_AGAIN for each in workers
    )
    if spec.elastic_policy is None or not workers or not comes_again:
        return {}
    return {_WORKER: max(spec.elastic_policy.min_replicas or 0, 0)}


def _reader(field: str) -> Callable[[Sequence[Pod], _TrainingJob], Gang]:
    def read(_pods: Sequence[Pod], job: _TrainingJob) -> Gang:
        spec, roles = job.spec, list[Role]()
        for name, replica in sorted(
            spec.replica_specs.items(), key=lambda each: (each[0].lower() == _WORKER, each[0])
        ):
            pods = whole_number(replica.replicas, f"spec.{field}.{name:.63}.replicas", least=0, default=1)
            if name.lower() == _WORKER and spec.elastic_policy is not None:
                least = whole_number(
                    spec.elastic_policy.min_replicas, "spec.elasticPolicy.minReplicas", default=max(pods, 1)
                )
                pods = min(pods, least)
            if pods:
                roles.append(Role(name.lower(), pods))
        policy = spec.run_policy.scheduling_policy
        late_s = policy.schedule_timeout_seconds
        return Gang(
            limited(roles, policy.min_available, "spec.runPolicy.schedulingPolicy.minAvailable"),
            late_after_s=float(late_s) if late_s and late_s > 0 else None,
            active=is_active(job.metadata, spec.run_policy),
        )

    return read


def _grouper(kind: str) -> Callable[[Pod, Job | None], str | None]:
    kinds = frozenset({kind})
    return lambda pod, _job: controller_name(pod.metadata, _GROUP, kinds)


KUBEFLOW_JOBS: tuple[GangSource, ...] = tuple(
    GangSource(
        name=kind.lower(),
        api_version="kubeflow.org/v1",
        kind=kind,
        group_of=_grouper(kind),
        read=_reader(field),
        controllers=frozenset({(_GROUP, kind)}),
        role_of=_role_of,
        leasts_of=_leasts_of,
        stays=_is_first_worker,
        resource=Resource(_GROUP, f"{kind.lower()}s", kind, ("v1",), _TrainingJob),
    )
    for kind, field in _KINDS.items()
)
"""One source for each kind."""
