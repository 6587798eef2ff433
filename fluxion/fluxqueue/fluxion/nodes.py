"""A Kubernetes node as a node of the graph.

What a node has is its allocatable amounts less what is told to be taken (DaemonSets), each rounded down to whole units: cpu in
millicores, memory and its kin (ephemeral-storage, hugepages) in MiB, everything else in pieces. An amount becomes a pool of vertices,
which is what a match takes whole: 100 millicores, 256 MiB, one piece. The last vertex of a pool carries the remainder. On big nodes the
vertices of memory are doubled in size until a node has no more than 2,048 of them, because a match looks at each. Pieces stay single
up to 100,000 of a kind, where no device is meant any more.

Resource types, properties of labels and of taints are spelt as in `fluxqueue.api.graphnames`, from where the request side takes them
too. The taints with which Kubernetes itself says that a node is cordoned or not ready are left out: the node is down then, and one
fact that comes and goes should not be told twice.

Nodes come from the API server, but what is in them was written by kubelets, device plugins and people. A quantity that is none makes
the node down with the reason, and the pool it stands in is left out; nothing in here raises because of what a node says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from fluxqueue.api.graphnames import CPU, label_property, resource_type, taint_property
from fluxqueue.api.names import ZONE_LABEL
from fluxqueue.api.objects import Node
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.fluxion.messages import Level, NodeSpec, Pool

__all__ = ["GraphNode", "NodeRules", "graph_node", "unit_of"]

_MILLI: Final = Decimal("0.001")
_MEBI: Final = Decimal(2**20)
_LARGEST: Final = 2**53
_MOST_PIECES: Final = 100_000
_NOT_REQUESTED: Final = "attachable-volumes-"
_SAID_BY_DOWN: Final = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
_NOTHING: Final[Mapping[str, Decimal]] = {}


@dataclass(frozen=True, slots=True)
class NodeRules:
    """How nodes are cut into vertices.

    Attributes
    ----------
    levels
        From the root down: vertex type and the node label that names the vertex. A node without the label skips the level.
    cpu_vertex_m
        Size of a cpu vertex in millicores, 1 to 1,000 (whole cores).
    memory_vertex_mib
        Size of a vertex of memory, in MiB, on nodes where that makes no more than ``most_vertices`` of them.
    most_vertices
        Of one type of memory on one node; beyond, vertices double in size.
    """

    levels: tuple[tuple[str, str], ...] = (("zone", ZONE_LABEL),)
    cpu_vertex_m: int = 100
    memory_vertex_mib: int = 256
    most_vertices: int = 2_048

    def __post_init__(self) -> None:
        if not 1 <= self.cpu_vertex_m <= 1_000:
            raise ValueError(f"a cpu vertex of {self.cpu_vertex_m} millicores: choose 1 to 1000")
        if self.memory_vertex_mib < 1 or self.most_vertices < 1:
            raise ValueError("memory vertices need a size and a number of at least 1")


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node to put into the graph.

    Attributes
    ----------
    reason
        Why it is down if it is: one sentence, else empty.
    complaint
        What of that is wrong with what the node says of itself: quantities that cannot be used.
    """

    spec: NodeSpec
    reason: str = ""
    complaint: str = ""


_DEFAULTS: Final = NodeRules()


def graph_node(node: Node, rules: NodeRules = _DEFAULTS, taken: Mapping[str, Decimal] = _NOTHING) -> GraphNode:
    """Describe a node for the graph.

    Parameters
    ----------
    node
        As the API server gave it.
    rules
        How it is cut into vertices.
    taken
        What DaemonSets take of it, resource name -> amount in base units (cores, bytes, pieces); less than nothing left is nothing.

    Returns
    -------
    GraphNode
        Always; a node that may not be used is down and says why.
    """
    reasons = _why_down(node)
    wrong: list[str] = []
    totals: dict[str, int] = {}
    for resource, text in sorted((node.status.allocatable or {}).items()):
        if resource.startswith(_NOT_REQUESTED):
            continue
        try:
            amount = _whole(resource, text, taken.get(resource, Decimal()))
        except (InvalidQuantity, ArithmeticError) as error:
            wrong.append(f"its allocatable {resource} cannot be used: {_why_unusable(text, error)}")
            continue
        kind = resource_type(resource)
        totals[kind] = totals.get(kind, 0) + amount
    reasons += wrong
    spec = NodeSpec(
        name=node.metadata.name,
        pools=tuple(_pool(kind, total, rules) for kind, total in sorted(totals.items()) if total),
        levels=tuple(Level(kind, value) for kind, label in rules.levels if (value := node.metadata.label(label))),
        properties=_properties(node),
        down=bool(reasons),
    )
    return GraphNode(spec, f"node {spec.name} is down: {'; '.join(reasons)}" if reasons else "", "; ".join(wrong))


def unit_of(resource: str) -> Decimal:
    """The unit in which the graph counts a resource, in its base unit: millicores, MiB, pieces."""
    if resource == CPU:
        return _MILLI
    return _MEBI if _is_memory(resource) else Decimal(1)


def _is_memory(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def _whole(resource: str, text: str | int | float, taken: Decimal) -> int:
    amount = int((parse_quantity(text) - taken) // unit_of(resource))
    if amount > _LARGEST:
        raise OverflowError(f"{text!r} is more than any node has")
    return max(amount, 0)


def _why_unusable(text: str | int | float, error: Exception) -> str:
    return str(error) if isinstance(error, (InvalidQuantity, OverflowError)) else f"{text!r} is more than any node has"


def _pool(kind: str, total: int, rules: NodeRules) -> Pool:
    """Types of memory and cpu keep the names of their resources, so the type tells what kind of amount it is."""
    if _is_memory(kind):
        size, most = rules.memory_vertex_mib, rules.most_vertices
    else:
        size, most = (rules.cpu_vertex_m if kind == CPU else 1), _MOST_PIECES
    while -(-total // size) > most:
        size *= 2
    return Pool(kind, total, size)


def _properties(node: Node) -> dict[str, str]:
    properties: dict[str, str] = {}
    for key, value in sorted((node.metadata.labels or {}).items()):
        properties[key] = value
        properties[label_property(key, value)] = ""
    for taint in node.spec.taints or ():
        if taint.key not in _SAID_BY_DOWN:
            properties[taint_property(taint)] = ""
    return properties


def _why_down(node: Node) -> list[str]:
    reasons = []
    if node.metadata.deletion_timestamp:
        reasons.append("it is being deleted")
    if node.spec.unschedulable:
        reasons.append("it is cordoned")
    if not node.status.ready:
        ready = next((condition for condition in node.status.conditions or () if condition.type == "Ready"), None)
        reasons.append(f"it is not ready ({ready.message or ready.reason or ready.status})" if ready else "it has not reported yet")
    return reasons
