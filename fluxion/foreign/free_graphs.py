"""The JGF that a foreign matcher is given: what is free now.

Init is the only way to change a foreign graph, and it forgets all jobs. Work that runs cannot be matched
again onto exactly its nodes, for Match takes no nodes. So what running work and foreign pods hold is left out
of the graph, and so are nodes that take nothing: it has what a new job may have, and nothing else.

The text is compact, each edge is given once, and no property is in it. Where it would be larger than a
message of the service, nodes are left out: those asked for at this moment come first, then the order of the
graph decides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import orjson

from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.match.windows import Window

__all__ = ["CLUSTER", "MOST_BYTES", "FreeGraph", "free_amounts", "free_graph"]

CLUSTER = "cluster0"
MOST_BYTES = 4 * 2**20 - 64 * 2**10
"""What a Go service takes in one message, less room for the rest of the request."""

_HEAD = '{"graph":{"nodes":['
_BETWEEN = '],"edges":['
_TAIL = "]}}"


@dataclass(frozen=True, slots=True)
class FreeGraph:
    """A JGF text.

    Attributes
    ----------
    nodes
        Names of the nodes in it.
    left_out
        How many nodes with free resources did not fit into a message.
    """

    text: str
    nodes: frozenset[str]
    left_out: int = 0


def free_amounts(node: Vertex, window: Window) -> dict[str, int]:
    """Return what is free on a node in a window, by type; nothing if the node takes no jobs then."""
    above: Vertex | None = None if window.empty else node
    while above is not None:
        if not above.up or above.closed:
            return {}
        above = above.parent
    if not window.admits(node, exclusive=False):
        return {}
    amounts: dict[str, int] = {}
    for vertex in node.subtree():
        for kind, run in vertex.runs.items():
            amounts[kind] = amounts.get(kind, 0) + run.amount(window.free(run, exclusive=True))
    return {kind: amount for kind, amount in amounts.items() if amount > 0}


def free_graph(
    state: GraphState, units: ForeignUnits, first: Collection[str] = (), most_bytes: int = MOST_BYTES
) -> FreeGraph:
    """Describe what is free now; reservations that begin later are respected when an answer is checked.

    Parameters
    ----------
    first
        Names of nodes that must not be left out.
    most_bytes
        Size of the text at most.
    """
    window = Window(state.now, state.now + 1, state.now)
    offers = {
        node: offered for node in state.graph.nodes if (offered := units.offered(free_amounts(node, window)))
    }
    parts: dict[Vertex, tuple[str, str]] = {}
    writer = _Writer()
    root = writer.vertex("cluster", 0, f"/{CLUSTER}")
    left = most_bytes - len(_HEAD) - len(_BETWEEN) - len(_TAIL) - len(root)
    for node in sorted(offers, key=lambda node: node.name not in first):
        part = writer.node(node, offers[node])
        if (left := left - len(part[0].encode()) - len(part[1]) - 2) < 0:
            break
        parts[node] = part
    chosen = [parts[node] for node in offers if node in parts]
    text = "".join(
        (
            _HEAD,
            ",".join([root, *(vertices for vertices, _ in chosen)]),
            _BETWEEN,
            ",".join(edges for _, edges in chosen),
            _TAIL,
        )
    )
    return FreeGraph(text, frozenset(node.name for node in parts), len(offers) - len(parts))


class _Writer:
    """Writes vertices and edges with ids of their own."""

    def __init__(self) -> None:
        self._next = 0

    def vertex(self, kind: str, number: int, path: str, name: str = "") -> str:
        """Write a vertex; without a name it has that of flux-sched's default, type and number."""
        metadata: dict[str, object] = {"type": kind, "id": number, "paths": {"containment": path}}
        if name:
            metadata |= {"basename": name, "name": name}
        text = orjson.dumps({"id": str(self._next), "metadata": metadata}).decode()
        self._next += 1
        return text

    def node(self, node: Vertex, offered: dict[str, int]) -> tuple[str, str]:
        """Write a node with its leaves: its vertices, and its edges."""
        path = f"/{CLUSTER}/{node.name}"
        ident = self._next
        vertices = [self.vertex("node", node.id, path, node.name)]
        edges = [_edge(0, ident)]
        for kind, count in offered.items():
            for number in range(count):
                edges.append(_edge(ident, self._next))
                vertices.append(self.vertex(kind, number, f"{path}/{kind}{number}"))
        return ",".join(vertices), ",".join(edges)


def _edge(source: int, target: int) -> str:
    return f'{{"source":"{source}","target":"{target}","metadata":{{"subsystem":"containment"}}}}'
