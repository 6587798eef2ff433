"""Exploration weights of policies that stop at the first match.

Such a policy explores children in an order that earlier matches decide: first children that were never used,
then those with most left. What is left is the free count of one type below the child now. The type is the
last by name of the prune types that are kept there: cores for a node, nodes for a rack. A weight is written
when a match passes the edge, also for a reservation or a match that books nothing. It stays unchanged until
the next match; ending a job does not change it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph.jobs import GraphPlacement
from fluxqueue.fluxion.graph.vertices import NODE, Vertex
from fluxqueue.fluxion.match.node_table import NodeTable, Sizes

__all__ = ["InvalidPruneFilters", "PruneTypes", "Weights", "read_prune_filters"]

DEFAULT_FILTERS = "ALL:core,ALL:node"


class InvalidPruneFilters(ValueError):
    """The text is not a list of prune filters ``anchor:type``."""


class PruneTypes:
    """The types that are counted below vertices.

    Parameters
    ----------
    everywhere
        Types counted at every vertex that has some below.
    at
        Vertex type -> further types counted there.
    """

    def __init__(self, everywhere: Iterable[str], at: dict[str, set[str]]) -> None:
        self._everywhere = frozenset(everywhere)
        self._at = at

    def of(self, vertex_type: str) -> frozenset[str]:
        """Return the types counted at vertices of this type."""
        extra = self._at.get(vertex_type)
        return self._everywhere | extra if extra else self._everywhere


def read_prune_filters(text: str | None, leaf_types: Iterable[str]) -> PruneTypes:
    """Read prune filters such as ``ALL:core,rack:node``; clusters count every leaf type in addition.

    Raises
    ------
    InvalidPruneFilters
        A part that is not ``type:type``.
    """
    everywhere: set[str] = set()
    at: dict[str, set[str]] = {"cluster": set(leaf_types)}
    for part in (DEFAULT_FILTERS if text is None else text).split(","):
        if not part.strip():
            continue
        anchor, colon, kind = part.strip().partition(":")
        if not (anchor and colon and kind):
            raise InvalidPruneFilters(f"prune_filters: {part!r:.60} is not anchor:type, for example ALL:core")
        if anchor == "ALL":
            everywhere.add(kind)
        else:
            at.setdefault(anchor, set()).add(kind)
    return PruneTypes(everywhere, at)


class Weights:
    """Writes weights into the vertices of a graph."""

    def __init__(self, table: NodeTable, prune_types: PruneTypes) -> None:
        self._table = table
        self._prune_types = prune_types
        self._counted: dict[Vertex, str | None] = {}
        self._below: dict[Vertex, tuple[npt.NDArray[np.intp], Sizes]] = {}

    def forget(self) -> None:
        """Discard derived data after a change of the graph."""
        self._counted.clear()
        self._below.clear()

    def update(self, placement: GraphPlacement, now: int, *, booked: bool) -> None:
        """Write the weight of every edge a placement goes through.

        A placement that is not booked writes no weight of vertices below a node that it would hold (recorded
        with sockets).
        """
        for vertex, exclusive in placement.vertices.items():
            parent = vertex.parent
            if parent is None or (exclusive and not booked and parent.node is not None):
                continue
            kind = self._last_type(vertex)
            if kind == NODE:
                parent.set_weight(vertex, self._free_nodes(vertex))
            elif kind is not None:
                parent.set_weight(vertex, _free(vertex, kind, now))

    def _free_nodes(self, vertex: Vertex) -> int:
        """Return the number of nodes below a vertex that no allocation holds."""
        if vertex not in self._below:
            nodes = [below for below in vertex.subtree() if below.row >= 0 and below is not vertex]
            self._below[vertex] = (
                self._table.rows(nodes),
                np.array([node.size for node in nodes], dtype=np.int64),
            )
        rows, sizes = self._below[vertex]
        return int(sizes[self._table.held[rows] == 0].sum())

    def _last_type(self, vertex: Vertex) -> str | None:
        if vertex not in self._counted:
            below = {kind for inner in vertex.subtree() for kind in inner.runs}
            below.update(inner.type for inner in vertex.subtree() if inner is not vertex)
            self._counted[vertex] = max(self._prune_types.of(vertex.type) & below, default=None)
        return self._counted[vertex]


def _free(vertex: Vertex, kind: str, now: int) -> int:
    """Return the free units of a type below a vertex."""
    free = 0
    for inner in vertex.subtree():
        run = inner.runs.get(kind)
        if run is not None:
            free += run.amount(run.full & ~run.taken(now, now + 1, now))
        if inner.type == kind and inner is not vertex and not inner.held(now, now + 1, now):
            free += inner.size
    return free
