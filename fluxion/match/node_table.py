"""The node table: one row per node with what can be checked without visiting the node.

Rows are ordered by node id, which is the order in which policies take nodes. So the first node that qualifies
is the first set entry of a boolean vector. A row has: whether the node can be used, the leaves of each type
that no allocation holds, the number of jobs on it, and the number of reservations. It describes the present.
It is exact for windows that begin now and contain no reservation. For all other windows it is an upper bound,
and the node itself must be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from fluxqueue.api.graphnames import taints_in
from fluxqueue.api.nodes import Taint
from fluxqueue.fluxion.graph.constraints import Constraint
from fluxqueue.fluxion.graph.jobs import GraphJob
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import NODE, Graph, Vertex
from fluxqueue.fluxion.match.changed_rows import ChangedRows
from fluxqueue.fluxion.match.present_leaves import PresentLeaves

__all__ = ["NodeTable"]

_LONGEST_LOG = 1_000
Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int32]
Sizes = npt.NDArray[np.int64]


class NodeTable:
    """Vectors over the nodes of a graph.

    Attributes
    ----------
    nodes
        Node of each row, ascending by id.
    generation
        A counter that changes whenever rows or pools change.
    present
        False where a node was removed; its row stays until the next rebuild.
    open, usable
        True if the node and all its ancestors are up and not closed; and, for usable, none of them is held by
        an allocation.
    held
        Allocations that hold the node.
    jobs, reservations
        Allocations and reservations that touch the node.
    full, free
        Type -> number of all leaves, and number of leaves that are up and held by no allocation.
    total, amount
        The same as sums of the leaves' sizes.
    sizes, smallest, greatest
        Type -> size of most leaves of a node, by row; its extremes over all nodes.
    largest, top_id, odd
        Type -> size of the largest leaf and highest id of all; types with a leaf of another size.
    changed
        Log of the rows on which something changed.
    present_leaves
        Free leaves of windows that begin now, reservations included.
    least_step
        Smallest difference of the factors of neighbouring rows.
    ordered
        True if all ids differ, so that the order of rows is the order of every policy by id.
    flat
        True if all nodes are children of the root.
    monotone
        True if unique ids of leaves ascend with their ids.
    plain
        True if all leaves are children of nodes, so that nothing below a node needs a traversal.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.generation = 0
        self.changed = ChangedRows()
        self.present_leaves = PresentLeaves(self)
        self.rebuild()

    def rebuild(self) -> None:
        """Rebuild all rows after a change of the graph."""
        graph = self._graph
        self.generation += 1
        self.changed.forget()
        self.present_leaves.forget()
        self.nodes: list[Vertex] = sorted(graph.nodes, key=lambda node: node.id)
        self.present: Mask = np.ones(len(self.nodes), dtype=np.bool_)
        size = len(self.nodes)
        self.usable: Mask = np.zeros(size, dtype=np.bool_)
        self.open: Mask = np.zeros(size, dtype=np.bool_)
        self.held: Counts = np.zeros(size, dtype=np.int32)
        self.jobs: Counts = np.zeros(size, dtype=np.int32)
        self.reservations: Counts = np.zeros(size, dtype=np.int32)
        self.free: dict[str, Counts] = {}
        self.full: dict[str, Counts] = {}
        self.amount: dict[str, Sizes] = {}
        self.total: dict[str, Sizes] = {}
        self.sizes: dict[str, Sizes] = {}
        self.largest: dict[str, int] = {}
        self.smallest: dict[str, int] = {}
        self.greatest: dict[str, int] = {}
        self.top_id: dict[str, int] = {}
        self.odd: set[str] = set()
        self.monotone = True
        self.ordered = all(a.id < b.id for a, b in pairwise(self.nodes))
        inner = [vertex for vertex in graph.by_path.values() if vertex.type != NODE]
        self.plain = (
            graph.root.type != NODE
            and not any(vertex.runs for vertex in inner)
            and not any(node.children for node in self.nodes)
            and not any(child.type == NODE for node in self.nodes for child in node.children)
        )
        self.flat = all(node.parent is graph.root for node in self.nodes)
        self.inner_types = {vertex.type for vertex in graph.by_path.values()}
        self._forget_accepted()
        for row, node in enumerate(self.nodes):
            node.row = row
            for kind, run in node.runs.items():
                self._add_type(kind)
                self._measure(row, run)
            self.refresh(node)
        steps = [after.factor - before.factor for before, after in pairwise(self.nodes)]
        self.least_step = min(steps, default=10_000)

    def _forget_accepted(self) -> None:
        self._accepted: WeakKeyDictionary[Constraint, tuple[Mask, int]] = WeakKeyDictionary()
        self._changed_properties: list[int] = []
        self._taints: frozenset[Taint] | None = None

    def _add_type(self, kind: str) -> None:
        if kind not in self.free:
            self.free[kind] = np.zeros(len(self.nodes), dtype=np.int32)
            self.full[kind] = np.zeros(len(self.nodes), dtype=np.int32)
            for amounts in (self.amount, self.total, self.sizes):
                amounts[kind] = np.zeros(len(self.nodes), dtype=np.int64)

    def _measure(self, row: int, run: LeafRun) -> None:
        kind = run.type
        self.sizes[kind][row] = run.size
        self.full[kind][row] = len(run)
        self.total[kind][row] = run.total
        self.largest[kind] = max(self.largest.get(kind, 0), run.size, *run.odd_sizes.values())
        self.smallest[kind] = min(self.smallest.get(kind, run.size), run.size)
        self.greatest[kind] = max(self.greatest.get(kind, 0), run.size)
        self.top_id[kind] = max(self.top_id.get(kind, 0), run.ids[-1] if len(run.ids) else 0)
        self.monotone = self.monotone and run.monotone
        if run.odd_sizes:
            self.odd.add(kind)

    def refresh(self, node: Vertex) -> None:
        """Update the row of one node."""
        row = node.row
        reserved = sum(1 for job in node.shared if job.reserved) + sum(
            1 for job in node.exclusive if job.reserved
        )
        self.reservations[row] = reserved
        self.jobs[row] = len(node.shared) + len(node.exclusive) - reserved
        self.held[row] = sum(1 for job in node.exclusive if not job.reserved)
        self._refresh_usable(node)
        self.changed.note(row)
        self.present_leaves.note(row)
        for run in node.runs.values():
            self._count(run)

    def append(self, node: Vertex) -> None:
        """Add a row for a node with the highest id of all."""
        if (self.nodes and node.id <= self.nodes[-1].id) or len(self.present) - int(
            self.present.sum()
        ) > 256 + len(self.nodes) // 2:
            self.rebuild()
            return
        if self.nodes:
            self.least_step = min(self.least_step, node.factor - self.nodes[-1].factor)
        node.row = len(self.nodes)
        self.nodes.append(node)
        self.present = np.append(self.present, True)
        self.usable, self.open = np.append(self.usable, False), np.append(self.open, False)
        self.held = np.append(self.held, np.int32(0))
        self.jobs, self.reservations = (
            np.append(self.jobs, np.int32(0)),
            np.append(self.reservations, np.int32(0)),
        )
        for counts in (self.free, self.full):
            for kind in counts:
                counts[kind] = np.append(counts[kind], np.int32(0))
        for amounts in (self.amount, self.total, self.sizes):
            for kind in amounts:
                amounts[kind] = np.append(amounts[kind], np.int64(0))
        self.flat = self.flat and node.parent is self._graph.root
        self.inner_types.update(vertex.type for vertex in _with_ancestors(node))
        self._note_properties(node.row)
        self.resized(node)

    def resized(self, node: Vertex) -> None:
        """Update the row of a node whose pools have changed."""
        self.generation += 1
        for counts in (*self.free.values(), *self.full.values()):
            counts[node.row] = 0
        for amounts in (*self.amount.values(), *self.total.values(), *self.sizes.values()):
            amounts[node.row] = 0
        for kind, run in node.runs.items():
            self._add_type(kind)
            self._measure(node.row, run)
        self.refresh(node)

    def drop(self, node: Vertex) -> None:
        """Invalidate the row of a node that was removed."""
        self.generation += 1
        if node.row < 0:
            return
        self.present[node.row] = self.usable[node.row] = self.open[node.row] = False
        node.row = -1

    def booked(self, job: GraphJob, step: int) -> None:
        """Count a job in (1) or out (-1) at the nodes that it occupies."""
        counts = self.reservations if job.reserved else self.jobs
        for vertex, exclusive in job.placement.vertices.items():
            if vertex.type == NODE:
                row = vertex.row
                if row < 0:
                    continue
                counts[row] += step
                self.present_leaves.note(row)
                self.changed.note(row)
                if exclusive:
                    if not job.reserved:
                        self.held[row] += step
                    self._refresh_usable(vertex)
            elif exclusive:
                self.refresh_below(vertex)
        if not job.reserved:
            for run in job.placement.leaves:
                if run.parent.row >= 0:
                    self._count(run)

    def _count(self, run: LeafRun) -> None:
        row = run.parent.row
        left = run.full & ~run.down & ~run.busy
        leaves = left.bit_count()
        self.free[run.type][row] = leaves
        self.amount[run.type][row] = run.amount(left) if run.odd_sizes else leaves * run.size

    def refresh_below(self, vertex: Vertex) -> None:
        """Update whether the nodes below a vertex can be used."""
        for below in vertex.subtree():
            if below.row >= 0:
                self._refresh_usable(below)
                self.changed.note(below.row)

    def _refresh_usable(self, node: Vertex) -> None:
        open_ = free = node.size > 0
        for at in _with_ancestors(node):
            if not at.up or at.closed:
                open_ = free = False
                break
            if at.exclusive and any(not job.reserved for job in at.exclusive):
                free = False
        self.open[node.row], self.usable[node.row] = open_, free

    def accepted(self, constraint: Constraint) -> Mask:
        """Return the nodes that a constraint accepts.
        It is kept, and nodes that have changed since are checked again.
        """
        known, log, accepts = self._accepted.get(constraint), self._changed_properties, constraint.accepts
        if known is None:
            mask: Mask = constraint.accepted(self.nodes)
        else:
            mask, seen = known
            if seen == len(log):
                return mask
            mask = np.append(mask, np.zeros(len(self.nodes) - len(mask), dtype=np.bool_))
            for row in set(log[seen:]):
                mask[row] = accepts(self.nodes[row])
        self._accepted[constraint] = mask, len(log)
        return mask

    @property
    def taints(self) -> frozenset[Taint]:
        """The distinct taints of all nodes; computed again after the graph changes."""
        if self._taints is None:
            self._taints = frozenset(taints_in({text for node in self.nodes for text in node.properties}))
        return self._taints

    def relabelled(self, node: Vertex) -> None:
        """Note that the properties of a node have changed."""
        if node.row >= 0:
            self._note_properties(node.row)
        self.changed.forget()

    def _note_properties(self, row: int) -> None:
        self._changed_properties.append(row)
        self._taints = None
        if len(self._changed_properties) > 2 * len(self.nodes) + _LONGEST_LOG:
            self._forget_accepted()

    def rows(self, nodes: Iterable[Vertex]) -> npt.NDArray[Any]:
        """Return the rows of these nodes."""
        return np.fromiter((node.row for node in nodes), dtype=np.intp)


def _with_ancestors(node: Vertex) -> Iterator[Vertex]:
    at: Vertex | None = node
    while at is not None:
        yield at
        at = at.parent
