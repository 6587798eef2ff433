"""``batch/v1`` Jobs: the fields that the queue reads (see `fluxqueue.api.metadata`)."""

from __future__ import annotations

from typing import ClassVar

from fluxqueue.api.job_scheduling import JobScheduling
from fluxqueue.api.metadata import ObjectCondition, ObjectMeta, PartialObject
from fluxqueue.api.pods import PodTemplateSpec

__all__ = [
    "Job",
    "JobSpec",
    "JobStatus",
]


class JobSpec(PartialObject, frozen=True):
    """The spec of a Job."""

    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    active_deadline_seconds: int | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: int | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    scheduling: JobScheduling | None = None

    @property
    def indexed(self) -> bool:
        """True if the pods have completion indexes."""
        return self.completion_mode == "Indexed"

    @property
    def pods_at_once(self) -> int:
        """How many pods run at the same time: min(parallelism, completions),
        or parallelism if completions is unset.
        """
        parallelism = 1 if self.parallelism is None else self.parallelism
        return parallelism if self.completions is None else min(parallelism, self.completions)


class JobStatus(PartialObject, frozen=True):
    """The status of a Job."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: list[ObjectCondition] | None = None

    def has_condition(self, kind: str) -> bool:
        """True if the condition of this type is True."""
        return any(c.type == kind and c.status == "True" for c in self.conditions or ())


class Job(PartialObject, frozen=True):
    """A batch/v1 Job."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata", "spec.template.metadata")
    compact_specs: ClassVar[tuple[str, ...]] = ("spec.template.spec",)
    longest_affinity: ClassVar[int] = 0
    shared_parts: ClassVar[tuple[str, ...]] = (
        "metadata.annotations",
        "spec.template.metadata.annotations",
        "spec.template.spec.containers",
        "spec.template.spec.node_selector",
        "spec.template.spec.scheduling_gates",
        "spec.template.spec.tolerations",
        "spec.template.spec.volumes",
        "status.conditions",
    )
    shared_texts: ClassVar[tuple[str, ...]] = ("metadata", "spec", "spec.template.spec")
    shared_labels: ClassVar[tuple[str, ...]] = ("spec.template.metadata.labels", "metadata.labels")

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def finished(self) -> bool:
        """True if the Job is Complete or Failed."""
        return self.status.has_condition("Complete") or self.status.has_condition("Failed")

    @property
    def starts_no_pods(self) -> bool:
        """True if the Job is finished, or about to be: its controller has decided how it ends and waits for
        pods that terminate.
        """
        return (
            self.finished
            or self.status.has_condition("FailureTarget")
            or self.status.has_condition("SuccessCriteriaMet")
        )

    @property
    def pod_group(self) -> str:
        """Name of the PodGroup of Kubernetes that its template names; empty if it names none."""
        group = self.spec.template.spec.scheduling_group
        return (group.pod_group_name or "") if group is not None else ""
