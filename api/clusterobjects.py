"""Objects that the programs read but do not schedule: Leases, Secrets, webhook configurations, owners of
pods.

The structs are partial, like those of `fluxqueue.api.metadata`: they are never written back.
"""

from __future__ import annotations

from typing import ClassVar

from fluxqueue.api.metadata import ObjectCondition, ObjectMeta, PartialObject
from fluxqueue.api.pods import PodTemplateSpec

__all__ = [
    "DaemonSet",
    "DaemonSetSpec",
    "Event",
    "EventSource",
    "InvolvedObject",
    "Lease",
    "LeaseSpec",
    "PodSet",
    "ProvisioningRequest",
    "ProvisioningSpec",
    "ProvisioningStatus",
    "Reference",
    "ResourceQuota",
    "ResourceQuotaSpec",
    "ResourceQuotaStatus",
    "ScaledSpec",
    "ScaledStatus",
    "ScaledWorkload",
    "ScopeRequirement",
    "ScopeSelector",
    "Secret",
    "Webhook",
    "WebhookClientConfig",
    "WebhookConfiguration",
]


class InvolvedObject(PartialObject, frozen=True):
    """The object that an Event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSource(PartialObject, frozen=True):
    """The program that wrote an Event with the older of the two libraries."""

    component: str = ""


class Event(PartialObject, frozen=True):
    """A core/v1 Event."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)

    metadata: ObjectMeta = ObjectMeta()
    involved_object: InvolvedObject = InvolvedObject()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    reporting_component: str = ""

    @property
    def reporter(self) -> str:
        """The program that says it wrote the Event. Everybody who may create Events can claim to be any."""
        return self.source.component or self.reporting_component


class ResourceQuotaStatus(PartialObject, frozen=True):
    """What a namespace may use (``hard``) and what it uses (``used``), by resource."""

    hard: dict[str, str | int | float] | None = None
    used: dict[str, str | int | float] | None = None


class ScopeRequirement(PartialObject, frozen=True):
    """One requirement of a scope selector: for PriorityClass In, NotIn, Exists or DoesNotExist,
    for other scopes Exists.
    """

    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(PartialObject, frozen=True):
    """Which pods a ResourceQuota counts; all requirements must hold."""

    match_expressions: list[ScopeRequirement] | None = None


class ResourceQuotaSpec(PartialObject, frozen=True):
    """Which pods a ResourceQuota counts: those in all of the scopes that also match the selector."""

    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuota(PartialObject, frozen=True):
    """A ResourceQuota: limits of what one namespace uses."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class DaemonSetSpec(PartialObject, frozen=True):
    """The pod template of a DaemonSet."""

    template: PodTemplateSpec = PodTemplateSpec()


class DaemonSet(PartialObject, frozen=True):
    """An apps/v1 DaemonSet."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata", "spec.template.metadata")
    compact_specs: ClassVar[tuple[str, ...]] = ("spec.template.spec",)

    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()


class Reference(PartialObject, frozen=True):
    """The name of another object in the same namespace."""

    name: str = ""


class PodSet(PartialObject, frozen=True):
    """A number of pods of one PodTemplate."""

    pod_template_ref: Reference = Reference()
    count: int = 0


class ProvisioningSpec(PartialObject, frozen=True):
    """The pods for which capacity is requested; immutable."""

    pod_sets: tuple[PodSet, ...] = ()


class ProvisioningStatus(PartialObject, frozen=True):
    """The autoscaler's conditions."""

    conditions: list[ObjectCondition] | None = None


class ProvisioningRequest(PartialObject, frozen=True):
    """An autoscaling.x-k8s.io/v1 ProvisioningRequest:
    a request to the cluster autoscaler for nodes that hold a whole group of pods.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: ProvisioningSpec = ProvisioningSpec()
    status: ProvisioningStatus = ProvisioningStatus()

    @property
    def failed(self) -> str:
        """Why the request will not be fulfilled; empty while it still may be."""
        failed = next(
            (
                each
                for each in self.status.conditions or ()
                if each.type == "Failed" and each.status == "True"
            ),
            None,
        )
        return (failed.message or failed.reason or "no reason was given") if failed is not None else ""


class LeaseSpec(PartialObject, frozen=True):
    """The holder of a Lease. Times are RFC 3339 with microseconds, taken from the holder's clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(PartialObject, frozen=True):
    """A coordination.k8s.io/v1 Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class Secret(PartialObject, frozen=True):
    """A Secret. Values are base64 on the wire and bytes here; the repr does not contain them."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={sorted(self.data or ())})"


class WebhookClientConfig(PartialObject, frozen=True):
    """How the API server reaches a webhook: through ``url`` if it is set, otherwise through a Service."""

    ca_bundle: bytes = b""
    url: str | None = None


class Webhook(PartialObject, frozen=True):
    """One webhook of a configuration."""

    name: str = ""
    client_config: WebhookClientConfig = WebhookClientConfig()


class WebhookConfiguration(PartialObject, frozen=True):
    """A mutating or validating webhook configuration, with the fields that certificate rotation needs."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[Webhook] | None = None


class ScaledSpec(PartialObject, frozen=True):
    """The spec of a Deployment, ReplicaSet or StatefulSet."""

    replicas: int | None = None
    pod_management_policy: str | None = None
    template: PodTemplateSpec = PodTemplateSpec()

    @property
    def size(self) -> int:
        """The number of pods it asks for; 1 if ``replicas`` is missing."""
        return 1 if self.replicas is None else self.replicas


class ScaledStatus(PartialObject, frozen=True):
    """The replicas that the controller has created."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0


class ScaledWorkload(PartialObject, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata", "spec.template.metadata")

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaledSpec = ScaledSpec()
    status: ScaledStatus = ScaledStatus()
