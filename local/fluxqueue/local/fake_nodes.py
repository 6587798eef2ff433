"""The Nodes of a local plane: objects without machines, kept Ready by kwok.

They differ from real ones in nothing the scheduler or the queue reads: allocatable cpu, memory, pod slots and GPUs, a hostname label,
and a place in zone and rack. Racks hold four consecutive nodes and alternate between two zones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["RACK_LABEL", "ZONE_LABEL", "NodeShape", "node_name", "node_object"]

ZONE_LABEL = "topology.kubernetes.io/zone"
RACK_LABEL = "topology.kubernetes.io/rack"
_NODES_PER_RACK = 4
_ZONES = ("zone-a", "zone-b")


@dataclass(frozen=True)
class NodeShape:
    """What each node offers, as Kubernetes quantities."""

    cpu: str = "8"
    memory: str = "32Gi"
    gpus: int = 0
    pods: int = 110


def node_name(index: int) -> str:
    """Name of the node of this index, counted from 1."""
    return f"node-{index}"


def node_object(index: int, shape: NodeShape, *, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """The Node to create.

    Parameters
    ----------
    index
        Counted from 1; decides name, address, rack and zone.
    shape
        What it offers.
    labels
        More labels, or other values for ours.
    """
    rack = (index - 1) // _NODES_PER_RACK
    resources = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods), "ephemeral-storage": "100Gi"}
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
                {"type": "InternalIP", "address": f"10.{128 + index // 65_536}.{index // 256 % 256}.{index % 256}"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "none (kwok)",
                "kernelVersion": "none",
                "containerRuntimeVersion": "kwok://0.8",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
            },
        },
    }
