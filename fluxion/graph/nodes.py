"""A Kubernetes node as a node of the graph.

A node has its allocatable amounts less what DaemonSets take. Each amount is rounded down to whole units: cpu
in millicores, memory, ephemeral-storage and huge pages in MiB, everything else in pieces. An amount becomes a
pool of vertices, and a match takes whole vertices: 10 millicores, 32 MiB, one huge page, one piece. The last
vertex of a pool has the remainder. On large nodes the vertices of memory are doubled in size until a node has
at most 8,192 of them, because the cost of a set of vertices is its length. Pieces stay single up to 100,000
of a type; such large numbers are no devices.

`fluxqueue.api.graphnames` spells resource types and the properties of labels and taints, for nodes and for
requests. The taints that count are those of `fluxqueue.api.taints`.

Nodes come from the API server, but kubelets, device plugins and people write what is in them. A quantity that
cannot be read marks the node down with the reason, and its pool is left out. Nothing in this module raises
because of the content of a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from fluxqueue.api.graphnames import CPU, label_property, resource_type, taint_property
from fluxqueue.api.nodes import Node
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.api.taints import effective_taints
from fluxqueue.api.topology import DEFAULT_LEVELS, TopologyLevel
from fluxqueue.fluxion.messages import GraphNodeSpec, Level, Pool

__all__ = ["GraphNode", "NodeRules", "graph_node", "unit_of"]

_MILLI: Final = Decimal("0.001")
_MEBI: Final = Decimal(2**20)
_LARGEST: Final = 2**53
_MOST_PIECES: Final = 100_000
_NOT_REQUESTED: Final = "attachable-volumes-"
_NOTHING: Final[Mapping[str, Decimal]] = {}


@dataclass(frozen=True, slots=True)
class NodeRules:
    """Rules by which nodes are cut into vertices.

    Attributes
    ----------
    levels
        From the root down: vertex type and the node label that names the vertex. A node without the label
        skips the level.
    cpu_vertex_m
        Size of a cpu vertex in millicores, 1 to 1,000 (whole cores).
    memory_vertex_mib
        Size of a vertex of memory, in MiB, on nodes where that makes no more than ``most_vertices`` of them.
    most_vertices
        Most vertices of one type of memory on one node; with more, vertices double in size.
    """

    levels: tuple[TopologyLevel, ...] = DEFAULT_LEVELS
    cpu_vertex_m: int = 10
    memory_vertex_mib: int = 32
    most_vertices: int = 8_192

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
        One sentence on why the node is down; empty if it is up.
    problem
        The part of the reason that is about quantities in the node object which cannot be used.
    """

    spec: GraphNodeSpec
    reason: str = ""
    problem: str = ""


_DEFAULTS: Final = NodeRules()


def graph_node(
    node: Node, rules: NodeRules = _DEFAULTS, taken: Mapping[str, Decimal] = _NOTHING
) -> GraphNode:
    """Describe a node for the graph.

    Parameters
    ----------
    node
        As the API server gave it.
    rules
        How it is cut into vertices.
    taken
        What DaemonSets take of it, resource name -> amount in base units (cores, bytes, pieces). If more is
        taken than there is, 0 is left.

    Returns
    -------
    GraphNode
        A node that may not be used is down, with the reason.
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
        totals[resource_type(resource)] = amount
    reasons += wrong
    spec = GraphNodeSpec(
        name=node.metadata.name,
        pools=tuple(_pool(kind, total, rules) for kind, total in sorted(totals.items()) if total),
        levels=tuple(
            Level(kind, value) for kind, label in rules.levels if (value := node.metadata.label(label))
        ),
        properties=_properties(node),
        down=bool(reasons),
    )
    return GraphNode(
        spec, f"node {spec.name} is down: {'; '.join(reasons)}" if reasons else "", "; ".join(wrong)
    )


def unit_of(resource: str) -> Decimal:
    """Return the unit in which the graph counts a resource (millicores, MiB, pieces),
    in the resource's base unit.
    """
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
    return (
        str(error)
        if isinstance(error, (InvalidQuantity, OverflowError))
        else f"{text!r} is more than any node has"
    )


def _pool(kind: str, total: int, rules: NodeRules) -> Pool:
    """Return the pool of an amount; types of memory and cpu have the names of their resources,
    so the type decides the vertex size.
    """
    if _is_memory(kind):
        size, most = _page_mib(kind) or rules.memory_vertex_mib, rules.most_vertices
    else:
        size, most = (rules.cpu_vertex_m if kind == CPU else 1), _MOST_PIECES
    while -(-total // size) > most:
        size *= 2
    return Pool(kind, total, size)


def _page_mib(kind: str) -> int:
    """Return the size of a huge page, since requests are in whole pages;
    0 for any other memory, and for pages of less than 1 MiB.
    """
    head, _, size = kind.partition("-")
    try:
        return int(parse_quantity(size) // _MEBI) if head == "hugepages" else 0
    except (InvalidQuantity, ArithmeticError):
        return 0


def _properties(node: Node) -> dict[str, str]:
    properties: dict[str, str] = {}
    for key, value in sorted((node.metadata.labels or {}).items()):
        properties[key] = value
        properties[label_property(key, value)] = ""
    properties.update((taint_property(taint), "") for taint in effective_taints(node))
    return properties


def _why_down(node: Node) -> list[str]:
    reasons = []
    if node.metadata.deletion_timestamp:
        reasons.append("it is being deleted")
    if node.spec.unschedulable:
        reasons.append("it is cordoned")
    if not node.status.ready:
        ready = next(
            (condition for condition in node.status.conditions or () if condition.type == "Ready"), None
        )
        reasons.append(
            f"it is not ready ({ready.message or ready.reason or ready.status})"
            if ready
            else "it has not reported yet"
        )
    return reasons
