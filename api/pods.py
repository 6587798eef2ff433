"""Pods and what they are made of: containers, volumes, gates, tolerations, templates and status.

The structs are partial (see `fluxqueue.api.metadata`): they hold what placement depends on. Parts that are
passed on or interpreted elsewhere, such as ``affinity``, stay decoded JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from fluxqueue.api import names
from fluxqueue.api.metadata import LabelSelector, ObjectCondition, ObjectMeta, PartialObject

__all__ = [
    "Container",
    "ContainerPort",
    "ContainerState",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "EphemeralVolumeSource",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimTemplate",
    "PersistentVolumeClaimVolumeSource",
    "Pod",
    "PodResourceClaim",
    "PodSchedulingGroup",
    "PodSpec",
    "PodStatus",
    "PodTemplateSpec",
    "PodVolume",
    "ResourceRequirements",
    "SchedulingConstraints",
    "SchedulingGate",
    "Toleration",
    "TopologyConstraint",
    "WorkloadReference",
]


class ResourceRequirements(PartialObject, frozen=True):
    """Requests and limits as they are written; `fluxqueue.api.requests` parses and sums them."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class ContainerPort(PartialObject, frozen=True):
    """A port of a container.
    It is also a port of the node if ``host_port`` is not 0; an empty ``host_ip`` means all addresses.
    """

    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(PartialObject, frozen=True):
    """A container: its size and its ports.
    An init container with ``restart_policy`` ``Always`` is a sidecar.
    """

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class SchedulingGate(PartialObject, frozen=True):
    """A scheduling gate: the scheduler ignores a pod that has one."""

    name: str = ""


class Toleration(PartialObject, frozen=True):
    """A toleration: the pod may run on nodes with a matching taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PersistentVolumeClaimSpec(PartialObject, frozen=True):
    """What a claim requests, and the name of its volume."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimTemplate(PartialObject, frozen=True):
    """The template of a claim that is created for a pod."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralVolumeSource(PartialObject, frozen=True):
    """A generic ephemeral volume: its claim is created and deleted with the pod."""

    volume_claim_template: PersistentVolumeClaimTemplate = PersistentVolumeClaimTemplate()


class PersistentVolumeClaimVolumeSource(PartialObject, frozen=True):
    """The name of a claim in the pod's namespace."""

    claim_name: str = ""


class PodVolume(PartialObject, frozen=True):
    """A volume of a pod, with the sources that restrict its node.
    Disks that the pod names itself stay decoded JSON.
    """

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None


class PodResourceClaim(PartialObject, frozen=True):
    """A claim of devices that a pod uses (dynamic resource allocation):
    one that exists, or one that is made for it from a template.
    """

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(PartialObject, frozen=True):
    """The PodGroup of Kubernetes' Workload API that a pod belongs to (KEP-5832)."""

    pod_group_name: str | None = None


class TopologyConstraint(PartialObject, frozen=True):
    """A node label that has one value on the nodes of all pods of a group."""

    key: str = ""


class SchedulingConstraints(PartialObject, frozen=True):
    """What Kubernetes' Workload API can require of the nodes of a group (KEP-5732)."""

    topology: list[TopologyConstraint] | None = None


class WorkloadReference(PartialObject, frozen=True):
    """The Workload, its pod group and the replica of that which a pod belongs to:
    Kubernetes 1.35 only (KEP-4671).
    """

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(PartialObject, frozen=True):
    """The spec of a pod, as far as placement depends on it.
    ``affinity`` and spread constraints stay decoded JSON.
    """

    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: ResourceRequirements | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Mapping[str, Any] | None = None
    topology_spread_constraints: list[dict[str, Any]] | None = None
    tolerations: list[Toleration] | None = None
    volumes: list[PodVolume] | None = None
    resource_claims: list[PodResourceClaim] | None = None
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
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None

    @property
    def ends(self) -> bool:
        """True if the pod ends when its containers do, so that it can state a duration."""
        return self.restart_policy in ("Never", "OnFailure")

    def gated_by(self, name: str) -> bool:
        """True if the pod has the scheduling gate of this name."""
        return bool(self.scheduling_gates) and any(gate.name == name for gate in self.scheduling_gates or ())


class PodTemplateSpec(PartialObject, frozen=True):
    """The pod template of a Job or another owner of pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class ContainerStateWaiting(PartialObject, frozen=True):
    """Why a container is not running yet."""

    reason: str = ""
    message: str = ""


class ContainerStateTerminated(PartialObject, frozen=True):
    """How a container ended; ``message`` is what it wrote as its termination message."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(PartialObject, frozen=True):
    """The state of a container: waiting, terminated, or running if both are None."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(PartialObject, frozen=True):
    """The status of a container.
    ``resources`` are in effect, ``allocated_resources`` are granted by the node (KEP-1287).
    """

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, str | int | float] | None = None
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(PartialObject, frozen=True):
    """The status of a pod."""

    phase: str = ""
    nominated_node_name: str | None = None
    conditions: list[ObjectCondition] | None = None
    start_time: str | None = None
    reason: str = ""
    message: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, str | int | float] | None = None

    def condition(self, kind: str) -> ObjectCondition | None:
        """Return the condition of a type; None if it is missing."""
        return next((c for c in self.conditions or () if c.type == kind), None)


class Pod(PartialObject, frozen=True):
    """A Pod."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)
    compact_specs: ClassVar[tuple[str, ...]] = ("spec",)

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def terminal(self) -> bool:
        """True if no container of the pod will run again."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """True if the pod runs or may still run, and is not being deleted."""
        return not self.terminal and not self.metadata.deletion_timestamp

    @property
    def fluxion_binds(self) -> bool:
        """True if the project's own scheduler binds the pod."""
        return self.spec.scheduler_name == names.SCHEDULER_NAME

    @property
    def held(self) -> bool:
        """True if the pod waits for the queue.

        It has the queue's gate; or the project's scheduler shall bind it and it has no allocation yet.
        """
        if self.spec.gated_by(names.GATE):
            return True
        if self.spec.node_name or not self.fluxion_binds:
            return False
        meta = self.metadata
        allocated = (
            meta.annotation(names.ALLOCATION_ANNOTATION) is not None
            or meta.label(names.GO_NODES_LABEL) is not None
        )
        return not allocated

    @property
    def revocable(self) -> bool:
        """True if its allocation can still be revoked: it is released for the project's scheduler and not
        bound.
        """
        released = self.metadata.annotation(names.ALLOCATION_ANNOTATION) is not None and not self.held
        return self.fluxion_binds and released and self.active and not self.spec.node_name

    @property
    def completion_index(self) -> int | None:
        """The completion index of an Indexed Job's pod; None for other pods."""
        text = self.metadata.annotation("batch.kubernetes.io/job-completion-index")
        return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None
