"""Settings of the queue service: a YAML file the chart renders, read once at start."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fluxqueue.fluxion.nodes import NodeRules
from fluxqueue.queue.provisioning import NodeShape, imagined_nodes

__all__ = ["InvalidConfig", "QueueConfig", "node_rules", "read_config"]


class InvalidConfig(ValueError):
    """The configuration cannot be read; the message names file and key."""


class QueueConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """How this installation of the queue behaves.

    Attributes
    ----------
    policy
        Match policy of Fluxion.
    cpu_vertex_millicores, memory_vertex_mi_b
        Sizes of the graph's vertices.
    zone_label, rack_label
        Node labels that become levels of the graph; empty leaves the level out.
    start_timeout_seconds
        How long released pods may take to be bound.
    node_lost_seconds
        How long a node may be not ready before what runs on it is placed anew.
    successor_grace_seconds
        How long the slot of a Deployment's pod waits for its successor.
    namespaces
        ``optIn`` or ``allButSystem``.
    node_shapes
        Nodes the cluster may grow by.
    retention_seconds
        How long ended workloads stay in the table.
    image
        Of the queue itself: MiniClusters run their REST service from it.
    cluster_domain
        Of the cluster's DNS.
    """

    policy: str = "lonode"
    cpu_vertex_millicores: int = 100
    memory_vertex_mi_b: int = msgspec.field(default=256, name="memoryVertexMiB")
    zone_label: str = "topology.kubernetes.io/zone"
    rack_label: str = "topology.kubernetes.io/rack"
    start_timeout_seconds: int = 300
    node_lost_seconds: int = 60
    successor_grace_seconds: int = 30
    namespaces: str = "optIn"
    node_shapes: tuple[NodeShape, ...] = ()
    retention_seconds: int = 86_400
    log_level: str = "info"
    image: str = "fluxqueue-queue"
    cluster_domain: str = "cluster.local"


def read_config(path: Path | None) -> QueueConfig:
    """Read the file, or take the defaults where there is none.

    Raises
    ------
    InvalidConfig
        The file is missing, not YAML, or holds a key or value that is not understood or cannot be meant.
    """
    if path is None:
        return QueueConfig()
    try:
        config = msgspec.yaml.decode(path.read_bytes() or b"{}", type=QueueConfig)
        imagined_nodes(config.node_shapes, node_rules(config))
    except OSError as error:
        raise InvalidConfig(f"the configuration {path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidConfig(f"the configuration {path} is not understood: {error}") from None
    return config


def node_rules(config: QueueConfig) -> NodeRules:
    """How nodes are cut into vertices.

    Raises
    ------
    ValueError
        A vertex of a size that cannot be.
    """
    levels = (("zone", config.zone_label), ("rack", config.rack_label))
    return NodeRules(
        levels=tuple((kind, label) for kind, label in levels if label),
        cpu_vertex_m=config.cpu_vertex_millicores,
        memory_vertex_mib=config.memory_vertex_mi_b,
    )
