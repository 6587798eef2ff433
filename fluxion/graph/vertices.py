"""The resource graph: a tree of vertices, with leaves in pools.

Nodes, racks and sockets are `Vertex` objects. The leaves of one type below one parent are a single `LeafRun`.
Each part of the graph records its jobs: a vertex has the jobs that hold it exclusively and those that only
pass through, a run has the bits of each job. Only the job has times.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fluxqueue.fluxion.graph.pools import LeafRun, bits

if TYPE_CHECKING:
    from fluxqueue.fluxion.graph.jobs import GraphJob

__all__ = ["NODE", "UNTOUCHED", "Entry", "Graph", "Vertex"]

NODE = "node"
UNTOUCHED = (1 << 64) - 1


class Vertex:
    """A vertex that is an object of its own: cluster, zone, rack, node, socket, ...

    Attributes
    ----------
    rank, properties, up
        -1, none and True until the reader of the graph sets them.
    children, runs
        Inner children and leaf runs by type; ``entries`` has them in the order of their edges.
    factor
        What ancestors of type node, this vertex included, add to the score of everything below (node-centric
        policies).
    exclusive, shared
        Jobs that hold the vertex, and jobs that pass through it.
    weights
        Exploration weight of children under policies that stop at the first match; absent means untouched.
    position
        Position among the parent's entries.
    row
        Position in the node table; -1 for other types and for nodes that were removed.
    ranking
        Children in order of exploration; None until it is needed.
    """

    __slots__ = (
        "basename",
        "children",
        "closed",
        "depth",
        "entries",
        "exclusive",
        "factor",
        "id",
        "name",
        "parent",
        "path",
        "position",
        "properties",
        "rank",
        "ranking",
        "row",
        "runs",
        "shared",
        "size",
        "type",
        "uniq_id",
        "up",
        "weights",
    )

    def __init__(
        self, type_: str, basename: str, name: str, id_: int, uniq_id: int, *, size: int = 1, path: str = ""
    ) -> None:
        self.type = type_
        self.basename = basename
        self.name = name
        self.id = id_
        self.uniq_id = uniq_id
        self.rank = -1
        self.size = size
        self.path = path
        self.properties: Mapping[str, str] = {}
        self.up = True
        self.closed = False
        self.parent: Vertex | None = None
        self.depth = 0
        self.position = 0
        self.children: list[Vertex] = []
        self.runs: dict[str, LeafRun] = {}
        self.entries: list[Entry] = []
        self.factor = 0
        self.row = -1
        self.ranking: list[tuple[int, int, int, Vertex]] | None = None
        self.exclusive: dict[GraphJob, None] = {}
        self.shared: dict[GraphJob, None] = {}
        self.weights: dict[Vertex, int] = {}

    def __repr__(self) -> str:
        return f"<{self.type} {self.path}>"

    def remove_child(self, child: Vertex) -> None:
        """Remove an inner child."""
        self.children.remove(child)
        self.entries.remove(child)
        self._number_entries()
        self.weights.pop(child, None)
        self.ranking = None
        child.parent = None

    def explored(self) -> Iterator[Vertex]:
        """Yield inner children by weight, then by unique id, the highest first;
        those never used come before all others.
        """
        if self.ranking is None:
            self.ranking = sorted(self._rank(child) for child in self.children)
        for _, _, _, child in self.ranking:
            yield child

    def set_weight(self, child: Vertex, weight: int) -> None:
        """Set the exploration weight of a child."""
        if self.ranking is not None:
            del self.ranking[bisect_left(self.ranking, self._rank(child))]
        self.weights[child] = weight
        if self.ranking is not None:
            insort(self.ranking, self._rank(child))

    def _rank(self, child: Vertex) -> tuple[int, int, int, Vertex]:
        return -self.weights.get(child, UNTOUCHED), -child.uniq_id, child.position, child

    def add_child(self, child: Vertex, position: int | None = None) -> None:
        """Add an inner child at a position, or after all others."""
        child.parent = self
        child.depth = self.depth + 1
        child.position = len(self.entries)
        self.ranking = None
        self.children.append(child)
        self.entries.append(child)
        if position is not None and position < child.position:
            self.entries.insert(position, self.entries.pop())
            self.children = [entry for entry in self.entries if isinstance(entry, Vertex)]
            self._number_entries()
        child.update_factor()

    def _number_entries(self) -> None:
        for position, entry in enumerate(self.entries):
            if not isinstance(entry, tuple):
                entry.position = position

    def update_factor(self) -> None:
        """Compute the factor, which includes that of the parent."""
        above = self.parent.factor if self.parent is not None else 0
        self.factor = above + (
            (self.id + 2) * 10_000 + abs(self.uniq_id % 10_000 - 1) if self.type == NODE else 0
        )

    def subtree(self) -> Iterator[Vertex]:
        """Yield this vertex and all inner vertices below it, parents first."""
        yield self
        for child in self.children:
            yield from child.subtree()

    def held(self, start: int, end: int, now: int) -> bool:
        """Return True if a job holds this vertex exclusively at any time of [start, end)."""
        return bool(self.exclusive) and any(job.overlaps(start, end, now) for job in self.exclusive)

    def passed(self, start: int, end: int, now: int) -> bool:
        """Return True if a job passes through this vertex at any time of [start, end)."""
        return bool(self.shared) and any(job.overlaps(start, end, now) for job in self.shared)

    @property
    def node(self) -> Vertex | None:
        """The node that this vertex is or belongs to."""
        vertex: Vertex | None = self
        while vertex is not None and vertex.type != NODE:
            vertex = vertex.parent
        return vertex


Entry = Vertex | LeafRun | tuple[LeafRun, int]


class Graph:
    """A tree of vertices with the indexes that matching and bookkeeping need.

    Attributes
    ----------
    nodes
        All vertices of type node, in order of discovery.
    removed
        Nodes that were removed while jobs held something on them, by name.
    types
        Resource types that occur in the graph, so that a jobspec may name them.
    leaf_types
        Types with a vertex without any edge. They become prune types of clusters.
    nodes_up
        flux-sched's count of nodes that are up, with its errors: it starts as up minus down nodes and changes
        by whole subtrees.
    """

    def __init__(self, root: Vertex, *, leaf_types: frozenset[str] = frozenset()) -> None:
        self.root = root
        self.leaf_types = leaf_types
        self.by_path: dict[str, Vertex] = {}
        self.by_name: dict[str, Vertex] = {}
        self.nodes: dict[Vertex, None] = {}
        self.next_node_id = 0
        self.removed: dict[str, Vertex] = {}
        self.types: set[str] = set()
        self.nodes_up = 0
        for vertex in root.subtree():
            self.register(vertex)

    def register(self, vertex: Vertex) -> None:
        """Add one vertex to the indexes."""
        self.by_path[vertex.path] = vertex
        self.types.add(vertex.type)
        self.types.update(vertex.runs)
        if vertex.type == NODE:
            self.nodes[vertex] = None
            self.next_node_id = max(self.next_node_id, vertex.id + 1)
            self.by_name.setdefault(vertex.name, vertex)
            self.nodes_up += 1 if vertex.up else -1

    def unregister(self, vertex: Vertex) -> None:
        """Remove one vertex from the indexes."""
        del self.by_path[vertex.path]
        if vertex.type == NODE:
            del self.nodes[vertex]
            if self.by_name.get(vertex.name) is vertex:
                del self.by_name[vertex.name]
            self.nodes_up -= 1 if vertex.up else -1

    def find_leaf(self, path: str) -> tuple[LeafRun, int] | None:
        """Return the leaf of this containment path as run and index."""
        parent = self.by_path.get(path.rpartition("/")[0])
        candidates = [parent] if parent is not None else []
        for vertex in [*candidates, *self.by_path.values()]:
            for run in vertex.runs.values():
                if vertex is parent or run.paths:
                    for index in bits(run.full):
                        if run.path_of(index) == path:
                            return run, index
        return None

    @property
    def vertices(self) -> int:
        """Number of vertices, leaves included."""
        return sum(1 + sum(len(run) for run in vertex.runs.values()) for vertex in self.by_path.values())
