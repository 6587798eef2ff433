"""The nodes of a local cluster: Node objects without machines, which kwok keeps Ready.

They have everything that the scheduler and the queue read: allocatable cpu, memory, pod slots and GPUs, a
hostname label, and labels of zone and rack. Each rack has four consecutive nodes, and the racks alternate
between two zones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fluxqueue.local.apiserver_client import ApiServerClient, ApiServerError
from fluxqueue.local.processes import wait_until

__all__ = ["LEASES", "RACK_LABEL", "ZONE_LABEL", "FakeNodeShape", "FakeNodes", "node_name", "node_object"]

ZONE_LABEL = "topology.kubernetes.io/zone"
RACK_LABEL = "topology.kubernetes.io/rack"
_NODES_PER_RACK = 4
_ZONES = ("zone-a", "zone-b")
_DOWN = "fluxqueue.local/down"
_STUCK = "fluxqueue.local/stuck"
_RESYNCED = "fluxqueue.local/resynced"
_RUNTIME = "kwok://"
_NODE_INFO = {
    "architecture": "amd64",
    "operatingSystem": "linux",
    "osImage": "none (kwok)",
    "kernelVersion": "none",
    "containerRuntimeVersion": f"{_RUNTIME}0.8",
    "kubeletVersion": "v1.36.3",
    "kubeProxyVersion": "",
    "bootID": "",
    "machineID": "",
    "systemUUID": "",
}
_LEASE_LAG_S = 0.5
"""How far kwok's own watch of the Leases may be behind the API server."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
"""The path of the Leases of all nodes."""


@dataclass(frozen=True)
class FakeNodeShape:
    """The allocatable resources of each node, as Kubernetes quantities."""

    cpu: str = "8"
    memory: str = "32Gi"
    gpus: int = 0
    pods: int = 110


def node_name(index: int) -> str:
    """Return the name of a node; the index counts from 1."""
    return f"node-{index}"


def node_object(index: int, shape: FakeNodeShape, *, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Node object.

    Parameters
    ----------
    index
        Counted from 1; decides name, address, rack and zone.
    shape
        Its resources.
    labels
        Additional labels, or other values of the default ones.
    """
    rack = (index - 1) // _NODES_PER_RACK
    resources = {
        "cpu": shape.cpu,
        "memory": shape.memory,
        "pods": str(shape.pods),
        "ephemeral-storage": "100Gi",
    }
    if shape.gpus:
        resources["nvidia.com/gpu"] = str(shape.gpus)
    name = node_name(index)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node-role.kubernetes.io/worker": "",
                "type": "kwok",
                ZONE_LABEL: _ZONES[rack % len(_ZONES)],
                RACK_LABEL: f"rack-{rack + 1}",
                **(labels or {}),
            },
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {
                    "type": "InternalIP",
                    "address": f"10.{128 + index // 65_536}.{index // 256 % 256}.{index % 256}",
                },
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": dict(_NODE_INFO),
        },
    }


class FakeNodes:
    """The nodes of a running control plane.

    Parameters
    ----------
    client
        The API server, as administrator.
    shape
        Shape of new nodes.
    """

    def __init__(self, client: ApiServerClient, shape: FakeNodeShape) -> None:
        self._client = client
        self._shape = shape

    def add(
        self, indexes: Iterable[int], shape: FakeNodeShape | None = None, labels: dict[str, str] | None = None
    ) -> list[str]:
        """Create the nodes that do not exist; return the names of all,
        without waiting until they are Ready.
        """

        def create(index: int) -> str:
            try:
                self._client.request(
                    "POST", "/api/v1/nodes", node_object(index, shape or self._shape, labels=labels)
                )
            except ApiServerError as error:
                if error.status != 409:
                    raise
            return node_name(index)

        with ThreadPoolExecutor(4, thread_name_prefix="nodes") as pool:
            return list(pool.map(create, indexes))

    def simulate(self) -> None:
        """Let the nodes that ran processes when the folder was last up say that they are simulated,
        and have no kubelet.
        """
        for node in self._client.get("/api/v1/nodes")["items"]:
            name, info = node["metadata"]["name"], node["status"].get("nodeInfo", {})
            if not info.get("containerRuntimeVersion", "").startswith(_RUNTIME):
                status = node_object(int(name.rpartition("-")[2]), self._shape)["status"]
                now = {
                    "addresses": status["addresses"],
                    "nodeInfo": status["nodeInfo"],
                    "daemonEndpoints": None,
                }
                self._client.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": now})

    def remove(self, name: str) -> None:
        """Delete a node; the controller manager deletes its pods."""
        self._client.request("DELETE", f"/api/v1/nodes/{name}")

    def restore(self, index: int) -> None:
        """Create a removed node again, and end the pods that were deleted from it meanwhile, as its kubelet
        would.

        kwok sees no deletion while the node does not exist, and not every deletion afterwards.
        """
        (name,) = self.add([index])
        for pod in self._client.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"]:
            meta = pod["metadata"]
            if "deletionTimestamp" in meta and (meta.get("annotations") or {}).get(_STUCK) != "true":
                with suppress(ApiServerError):  # it may be deleted by now
                    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                    self._client.request(
                        "DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
                    )

    def resync_pods(self, timeout_s: float) -> None:
        """Wait until kwok holds the Lease of every node, then show it every bound pod that has not ended.

        kwok ignores an event of a pod while its own cache does not contain the Lease of the node yet, and it
        reads the pods of a node once, immediately after it created the Lease. A pod that was bound before or
        during these milliseconds would stay as it is for ever; an update of the pod is an event that kwok
        does not ignore.

        Raises
        ------
        NotReady
            A node is without a Lease after ``timeout_s``.
        """

        def all_held() -> bool:
            leases = {lease["metadata"]["name"] for lease in self._client.get(LEASES)["items"]}
            return all(
                node["metadata"]["name"] in leases
                for node in self._client.get("/api/v1/nodes", resourceVersion="0")["items"]
            )

        wait_until(all_held, "a Lease of every node", timeout_s)
        time.sleep(_LEASE_LAG_S)
        mark = {"metadata": {"annotations": {_RESYNCED: str(time.time_ns())}}}
        for pod in self._client.get(
            "/api/v1/pods", fieldSelector="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
        )["items"]:
            meta = pod["metadata"]
            with suppress(ApiServerError):  # it may be deleted by now
                self._client.request(
                    "PATCH", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", mark
                )

    def set_down(self, name: str, down: bool = True) -> None:
        """Make a node NotReady, or Ready again, by the annotation that the Stage files use."""
        body = {"metadata": {"annotations": {_DOWN: "true" if down else None}}}
        self._client.request("PATCH", f"/api/v1/nodes/{name}", body)

    def schedulable(self) -> int:
        """Return the number of nodes to which pods can be bound now."""
        return sum(map(_schedulable, self._client.get("/api/v1/nodes", resourceVersion="0")["items"]))


def _schedulable(node: Mapping[str, Any]) -> bool:
    """True if the node is Ready and does not have the taint of a new node any more."""
    conditions = {
        condition["type"]: condition["status"] for condition in node["status"].get("conditions", ())
    }
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints
