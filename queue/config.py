"""The configuration file of the queue service: YAML that the chart renders, read once at start."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from fluxqueue.api.bounds import DEFAULT_MAX_PODS, MOST_PODS
from fluxqueue.api.fluxqueues import SchedulerName, WaitingBudget
from fluxqueue.api.graphnames import resource_type
from fluxqueue.api.pinwindows import DEFAULT_WINDOW_S
from fluxqueue.api.topology import TopologyLevel, levels_problem
from fluxqueue.fluxion.graph.nodes import NodeRules
from fluxqueue.queue.model.idleness import IdleRules
from fluxqueue.queue.model.prices import PricesConfig, prices_problem, units_of
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShape, possible_nodes

__all__ = [
    "AccountingConfig",
    "ConfiguredLevel",
    "FairShareConfig",
    "ForeignConfig",
    "InvalidConfig",
    "Matcher",
    "QueueConfig",
    "WaitingConfig",
    "node_rules",
    "read_config",
]


class InvalidConfig(ValueError):
    """The configuration cannot be read; the message names the file and the key."""


class AccountingConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """How long the records of ended work are kept (docs/accounting.md).

    Attributes
    ----------
    months
        Whole months before the present one. An older month is taken off the records at once.
    expired
        ``drop`` deletes such a month; ``detach`` leaves it as a table of its own, for an export.
    """

    months: Annotated[int, msgspec.Meta(ge=1, le=1200)] = 13
    expired: Literal["drop", "detach"] = "drop"


class FairShareConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """How the use of accounts is measured (docs/fair-share.md).

    Attributes
    ----------
    half_life_seconds
        After this time a use counts half.
    resource_weights
        What each resource counts, by its name in Kubernetes: a core, a GiB, or a piece. Other resources are
        free.
    """

    half_life_seconds: Annotated[int, msgspec.Meta(ge=60, le=315_360_000)] = 604_800
    resource_weights: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]] = msgspec.field(
        default_factory=lambda: {"cpu": 1.0}
    )

    @property
    def weights(self) -> dict[str, float]:
        """What a unit of each resource type of the graph counts (millicores, MiB, pieces)."""
        return {
            resource_type(name): weight / units_of(name) for name, weight in self.resource_weights.items()
        }


class WaitingConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """How much work of one namespace may wait with its request in memory, over all queues (docs/capacity.md).

    Attributes
    ----------
    workloads, requests_mi_b
        The most workloads, and the most MiB of their requests.
    """

    workloads: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    requests_mi_b: Annotated[int, msgspec.Meta(ge=1)] = msgspec.field(default=64, name="requestsMiB")

    @property
    def budget(self) -> WaitingBudget:
        """The same as a budget."""
        return WaitingBudget(workloads=self.workloads, requests_mi_b=self.requests_mi_b)


class Matcher(enum.StrEnum):
    """Who chooses nodes: the project's own matcher, or a Fluxion service of which only Init,
    Match and Cancel are used.
    """

    OWN = "own"
    FOREIGN = "foreign"


class ForeignConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """In which units a foreign matcher counts (docs/foreign-fluxion.md).

    Attributes
    ----------
    cpu_vertex_millicores, memory_vertex_mi_b
        Sizes of the vertices of its graph.
    """

    cpu_vertex_millicores: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1_000
    memory_vertex_mi_b: Annotated[int, msgspec.Meta(ge=1)] = msgspec.field(
        default=1_024, name="memoryVertexMiB"
    )


class ConfiguredLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A level of the topology: its name, and the node label that names its vertices."""

    name: str
    label: str


class QueueConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Settings of this installation.

    Attributes
    ----------
    policy
        Match policy of Fluxion.
    matcher
        Which matcher chooses nodes.
    foreign
        Units of a foreign one.
    devices
        True if devices and the claims for them are counted, where the cluster has them.
    cpu_vertex_millicores, memory_vertex_mi_b
        Sizes of the graph's vertices.
    zone_label, block_label, rack_label
        Node labels that become levels of the graph; an empty one omits the level.
    topology_levels
        Levels instead of these three, from the top down; empty: these three.
    max_pods
        How many pods one workload may run at the same time.
    start_timeout_seconds
        How long released pods may take to be bound.
    node_lost_seconds
        How long a node may be NotReady before its work is requeued.
    successor_grace_seconds
        How long the slot of a Deployment's pod waits for the replacement of the pod.
    pin_window_seconds
        How long new pods of a released Job are pinned at their creation, in addition to 50 ms for each pod.
    namespaces
        ``optIn`` or ``allButSystem``.
    node_shapes
        Nodes that the cluster may add.
    waiting_per_namespace
        How much work of one namespace may wait with its request in memory.
    retention_seconds
        How long ended workloads and their history stay in the tables.
    accounting
        How long the records of ended work are kept.
    fair_share
        How the use of accounts is measured.
    prices
        What nodes cost.
    idle
        When running work is idle, and what becomes of it.
    log_level
        ``debug``, ``info``, ``warning`` or ``error``; ``--log-level`` comes first.
    image
        Of the queue itself; the REST service of MiniClusters runs from it.
    cluster_domain
        Domain of the cluster's DNS.
    scheduler
        Which scheduler binds pods if neither a label nor the FluxQueue names one; None if ours is not
        installed.
    """

    policy: str = "lonode"
    matcher: Matcher = Matcher.OWN
    foreign: ForeignConfig = ForeignConfig()
    devices: bool = True
    cpu_vertex_millicores: int = 10
    memory_vertex_mi_b: int = msgspec.field(default=32, name="memoryVertexMiB")
    zone_label: str = "topology.kubernetes.io/zone"
    block_label: str = "topology.kubernetes.io/block"
    rack_label: str = "topology.kubernetes.io/rack"
    topology_levels: tuple[ConfiguredLevel, ...] = ()
    max_pods: Annotated[int, msgspec.Meta(ge=1, le=MOST_PODS)] = DEFAULT_MAX_PODS
    start_timeout_seconds: int = 300
    node_lost_seconds: int = 60
    successor_grace_seconds: int = 30
    pin_window_seconds: int = DEFAULT_WINDOW_S
    namespaces: str = "optIn"
    node_shapes: tuple[NodeShape, ...] = ()
    waiting_per_namespace: WaitingConfig = WaitingConfig()
    retention_seconds: int = 86_400
    accounting: AccountingConfig = AccountingConfig()
    fair_share: FairShareConfig = FairShareConfig()
    prices: PricesConfig = PricesConfig()
    idle: IdleRules = IdleRules()
    log_level: str = "info"
    image: str = "fluxqueue-queue"
    cluster_domain: str = "cluster.local"
    scheduler: SchedulerName | None = None

    @property
    def levels(self) -> tuple[TopologyLevel, ...]:
        """The levels of the topology, from the top down."""
        if self.topology_levels:
            return tuple((level.name, level.label) for level in self.topology_levels)
        labels = (("zone", self.zone_label), ("block", self.block_label), ("rack", self.rack_label))
        return tuple((name, label) for name, label in labels if label)


def read_config(path: Path | None) -> QueueConfig:
    """Read the file; return the defaults if there is none.

    Raises
    ------
    InvalidConfig
        The file is missing, is not YAML, or has a key or value that is unknown or impossible.
    """
    if path is None:
        return QueueConfig()
    try:
        config = msgspec.yaml.decode(path.read_bytes() or b"{}", type=QueueConfig)
        if problem := levels_problem(config.levels):
            raise InvalidConfig(f"the configuration {path} is invalid: topologyLevels: {problem}")
        if problem := prices_problem(config.prices):
            raise InvalidConfig(f"the configuration {path} is invalid: prices.{problem}")
        if config.idle.prometheus.url and not config.idle.query.strip():
            raise InvalidConfig(
                f"the configuration {path} is invalid: idle.query is empty: say what the use is"
            )
        possible_nodes(config.node_shapes, node_rules(config))
    except OSError as error:
        raise InvalidConfig(f"the configuration {path} cannot be read: {error.strerror}") from None
    except InvalidConfig:
        raise
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidConfig(f"the configuration {path} is invalid: {error}") from None
    return config


def node_rules(config: QueueConfig) -> NodeRules:
    """Return how nodes become vertices of the graph.

    Raises
    ------
    ValueError
        The size of a vertex is impossible.
    """
    return NodeRules(
        levels=config.levels,
        cpu_vertex_m=config.cpu_vertex_millicores,
        memory_vertex_mib=config.memory_vertex_mi_b,
    )
