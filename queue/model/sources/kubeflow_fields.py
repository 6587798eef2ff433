"""The fields that the jobs of Kubeflow have in common:
replicas by type, and the policy about how many start together.
"""

from __future__ import annotations

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import PodTemplateSpec

__all__ = ["ElasticPolicy", "ReplicaSpec", "RunPolicy", "SchedulingPolicy", "is_active"]


class ReplicaSpec(PartialObject, frozen=True):
    """Pods of one type, for example the workers."""

    replicas: int | None = None
    restart_policy: str | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class SchedulingPolicy(PartialObject, frozen=True):
    """How many pods start together, if not all, and when a gang that has not come together is late."""

    min_available: int | None = None
    schedule_timeout_seconds: int | None = None


class RunPolicy(PartialObject, frozen=True):
    """Whether the job runs at present, how it is scheduled, and after how many failures it fails."""

    suspend: bool | None = None
    backoff_limit: int | None = None
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()


class ElasticPolicy(PartialObject, frozen=True):
    """The smallest number of workers of an elastic job."""

    min_replicas: int | None = None


def is_active(meta: ObjectMeta, policy: RunPolicy) -> bool:
    """True if pods of the job may still be created."""
    return not (policy.suspend or meta.deletion_timestamp)
