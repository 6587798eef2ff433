"""The kinds of objects in use: the API path of each, and the struct to which its objects are decoded.

A :class:`Kind` has all that a call needs, so ``api.get(JOBS, "lammps", "default")`` returns a ``Job``. API
discovery is not used. The group versions below have been stable since before the oldest supported Kubernetes,
and a wrong plural would fail with 404 at the first call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from fluxqueue.api import names
from fluxqueue.api.clusterobjects import (
    DaemonSet,
    Event,
    Lease,
    ProvisioningRequest,
    ResourceQuota,
    ScaledWorkload,
    Secret,
    WebhookConfiguration,
)
from fluxqueue.api.devices import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from fluxqueue.api.disruptionbudgets import PodDisruptionBudget
from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.jobs import Job
from fluxqueue.api.jobsets import JobSet
from fluxqueue.api.metadata import Namespace, ObjectMeta, PartialObjectMetadata, PriorityClass
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.nodes import Node
from fluxqueue.api.poddefaults import LimitRange, RuntimeClass
from fluxqueue.api.pods import Pod
from fluxqueue.api.reviews import SubjectAccessReview, TokenReview
from fluxqueue.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass

__all__ = [
    "ACCESS_REVIEWS",
    "CERTIFICATES",
    "CLAIMS",
    "CLUSTER_ROLES",
    "CLUSTER_ROLE_BINDINGS",
    "CONFIG_MAPS",
    "CRON_JOBS",
    "CSI_NODES",
    "CUSTOM_RESOURCES",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "DEVICE_CLAIMS",
    "DEVICE_CLAIM_TEMPLATES",
    "DEVICE_CLASSES",
    "DEVICE_SLICES",
    "DEVICE_TAINT_RULES",
    "DISRUPTION_BUDGETS",
    "EVENTS",
    "FLUXACCOUNTS",
    "FLUXJOBS",
    "FLUXQUEUES",
    "FLUXRESERVATIONS",
    "ISSUERS",
    "JOBS",
    "JOB_SETS",
    "LEASES",
    "LIMIT_RANGES",
    "MINICLUSTERS",
    "MUTATING_WEBHOOKS",
    "NAMESPACES",
    "NETWORK_POLICIES",
    "NODES",
    "PODS",
    "POD_MONITORS",
    "POD_TEMPLATES",
    "PRIORITY_CLASSES",
    "PROMETHEUS_RULES",
    "PROVISIONING_REQUESTS",
    "REPLICASETS",
    "RESOURCE_QUOTAS",
    "ROLES",
    "ROLE_BINDINGS",
    "RUNTIME_CLASSES",
    "SECRETS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "SERVICE_MONITORS",
    "STATEFULSETS",
    "STORAGE_CLASSES",
    "TOKEN_REVIEWS",
    "VALIDATING_POLICIES",
    "VALIDATING_POLICY_BINDINGS",
    "VALIDATING_WEBHOOKS",
    "VOLUMES",
    "Key",
    "Kind",
    "Named",
    "T",
]


Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped kinds."""


class Named(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name, namespace, uid, resourceVersion, labels."""


T = TypeVar("T", bound=Named)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of objects of the API server.

    Parameters
    ----------
    group
        Empty for the core group.
    version, plural, kind
        As in ``/apis/<group>/<version>/<plural>`` and in manifests.
    namespaced
        True if objects are in namespaces.
    type
        The struct to which its objects are decoded.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the path of the collection, of an object or of a subresource.

        Parameters
        ----------
        namespace
            None means all namespaces, which is possible only for a collection.
        name, subresource
            Of one object, and of a part of it such as ``status``.

        Returns
        -------
        str
            Starts with ``/api`` or ``/apis``; every segment is percent-encoded.

        Raises
        ------
        ValueError
            The parts do not form a path: a namespaced object without its namespace, a namespace for a
            cluster-scoped kind, a subresource without a name, or an empty name.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.kind} is cluster scoped: leave namespace {namespace!r} out")
        if name is not None and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} lives in a namespace: name it")
        if name is None and subresource is not None:
            raise ValueError(f"subresource {subresource!r} of which {self.kind}? give its name")
        if name == "":
            raise ValueError(f"a {self.kind} has no empty name: this would be the whole collection")
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part is not None]
        return "/".join(parts)

    def describe(self, name: str | None = None, namespace: str | None = None) -> str:
        """Return the text for messages: ``Job default/lammps`` for an object, ``jobs`` for all of a kind."""
        if name is None:
            return f"{self.plural} in {namespace}" if namespace else self.plural
        return f"{self.kind} {namespace}/{name}" if namespace else f"{self.kind} {name}"

    def reference(self, obj: T, *, controller: bool = False) -> dict[str, Any]:
        """Return an ownerReference to an object of this kind, so that garbage collection deletes the
        referring object with it.
        """
        meta = obj.metadata
        reference: dict[str, Any] = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": meta.name,
            "uid": meta.uid,
        }
        return {**reference, "controller": True} if controller else reference


JOBS: Final = Kind("batch", "v1", "jobs", "Job", True, Job)
JOB_SETS: Final = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True, JobSet)
PODS: Final = Kind("", "v1", "pods", "Pod", True, Pod)
NODES: Final = Kind("", "v1", "nodes", "Node", False, Node)
NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", False, Namespace)
SECRETS: Final = Kind("", "v1", "secrets", "Secret", True, Secret)
PRIORITY_CLASSES: Final = Kind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, PriorityClass
)
LIMIT_RANGES: Final = Kind("", "v1", "limitranges", "LimitRange", True, LimitRange)
RUNTIME_CLASSES: Final = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, RuntimeClass)
CLAIMS: Final = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, PersistentVolumeClaim)
VOLUMES: Final = Kind("", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume)
STORAGE_CLASSES: Final = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, StorageClass)
CSI_NODES: Final = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False, CSINode)
DEVICE_CLASSES: Final = Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, DeviceClass)
DEVICE_SLICES: Final = Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, ResourceSlice)
DEVICE_CLAIMS: Final = Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, ResourceClaim)
DEVICE_CLAIM_TEMPLATES: Final = Kind(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, ResourceClaimTemplate
)
DEVICE_TAINT_RULES: Final = tuple(
    Kind("resource.k8s.io", version, "devicetaintrules", "DeviceTaintRule", False, DeviceTaintRule)
    for version in ("v1", "v1beta2")
)
"""In the versions that are understood, the preferred one first:
1.37 serves the first, 1.36 the second behind a gate."""
LEASES: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
FLUXACCOUNTS: Final = Kind(names.GROUP, names.VERSION, names.FLUXACCOUNTS, "FluxAccount", False, FluxAccount)
FLUXJOBS: Final = Kind(names.GROUP, names.VERSION, names.FLUXJOBS, "FluxJob", True, FluxJob)
FLUXQUEUES: Final = Kind(names.GROUP, names.VERSION, names.FLUXQUEUES, "FluxQueue", False, FluxQueue)
FLUXRESERVATIONS: Final = Kind(
    names.GROUP, names.VERSION, names.FLUXRESERVATIONS, "FluxReservation", False, FluxReservation
)
MINICLUSTERS: Final = Kind(
    names.MINICLUSTER_GROUP, names.MINICLUSTER_VERSION, names.MINICLUSTERS, "MiniCluster", True, MiniCluster
)
CONFIG_MAPS: Final = Kind("", "v1", "configmaps", "ConfigMap", True, PartialObjectMetadata)
EVENTS: Final = Kind("", "v1", "events", "Event", True, Event)
RESOURCE_QUOTAS: Final = Kind("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)
SERVICE_ACCOUNTS: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount", True, PartialObjectMetadata)
SERVICES: Final = Kind("", "v1", "services", "Service", True, PartialObjectMetadata)
NETWORK_POLICIES: Final = Kind(
    "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, PartialObjectMetadata
)
CUSTOM_RESOURCES: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    False,
    PartialObjectMetadata,
)
DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", True, ScaledWorkload)
REPLICASETS: Final = Kind("apps", "v1", "replicasets", "ReplicaSet", True, ScaledWorkload)
DAEMON_SETS: Final = Kind("apps", "v1", "daemonsets", "DaemonSet", True, DaemonSet)
STATEFULSETS: Final = Kind("apps", "v1", "statefulsets", "StatefulSet", True, ScaledWorkload)
POD_TEMPLATES: Final = Kind("", "v1", "podtemplates", "PodTemplate", True, PartialObjectMetadata)
PROVISIONING_REQUESTS: Final = Kind(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", True, ProvisioningRequest
)
MUTATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    False,
    WebhookConfiguration,
)
VALIDATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    False,
    WebhookConfiguration,
)
VALIDATING_POLICIES: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    False,
    PartialObjectMetadata,
)
VALIDATING_POLICY_BINDINGS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    False,
    PartialObjectMetadata,
)
CLUSTER_ROLES: Final = Kind(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False, PartialObjectMetadata
)
CLUSTER_ROLE_BINDINGS: Final = Kind(
    "rbac.authorization.k8s.io",
    "v1",
    "clusterrolebindings",
    "ClusterRoleBinding",
    False,
    PartialObjectMetadata,
)
ROLES: Final = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", True, PartialObjectMetadata)
ROLE_BINDINGS: Final = Kind(
    "rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True, PartialObjectMetadata
)
DISRUPTION_BUDGETS: Final = Kind(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, PodDisruptionBudget
)
CRON_JOBS: Final = Kind("batch", "v1", "cronjobs", "CronJob", True, PartialObjectMetadata)
CERTIFICATES: Final = Kind(
    "cert-manager.io", "v1", "certificates", "Certificate", True, PartialObjectMetadata
)
ISSUERS: Final = Kind("cert-manager.io", "v1", "issuers", "Issuer", True, PartialObjectMetadata)
SERVICE_MONITORS: Final = Kind(
    "monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor", True, PartialObjectMetadata
)
POD_MONITORS: Final = Kind(
    "monitoring.coreos.com", "v1", "podmonitors", "PodMonitor", True, PartialObjectMetadata
)
PROMETHEUS_RULES: Final = Kind(
    "monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule", True, PartialObjectMetadata
)
TOKEN_REVIEWS: Final = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, TokenReview)
ACCESS_REVIEWS: Final = Kind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, SubjectAccessReview
)
