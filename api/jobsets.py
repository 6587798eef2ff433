"""JobSets (``jobset.x-k8s.io/v1alpha2``): the fields that say which Jobs a JobSet creates,
and in which order.
"""

from __future__ import annotations

from fluxqueue.api.jobs import JobSpec
from fluxqueue.api.metadata import ObjectCondition, ObjectMeta, PartialObject

__all__ = ["JobSet", "JobSetSpec", "ReplicatedJob"]

_OVER = frozenset({"Completed", "Failed"})


class JobTemplate(PartialObject, frozen=True):
    """The template of the Jobs of a replicated job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class Dependency(PartialObject, frozen=True):
    """A replicated job that must be ready or complete before another one starts."""

    name: str = ""
    status: str = ""


class ReplicatedJob(PartialObject, frozen=True):
    """A number of Jobs with one template."""

    name: str = ""
    replicas: int = 1
    template: JobTemplate = JobTemplate()
    depends_on: list[Dependency] | None = None


class StartupPolicy(PartialObject, frozen=True):
    """``AnyOrder``, or ``InOrder``: each replicated job starts when the one before it is ready."""

    startup_policy_order: str = ""


class JobSetSpec(PartialObject, frozen=True):
    """The replicated jobs of a JobSet, and the order of their start."""

    replicated_jobs: list[ReplicatedJob] | None = None
    startup_policy: StartupPolicy = StartupPolicy()
    suspend: bool | None = None


class JobSetStatus(PartialObject, frozen=True):
    """The conditions of a JobSet."""

    conditions: list[ObjectCondition] | None = None


class JobSet(PartialObject, frozen=True):
    """A JobSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()

    @property
    def sequential(self) -> bool:
        """True if some of its Jobs are created or resumed only when others are ready or complete."""
        return self.spec.startup_policy.startup_policy_order == "InOrder" or any(
            each.depends_on for each in self.spec.replicated_jobs or ()
        )

    @property
    def active(self) -> bool:
        """True if its Jobs may still start: the JobSet is not finished,
        not suspended and not being deleted.
        """
        over = any(
            condition.type in _OVER and condition.status == "True"
            for condition in self.status.conditions or ()
        )
        return not (over or self.spec.suspend or self.metadata.deletion_timestamp)
