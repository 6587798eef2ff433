"""Builders of objects for tests: ``make_job("lammps").indexed(4).cpu("2").build()``.

Builders return plain dicts in the API server's canonical form, with only the fields that a person would
write, unless a test asks for more. Every step returns a changed copy, so tests can keep a builder and vary
it. ``with_`` sets fields that have no method.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, TypeVar, cast

Json = dict[str, Any]
_B = TypeVar("_B", bound="Builder")

JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
DAEMONSET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
REPLICASET_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
USER = "alice"


class Builder:
    """The common parts of objects: name, labels, annotations and owners."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def build(self) -> Json:
        """Return the object as a new dict."""
        return copy.deepcopy(self._document)

    def with_(self: _B, path: str, value: Any) -> _B:
        """Set one member by its dotted path, for example ``spec.template.spec.nodeName``;
        missing parents are created.
        """
        changed = type(self)(self.build())
        members = path.split(".")
        at = changed._document
        for member in members[:-1]:
            at = at.setdefault(member, {})
        at[members[-1]] = value
        return changed

    def without(self: _B, path: str) -> _B:
        """Remove one member by its dotted path."""
        changed = type(self)(self.build())
        *parents, last = path.split(".")
        at = changed._document
        for member in parents:
            at = at[member]
        at.pop(last, None)
        return changed

    def _merged(self: _B, path: str, entries: Json) -> _B:
        at: Any = self._document
        for member in path.split("."):
            at = (at or {}).get(member)
        return self.with_(path, {**(at or {}), **entries})

    def label(self: _B, key: str, value: str) -> _B:
        return self._merged("metadata.labels", {key: value})

    def annotation(self: _B, key: str, value: str) -> _B:
        return self._merged("metadata.annotations", {key: value})

    def namespace(self: _B, name: str) -> _B:
        return self.with_("metadata.namespace", name)

    def uid(self: _B, uid: str) -> _B:
        return self.with_("metadata.uid", uid)

    def generated(self: _B, prefix: str) -> _B:
        """An object whose name the API server creates: it has ``generateName`` and no name yet."""
        return self.without("metadata.name").with_("metadata.generateName", prefix)

    def owned_by(
        self: _B, kind: str, name: str = "owner", *, api_version: str | None = None, controller: bool = True
    ) -> _B:
        versions = {"Job": "batch/v1", "CronJob": "batch/v1"}
        owner = {
            "apiVersion": api_version or versions.get(kind, "apps/v1"),
            "kind": kind,
            "name": name,
            "uid": f"uid-of-{name}",
        }
        return self.with_("metadata.ownerReferences", [owner | ({"controller": True} if controller else {})])


def _with_ports(spec: Json, ports: Sequence[int], protocol: str) -> list[Json]:
    first, *others = copy.deepcopy(spec["containers"])
    return [
        {
            **first,
            "ports": [{"containerPort": port, "hostPort": port, "protocol": protocol} for port in ports],
        },
        *others,
    ]


class PodBuilder(Builder):
    """A pod of one container."""

    def request(self, resource: str, amount: str) -> PodBuilder:
        container = copy.deepcopy(self._document["spec"]["containers"][0])
        container.setdefault("resources", {}).setdefault("requests", {})[resource] = amount
        return self.with_("spec.containers", [container, *self._document["spec"]["containers"][1:]])

    def cpu(self, amount: str) -> PodBuilder:
        return self.request("cpu", amount)

    def memory(self, amount: str) -> PodBuilder:
        return self.request("memory", amount)

    def host_ports(self, *ports: int, protocol: str = "TCP") -> PodBuilder:
        return self.with_("spec.containers", _with_ports(self._document["spec"], ports, protocol))

    def gate(self, *gates: str) -> PodBuilder:
        existing = self._document["spec"].get("schedulingGates") or []
        return self.with_("spec.schedulingGates", [*existing, *({"name": gate} for gate in gates)])

    def on_node(self, node: str) -> PodBuilder:
        return self.with_("spec.nodeName", node)

    def by_fluxion(self, node: str = "", jobid: int = 7) -> PodBuilder:
        """Let our own scheduler bind the pod; release it to a node, if one is given."""
        pod = self.with_("spec.schedulerName", "FluxionScheduler")
        released = {"fluxqueue/allocation": str(jobid), "fluxqueue/fluxion-nodes": node}
        return pod._merged("metadata.annotations", released) if node else pod

    def refused(self, sentence: str, *, node: str, jobid: int = 7) -> PodBuilder:
        """Record that our scheduler could not bind the pod to this node,
        which can differ from its present one.
        """
        about = {
            "type": "fluxqueue/refused",
            "status": "True",
            "reason": "Unschedulable",
            "message": f"{jobid} {node}",
        }
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": sentence,
        }
        return self.with_("status.conditions", [condition, about])

    def phase(self, phase: str) -> PodBuilder:
        return self.with_("status.phase", phase)

    def required_terms(self, *terms: Json) -> PodBuilder:
        """Required node affinity, as written. The terms are alternatives."""
        return self.with_(
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
            list(terms),
        )

    def index(self, index: int | str) -> PodBuilder:
        """Set what the Job controller sets on the pod of this completion index."""
        key = "batch.kubernetes.io/job-completion-index"
        return self.annotation(key, str(index)).label(key, str(index))

    def allocation(self, nodes: str, jobid: int = 7) -> PodBuilder:
        """Add an allocation, as the template of a pin-released Job does while its pin window is open."""
        given = {"allocation": str(jobid), "fluxion-nodes": nodes, "pin-until": "2100-01-01T00:00:00Z"}
        return self._merged(
            "metadata.annotations", {f"fluxqueue/{key}": value for key, value in given.items()}
        )


class JobBuilder(Builder):
    """A Job of one pod with one container."""

    def indexed(self, pods: int) -> JobBuilder:
        """An Indexed Job whose pods all run together."""
        return self.with_("spec.completionMode", "Indexed").pods(pods, pods)

    def pods(self, parallelism: int, completions: int | None = None) -> JobBuilder:
        changed = self.with_("spec.parallelism", parallelism)
        return changed if completions is None else changed.with_("spec.completions", completions)

    def suspended(self, suspend: bool = True) -> JobBuilder:
        return self.with_("spec.suspend", suspend)

    def request(self, resource: str, amount: str) -> JobBuilder:
        container = copy.deepcopy(self._document["spec"]["template"]["spec"]["containers"][0])
        container.setdefault("resources", {}).setdefault("requests", {})[resource] = amount
        return self.with_("spec.template.spec.containers", [container])

    def cpu(self, amount: str) -> JobBuilder:
        return self.request("cpu", amount)

    def memory(self, amount: str) -> JobBuilder:
        return self.request("memory", amount)

    def host_ports(self, *ports: int, protocol: str = "TCP") -> JobBuilder:
        return self.with_(
            "spec.template.spec.containers",
            _with_ports(self._document["spec"]["template"]["spec"], ports, protocol),
        )

    def pod_label(self, key: str, value: str) -> JobBuilder:
        return self._merged("spec.template.metadata.labels", {key: value})

    def pod_annotation(self, key: str, value: str) -> JobBuilder:
        return self._merged("spec.template.metadata.annotations", {key: value})


class NodeBuilder(Builder):
    """A Ready node."""

    def allocatable(self, **amounts: str) -> NodeBuilder:
        """For example ``allocatable(cpu="8", memory="32Gi", pods="110")``."""
        return self._merged("status.allocatable", amounts)._merged("status.capacity", amounts)

    def cordoned(self) -> NodeBuilder:
        return self.with_("spec.unschedulable", True)

    def taint(self, key: str, effect: str, value: str = "") -> NodeBuilder:
        existing = self._document["spec"].get("taints") or []
        return self.with_("spec.taints", [*existing, {"key": key, "value": value, "effect": effect}])

    def not_ready(self) -> NodeBuilder:
        return self.with_("status.conditions", [{"type": "Ready", "status": "False"}])


class ReviewBuilder(Builder):
    """An AdmissionReview of a CREATE request."""

    def by(self, user: str) -> ReviewBuilder:
        return self.with_("request.userInfo", {"username": user, "groups": ["system:authenticated"]})

    def operation(self, operation: str) -> ReviewBuilder:
        return self.with_("request.operation", operation)

    def dry_run(self) -> ReviewBuilder:
        return self.with_("request.dryRun", True)

    def body(self) -> bytes:
        """Return the body that the API server sends."""
        return json.dumps(self._document).encode()


def make_pod(name: str = "p") -> PodBuilder:
    """Return a pod without requests."""
    return PodBuilder(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            "status": {},
        }
    )


def make_job(name: str = "j") -> JobBuilder:
    """A Job of one pod, NonIndexed."""
    return JobBuilder(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "parallelism": 1,
                "completions": 1,
                "completionMode": "NonIndexed",
                "suspend": False,
                "template": {
                    "metadata": {},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
                },
            },
            "status": {},
        }
    )


def make_owner(kind: str, name: str, replicas: int, cpu: str = "8", **spec: Any) -> Json:
    """A Deployment, ReplicaSet or StatefulSet of sleeping pods that stop within a second.
    Its selector is the label ``app``.
    """
    pod = (
        make_pod(name)
        .cpu(cpu)
        .with_("spec.restartPolicy", "Always")
        .with_("spec.terminationGracePeriodSeconds", 1)
        .build()
    )
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    whole = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **spec}
    if kind == "StatefulSet":
        whole["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": whole}


def make_node(name: str = "n1", cpu: str = "8", memory: str = "32Gi", pods: str = "110") -> NodeBuilder:
    """A Ready node with its hostname label."""
    return NodeBuilder(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
    ).allocatable(cpu=cpu, memory=memory, pods=pods)


def make_queue(name: str, **spec: Any) -> Json:
    """A FluxQueue with these fields of its spec, named as in the API."""
    return {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxQueue",
        "metadata": {"name": name},
        "spec": spec,
    }


def make_account(name: str, **spec: Any) -> Json:
    """A FluxAccount with these fields of its spec, named as in the API."""
    return {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxAccount",
        "metadata": {"name": name},
        "spec": spec,
    }


def make_reservation(name: str, **spec: Any) -> Json:
    """A FluxReservation: an hour of all nodes of the names given as ``nodes``,
    for the namespace ``default`` unless it is a maintenance.
    """
    if isinstance(spec.get("nodes"), list):
        spec["nodes"] = {"names": spec["nodes"]}
    if not spec.get("maintenance") and "queues" not in spec:
        spec.setdefault("namespaces", ["default"])
    if "end" not in spec:
        spec.setdefault("duration", "1h")
    meta = {"name": name, "uid": f"uid-{name}"}
    spec = {key: value for key, value in spec.items() if value is not None}
    return {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxReservation",
        "metadata": meta,
        "spec": spec,
    }


def make_minicluster(name: str, size: int = 4, command: str = "hostname", **spec: Any) -> Json:
    """A MiniCluster of one container with this command. Other fields of its spec are named as in the API."""
    containers = [{"image": "app", **({"command": command} if command else {})}]
    return {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": {"name": name},
        "spec": {"size": size, "containers": containers, **spec},
    }


def make_review(thing: Builder | Json, *, user: str = USER) -> ReviewBuilder:
    """A review of the creation of this object."""
    document = thing.build() if isinstance(thing, Builder) else thing
    group, _, version = cast(str, document.get("apiVersion", "v1")).rpartition("/")
    metadata = document.get("metadata") or {}
    kind = {"group": group, "version": version, "kind": document.get("kind", "")}
    return ReviewBuilder(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "kind": kind,
                "requestKind": kind,
                "resource": {"group": group, "version": version, "resource": f"{kind['kind'].lower()}s"},
                "name": metadata.get("name", ""),
                "namespace": metadata.get("namespace", ""),
                "operation": "CREATE",
                "userInfo": {"username": user, "groups": ["system:authenticated"]},
                "object": document,
                "oldObject": None,
                "dryRun": False,
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            },
        }
    )
