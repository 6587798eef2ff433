"""Which vertex of each level a node is below, by row of the node table.

The columns follow from the tree alone. They are computed when a request first names a level, and again after
rows changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph.vertices import NODE, Graph, Vertex
from fluxqueue.fluxion.match.node_table import NodeTable

__all__ = ["Ids", "TopologyColumns"]

Ids = npt.NDArray[np.int64]
"""Number of a vertex, or -1."""


class TopologyColumns:
    """Columns over the rows of a node table."""

    def __init__(self, graph: Graph, table: NodeTable) -> None:
        self._graph = graph
        self._table = table
        self._generation = -1
        self._levels: tuple[str, ...] = ()
        self._ids: dict[str, Ids] = {}
        self._vertices: dict[str, list[Vertex]] = {}

    @property
    def levels(self) -> tuple[str, ...]:
        """Types of the vertices between the root and nodes, the lowest first."""
        self._update()
        return self._levels

    def ids(self, kind: str) -> Ids:
        """Return the number of the vertex of a type that each row is below; -1 where there is none."""
        self._update()
        if kind == NODE:
            return np.arange(len(self._table.nodes), dtype=np.int64)
        return self._ids.get(kind, np.full(len(self._table.nodes), -1, dtype=np.int64))

    def name(self, kind: str, number: int) -> str:
        """Return the name of a vertex."""
        self._update()
        return self._table.nodes[number].name if kind == NODE else self._vertices[kind][number].name

    def _update(self) -> None:
        table = self._table
        if self._generation == table.generation:
            return
        self._generation = table.generation
        below: dict[str, set[str]] = {}
        numbers: dict[Vertex, int] = {}
        self._ids, self._vertices = {}, {}
        for row, node in enumerate(table.nodes):
            at, lower = node.parent, ""
            while at is not None and at is not self._graph.root:
                kind = at.type
                if at not in numbers:
                    known = self._vertices.setdefault(kind, [])
                    numbers[at] = len(known)
                    known.append(at)
                below.setdefault(kind, set()).update({lower} - {kind, ""})
                if kind not in self._ids:
                    self._ids[kind] = np.full(len(table.nodes), -1, dtype=np.int64)
                self._ids[kind][row] = numbers[at]
                at, lower = at.parent, kind
        self._levels = _in_order(below)


def _in_order(below: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Return the types, each after those of its vertices' children;
    by name where a graph nests two types in both ways.
    """
    try:
        return tuple(
            TopologicalSorter({kind: sorted(lower) for kind, lower in sorted(below.items())}).static_order()
        )
    except CycleError:
        return tuple(sorted(below))
