"""Kubernetes objects around the queue that we read, but that carry no work: leases, secrets, webhook configurations, pod owners.

Partial on purpose, like :mod:`fluxqueue.api.objects`: decoded in part, never written back.
"""

from __future__ import annotations

from fluxqueue.api.objects import ObjectCondition, ObjectMeta, Part, PodTemplate

__all__ = [
    "DaemonSet",
    "DaemonSetSpec",
    "Identified",
    "Lease",
    "LeaseSpec",
    "PodSet",
    "ProvisioningRequest",
    "ProvisioningSpec",
    "ProvisioningStatus",
    "Reference",
    "ScaledSpec",
    "ScaledStatus",
    "ScaledWorkload",
    "Secret",
    "Webhook",
    "WebhookClientConfig",
    "WebhookConfiguration",
]


class Identified(Part, frozen=True):
    """Any object of which we only ask whose it is."""

    metadata: ObjectMeta = ObjectMeta()


class DaemonSetSpec(Part, frozen=True):
    """What a DaemonSet puts on each of its nodes."""

    template: PodTemplate = PodTemplate()


class DaemonSet(Part, frozen=True):
    """An apps/v1 DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()


class Reference(Part, frozen=True):
    """Another object of the same namespace."""

    name: str = ""


class PodSet(Part, frozen=True):
    """So many pods of a template."""

    pod_template_ref: Reference = Reference()
    count: int = 0


class ProvisioningSpec(Part, frozen=True):
    """What room is wanted for; never changed once made."""

    pod_sets: tuple[PodSet, ...] = ()


class ProvisioningStatus(Part, frozen=True):
    """How far the autoscaler has come."""

    conditions: list[ObjectCondition] | None = None


class ProvisioningRequest(Part, frozen=True):
    """An autoscaling.x-k8s.io/v1 ProvisioningRequest: nodes asked of the cluster autoscaler, for a group of pods as a whole."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ProvisioningSpec = ProvisioningSpec()
    status: ProvisioningStatus = ProvisioningStatus()

    @property
    def failed(self) -> str:
        """Why it will not be fulfilled, empty while it may be."""
        failed = next((each for each in self.status.conditions or () if each.type == "Failed" and each.status == "True"), None)
        return (failed.message or failed.reason or "no reason was given") if failed is not None else ""


class LeaseSpec(Part, frozen=True):
    """Who holds a lease. Times are RFC 3339 with microseconds, by the holder's clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Part, frozen=True):
    """A coordination.k8s.io/v1 Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class Secret(Part, frozen=True):
    """A Secret; values are base64 on the wire and bytes here. Its repr does not show them."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={sorted(self.data or ())})"


class WebhookClientConfig(Part, frozen=True):
    """How the API server reaches a webhook: by Service, or by URL where that is set."""

    ca_bundle: bytes = b""
    url: str | None = None


class Webhook(Part, frozen=True):
    """One webhook of a configuration."""

    name: str = ""
    client_config: WebhookClientConfig = WebhookClientConfig()


class WebhookConfiguration(Part, frozen=True):
    """Which webhooks, mutating or validating, see which objects, as far as certificate rotation needs it."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[Webhook] | None = None


class ScaledSpec(Part, frozen=True):
    """Size and shape of a Deployment, ReplicaSet or StatefulSet; absent ``replicas`` means one."""

    replicas: int | None = None
    pod_management_policy: str | None = None
    template: PodTemplate = PodTemplate()

    @property
    def size(self) -> int:
        """How many pods it wants."""
        return 1 if self.replicas is None else self.replicas


class ScaledStatus(Part, frozen=True):
    """How far the controller has come."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0


class ScaledWorkload(Part, frozen=True):
    """What Deployments, ReplicaSets and StatefulSets have in common."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaledSpec = ScaledSpec()
    status: ScaledStatus = ScaledStatus()
