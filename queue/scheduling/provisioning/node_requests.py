"""What is requested from an autoscaler, and what a way to request it does.

A request names the pods of a workload in sets of equal placement. The pods here have what placement needs of
a pod: its effective requests and its host ports in one container, and all rules about nodes, including those
of its queue. How many pods may share a node is a spread constraint. None of them ever runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
import orjson

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, fluxjob_name
from fluxqueue.api.hostports import open_ports
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import pod_requests
from fluxqueue.kube.kinds import Key
from fluxqueue.queue.model.jobspecs import pods_per_node_in
from fluxqueue.queue.model.records import Workload

__all__ = [
    "LONGEST_NAME",
    "NodeRequest",
    "NodeRequester",
    "NotRequested",
    "PodSetTemplate",
    "PresentRequest",
    "pod_sets_of",
    "request_name",
]

LONGEST_NAME = 63
_DIGEST = 8
_MORE_THAN_ALL_NODES = 1_000_000


class NotRequested(Exception):
    """Nodes are not requested now. The message says why.

    Attributes
    ----------
    waits
        True if the requester itself says when to try again.
    """

    def __init__(self, message: str, *, waits: bool = False) -> None:
        super().__init__(message)
        self.waits = waits


@dataclass(frozen=True, slots=True)
class PodSetTemplate:
    """Pods with the same placement.

    Attributes
    ----------
    labels, spec
        Of one pod, as far as they matter for placement.
    count
        Number of pods.
    """

    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    count: int


def pod_sets_of(
    pods: Iterable[tuple[Mapping[str, str], PodSpec, int]],
    node_selector: Mapping[str, str],
    workload: Workload,
) -> list[PodSetTemplate]:
    """Return the pod sets of a workload.

    Parameters
    ----------
    pods
        Labels, spec with all defaults, and how many of each.
    node_selector
        Of their queue.
    workload
        Whose pods they are.
    """
    spread = _spread(workload)
    pod_sets: dict[bytes, PodSetTemplate] = {}
    for labels, spec, count in pods:
        pod_set = PodSetTemplate(labels, {**_placement(spec, node_selector), **spread}, count)
        key = orjson.dumps([dict(labels), pod_set.spec], option=orjson.OPT_SORT_KEYS)
        known = pod_sets.get(key)
        pod_sets[key] = pod_set if known is None else replace(known, count=known.count + count)
    return list(pod_sets.values())


def _placement(spec: PodSpec, node_selector: Mapping[str, str]) -> dict[str, Any]:
    requests = {name: f"{amount.normalize():f}" for name, amount in sorted(pod_requests(spec).items())}
    # The API server requires a limit too for resources that pods cannot share.
    limits = {
        name: amount
        for name, amount in requests.items()
        if name not in ("cpu", "memory", "ephemeral-storage")
    }
    container: dict[str, Any] = {
        "name": "room",
        "image": "room",
        "resources": {"requests": requests, **({"limits": limits} if limits else {})},
    }
    if ports := sorted({*open_ports(spec)}):
        container["ports"] = [
            {"containerPort": number, "hostPort": number, "protocol": protocol, "hostIP": address}
            for protocol, number, address in ports
        ]
    made: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if selector := {**(spec.node_selector or {}), **node_selector}:
        made["nodeSelector"] = selector
    if spec.affinity:
        made["affinity"] = {**spec.affinity}
    if spec.tolerations:
        made["tolerations"] = msgspec.to_builtins(spec.tolerations)
    return made


def _spread(workload: Workload) -> dict[str, Any]:
    """Return the field by which a node gets no more pods of a workload than it may."""
    most = pods_per_node_in(workload.jobspec)
    if not most:
        return {}
    constraint = {
        "topologyKey": names.HOSTNAME_LABEL,
        "maxSkew": most,
        # So many nodes do not exist, so each is compared with 0 pods and not with the emptiest one.
        "minDomains": _MORE_THAN_ALL_NODES,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {names.PROVISIONS_LABEL: workload.uid}},
    }
    return {"topologySpreadConstraints": [constraint]}


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A request for nodes.

    Attributes
    ----------
    key
        Namespace and name by which it is known.
    workload, pod_sets
        For whose pods.
    fluxjob
        Of the workload.
    """

    key: Key
    workload: Workload
    pod_sets: Sequence[PodSetTemplate]
    fluxjob: FluxJob

    @property
    def pods(self) -> int:
        """Number of pods."""
        return sum(pod_set.count for pod_set in self.pod_sets)


@dataclass(frozen=True, slots=True)
class PresentRequest:
    """A request of which there are objects.

    Attributes
    ----------
    key
        As in `NodeRequest`.
    complete
        False if some of its objects are missing.
    failed
        Why it is not waited for any longer; empty while it is.
    """

    key: Key
    complete: bool = True
    failed: str = ""


class NodeRequester(Protocol):
    """A way to request nodes. Each method may be called again after it was interrupted anywhere."""

    def key(self, workload: Workload) -> Key:
        """Return the key of the request of a workload. A changed workload has another."""

    def adopt(self, workload: Workload) -> None:
        """Take over the request of a workload of which an earlier leader created objects, before any other
        is created.
        """

    async def create(self, request: NodeRequest) -> None:
        """Create all objects of a request that do not exist.

        Raises
        ------
        NotRequested
            They are not created.
        """

    async def delete(self, key: Key) -> None:
        """Delete all objects of a request."""

    async def present(self) -> list[PresentRequest]:
        """Return the requests of which there are objects.

        Raises
        ------
        NotFound
            The cluster does not serve them.
        """


def request_name(workload: Workload, *, within: int = LONGEST_NAME) -> str:
    """Return the name of its request for nodes.
    Each request of the workload gets another name, since the objects cannot change.
    """
    own = fluxjob_name(workload.kind, workload.name, workload.uid, within=within - _DIGEST - 1)
    return f"{own}-{workload.shape[:_DIGEST]}"
