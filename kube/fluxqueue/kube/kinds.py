"""The kinds we speak about: where each lives in the API and which struct its objects decode to.

A :class:`Kind` is what a call needs to know (path, type), so a caller says ``api.get(JOBS, "lammps", "default")`` and gets a ``Job``.
Discovery is not used: the group versions below have been stable since before the oldest Kubernetes we support, and a wrong guess of
a plural is a 404 at the first call, not a surprise later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from fluxqueue.api import names
from fluxqueue.api.clusterobjects import (
    DaemonSet,
    Identified,
    Lease,
    ProvisioningRequest,
    ScaledWorkload,
    Secret,
    WebhookConfiguration,
)
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.objects import Job, Namespace, Node, ObjectMeta, Pod, PriorityClass
from fluxqueue.api.poddefaults import LimitRange, RuntimeClass

__all__ = [
    "CONFIG_MAPS",
    "CUSTOM_RESOURCES",
    "DEPLOYMENTS",
    "FLUXJOBS",
    "FLUXQUEUES",
    "JOBS",
    "LEASES",
    "LIMIT_RANGES",
    "MINICLUSTERS",
    "MUTATING_WEBHOOKS",
    "NAMESPACES",
    "NETWORK_POLICIES",
    "NODES",
    "PODS",
    "POD_TEMPLATES",
    "PRIORITY_CLASSES",
    "PROVISIONING_REQUESTS",
    "REPLICASETS",
    "RUNTIME_CLASSES",
    "SECRETS",
    "SERVICES",
    "STATEFULSETS",
    "Key",
    "Kind",
    "Named",
    "T",
]


Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped kinds."""


class Named(Protocol):
    """Whatever carries object metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name, namespace, uid, resourceVersion, labels."""


T = TypeVar("T", bound=Named)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A resource of the API server.

    Parameters
    ----------
    group
        Empty for the core group.
    version, plural, kind
        As in ``/apis/<group>/<version>/<plural>`` and in manifests.
    namespaced
        Whether objects live in namespaces.
    type
        The msgspec struct its objects decode to.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        """What manifests carry as ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of the collection, an object or a subresource.

        Parameters
        ----------
        namespace
            None means all namespaces, which only a collection has.
        name, subresource
            For one object, and for a part of it such as ``status``.

        Returns
        -------
        str
            Starts with ``/api`` or ``/apis``; every segment is percent-encoded.

        Raises
        ------
        ValueError
            When the pieces do not make a path: a namespaced object without its namespace, a namespace for a cluster-scoped kind, a
            subresource without a name, an empty name.
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
        """How messages speak of an object: ``Job default/lammps``, or of all of a kind: ``jobs``."""
        if name is None:
            return f"{self.plural} in {namespace}" if namespace else self.plural
        return f"{self.kind} {namespace}/{name}" if namespace else f"{self.kind} {name}"

    def reference(self, obj: T, *, controller: bool = False) -> dict[str, Any]:
        """An ownerReference to an object of this kind, so that garbage collection removes what refers to it."""
        meta = obj.metadata
        reference: dict[str, Any] = {"apiVersion": self.api_version, "kind": self.kind, "name": meta.name, "uid": meta.uid}
        return {**reference, "controller": True} if controller else reference


JOBS: Final = Kind("batch", "v1", "jobs", "Job", True, Job)
PODS: Final = Kind("", "v1", "pods", "Pod", True, Pod)
NODES: Final = Kind("", "v1", "nodes", "Node", False, Node)
NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", False, Namespace)
SECRETS: Final = Kind("", "v1", "secrets", "Secret", True, Secret)
PRIORITY_CLASSES: Final = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, PriorityClass)
LIMIT_RANGES: Final = Kind("", "v1", "limitranges", "LimitRange", True, LimitRange)
RUNTIME_CLASSES: Final = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, RuntimeClass)
LEASES: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
FLUXJOBS: Final = Kind(names.GROUP, names.VERSION, names.FLUXJOBS, "FluxJob", True, FluxJob)
FLUXQUEUES: Final = Kind(names.GROUP, names.VERSION, names.FLUXQUEUES, "FluxQueue", False, FluxQueue)
MINICLUSTERS: Final = Kind(names.MINICLUSTER_GROUP, names.MINICLUSTER_VERSION, names.MINICLUSTERS, "MiniCluster", True, MiniCluster)
CONFIG_MAPS: Final = Kind("", "v1", "configmaps", "ConfigMap", True, Identified)
SERVICES: Final = Kind("", "v1", "services", "Service", True, Identified)
NETWORK_POLICIES: Final = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, Identified)
CUSTOM_RESOURCES: Final = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, Identified)
DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", True, ScaledWorkload)
REPLICASETS: Final = Kind("apps", "v1", "replicasets", "ReplicaSet", True, ScaledWorkload)
DAEMON_SETS: Final = Kind("apps", "v1", "daemonsets", "DaemonSet", True, DaemonSet)
STATEFULSETS: Final = Kind("apps", "v1", "statefulsets", "StatefulSet", True, ScaledWorkload)
POD_TEMPLATES: Final = Kind("", "v1", "podtemplates", "PodTemplate", True, Identified)
PROVISIONING_REQUESTS: Final = Kind("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", True, ProvisioningRequest)
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
