"""The parts of Kubernetes objects that we read, as typed structs.

Decoding only these fields is an order of magnitude faster than decoding whole objects, and drops managed fields for nothing. The
structs are partial on purpose: they are never written back. What we change goes out as patches of just our own fields, so a field
that is newer than this file survives.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "Container",
    "ContainerState",
    "ContainerStatus",
    "Job",
    "JobSpec",
    "JobStatus",
    "Namespace",
    "Node",
    "NodeSpec",
    "NodeStatus",
    "ObjectCondition",
    "ObjectMeta",
    "OwnerReference",
    "Part",
    "Pod",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "PriorityClass",
    "Resources",
    "SchedulingGate",
    "Taint",
    "Terminated",
    "Toleration",
    "Waiting",
]


class Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What every partial struct shares: camelCase names, defaults for all that may be absent."""


class OwnerReference(Part, frozen=True):
    """Who an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Part, frozen=True):
    """Identity and labels; ``generation`` changes with the spec only."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None

    def label(self, key: str) -> str | None:
        """The label's value, or None."""
        return (self.labels or {}).get(key)

    def annotation(self, key: str) -> str | None:
        """The annotation's value, or None."""
        return (self.annotations or {}).get(key)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if there is one."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class Resources(Part, frozen=True):
    """Requests and limits as written: quantities are parsed where they are summed."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Container(Part, frozen=True):
    """A container, as far as its size goes; ``restart_policy: Always`` makes an init container a sidecar."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str | None = None


class SchedulingGate(Part, frozen=True):
    """A gate that keeps a pod from the scheduler."""

    name: str = ""


class Toleration(Part, frozen=True):
    """A taint that the pod puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodSpec(Part, frozen=True):
    """What placement needs to know of a pod; ``affinity`` and spread constraints stay decoded JSON."""

    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: Resources | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    topology_spread_constraints: list[dict[str, Any]] | None = None
    tolerations: list[Toleration] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    runtime_class_name: str | None = None
    hostname: str | None = None
    host_network: bool = False
    set_hostname_as_fqdn: bool = msgspec.field(default=False, name="setHostnameAsFQDN")
    active_deadline_seconds: int | None = None

    def gated_by(self, name: str) -> bool:
        """Whether the gate of this name is on the pod."""
        return any(gate.name == name for gate in self.scheduling_gates or ())


class PodTemplate(Part, frozen=True):
    """The template of a Job's pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class ObjectCondition(Part, frozen=True):
    """A condition of any object's status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Waiting(Part, frozen=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class Terminated(Part, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""


class ContainerState(Part, frozen=True):
    """What a container does; running, where it is neither of these."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True):
    """How a container does."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Part, frozen=True):
    """A pod's phase and times."""

    phase: str = ""
    conditions: list[ObjectCondition] | None = None
    start_time: str | None = None
    reason: str = ""
    message: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None

    def condition(self, kind: str) -> ObjectCondition | None:
        """The condition of this type, or None."""
        return next((c for c in self.conditions or () if c.type == kind), None)


class Pod(Part, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def terminal(self) -> bool:
        """Whether no container of it will run again."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def staying(self) -> bool:
        """Whether it runs or may come to run, and nobody is deleting it."""
        return not self.terminal and not self.metadata.deletion_timestamp

    @property
    def completion_index(self) -> int | None:
        """The index of an Indexed Job's pod, or None."""
        text = self.metadata.annotation("batch.kubernetes.io/job-completion-index")
        return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


class JobSpec(Part, frozen=True):
    """The shape of a Job."""

    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    active_deadline_seconds: int | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: int | None = None
    template: PodTemplate = PodTemplate()

    @property
    def indexed(self) -> bool:
        """Whether pods carry a completion index."""
        return self.completion_mode == "Indexed"

    @property
    def pods_at_once(self) -> int:
        """How many pods run together: min(parallelism, completions), or parallelism where completions is unset."""
        parallelism = 1 if self.parallelism is None else self.parallelism
        return parallelism if self.completions is None else min(parallelism, self.completions)


class JobStatus(Part, frozen=True):
    """How far a Job is."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: list[ObjectCondition] | None = None

    def holds(self, kind: str) -> bool:
        """Whether the condition of this type is True."""
        return any(c.type == kind and c.status == "True" for c in self.conditions or ())


class Job(Part, frozen=True):
    """A batch/v1 Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def finished(self) -> bool:
        """Whether it is Complete or Failed."""
        return self.status.holds("Complete") or self.status.holds("Failed")


class Taint(Part, frozen=True):
    """What keeps pods from a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Part, frozen=True):
    """A node's wishes."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(Part, frozen=True):
    """A node's size and health."""

    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None
    conditions: list[ObjectCondition] | None = None

    @property
    def ready(self) -> bool:
        """Whether the kubelet says so."""
        return any(c.type == "Ready" and c.status == "True" for c in self.conditions or ())


class Node(Part, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Part, frozen=True):
    """A namespace; only its labels matter."""

    metadata: ObjectMeta = ObjectMeta()


class PriorityClass(Part, frozen=True):
    """A named priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
