"""Reading a graph from JGF.

The array form of JGF is what the original loads: ``{"graph": {"nodes": [...], "edges": [...]}}``. Vertices come with their containment
path, edges in the order in which children will be explored. Relation names are not looked at, edges of other subsystems neither. A
graph may carry every edge in both directions (fluxqueue's own does): the tree is what a walk from the root discovers first.

The text may have a million vertices, so it is decoded straight into small structs and leaves of one type below one parent become a
`LeafRun` without ever having been objects of their own.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from fluxqueue.fluxion.constraints import CONSTRAINED_TYPES
from fluxqueue.fluxion.graph import Entry, Graph, Vertex
from fluxqueue.fluxion.runs import LeafRun

__all__ = ["InvalidGraph", "read_jgf"]

CONTAINMENT = "containment"
_STAYS_A_VERTEX = CONSTRAINED_TYPES | {"cluster"}
_MAX_NUMBER = (1 << 63) - 1


class InvalidGraph(ValueError):
    """The text is no graph that can be loaded; the message names the vertex or the key."""


class _Paths(msgspec.Struct, gc=False):
    containment: str | None = None


class _Metadata(msgspec.Struct, gc=False):
    type: str
    paths: _Paths
    uniq_id: int | None = None
    id: int | None = None
    basename: str | None = None
    name: str | None = None
    rank: int = -1
    size: int = 1
    unit: str = ""
    status: int = 0
    exclusive: bool = False
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class _Node(msgspec.Struct, gc=False):
    id: str
    metadata: _Metadata


class _EdgeMetadata(msgspec.Struct, gc=False):
    subsystem: str = CONTAINMENT


class _Edge(msgspec.Struct, gc=False):
    source: str
    target: str
    metadata: _EdgeMetadata | None = None


class _Body(msgspec.Struct, gc=False):
    nodes: list[_Node]
    edges: list[_Edge]


class _Document(msgspec.Struct, gc=False):
    graph: _Body


_DECODER = msgspec.json.Decoder(_Document)


def read_jgf(text: str | bytes) -> Graph:
    """Read a graph.

    Parameters
    ----------
    text
        JGF in the array form, compact or indented.

    Returns
    -------
    Graph
        Without jobs.

    Raises
    ------
    InvalidGraph
        With the vertex or key that is wrong.
    """
    # A million small objects that all stay: looking for garbage among them again and again would take longer than reading them.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _Loader(_decode(text)).graph()
    finally:
        if collecting:
            gc.enable()


def _decode(text: str | bytes) -> _Body:
    try:
        return _DECODER.decode(text).graph
    except msgspec.ValidationError as error:
        raise InvalidGraph(f"JGF: {error}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InvalidGraph(f"JGF is not JSON: {error}") from None


class _Loader:
    """One load: numbers the vertices, joins edges, then walks the tree from the root."""

    def __init__(self, body: _Body) -> None:
        self._nodes = body.nodes
        self._number: dict[str, int] = {}
        self._root = self._read_nodes()
        self._out, self._has_edges = self._read_edges(body.edges)
        body.edges = []

    def _read_nodes(self) -> int:
        root = -1
        places: dict[str | tuple[str, int], int] = {}
        number = self._number
        for i, node in enumerate(self._nodes):
            if node.id in number:
                raise InvalidGraph(f"JGF: two vertices have the id {node.id!r:.40}")
            data = node.metadata
            path = data.paths.containment
            if path is None:
                raise InvalidGraph(f"JGF: vertex {node.id!r:.40} has no paths.containment")
            if data.uniq_id is None:
                try:
                    data.uniq_id = int(node.id)
                except ValueError:
                    raise InvalidGraph(f"JGF: vertex {node.id!r:.40} has no uniq_id and its id is not a whole number") from None
            if not -_MAX_NUMBER <= data.uniq_id <= _MAX_NUMBER or data.size < 0 or data.status not in (0, 1):
                raise InvalidGraph(f"JGF: vertex {node.id!r:.40} has a size, status or uniq_id out of range")
            number[node.id] = first = places.setdefault(path if data.rank == -1 else (path, data.rank), i)
            if path.rfind("/") == 0 and first == i:
                if root >= 0:
                    raise InvalidGraph(f"JGF: two roots, {self._nodes[root].metadata.paths.containment} and {path}")
                root = i
        if root < 0:
            raise InvalidGraph("JGF: no root: one vertex needs a containment path with a single /")
        return root

    def _read_edges(self, edges: list[_Edge]) -> tuple[dict[int, list[int]], bytearray]:
        out: dict[int, list[int]] = {}
        has_edges = bytearray(len(self._nodes))
        seen: set[int] = set()
        width = len(self._nodes)
        number = self._number
        for edge in edges:
            source, target = number.get(edge.source), number.get(edge.target)
            if source is None or target is None:
                raise InvalidGraph(f"JGF: edge {edge.source!r:.40} -> {edge.target!r:.40}: source and/or target vertex not found")
            if edge.metadata is not None and edge.metadata.subsystem != CONTAINMENT:
                continue
            key = source * width + target
            if key in seen:
                raise InvalidGraph(f"JGF: edge {edge.source!r:.40} -> {edge.target!r:.40} stands twice")
            seen.add(key)
            has_edges[source] = 1
            targets = out.get(source)
            if targets is None:
                out[source] = [target]
            else:
                targets.append(target)
        return out, has_edges

    def graph(self) -> Graph:
        """Walk the tree and build it."""
        nodes, out = self._nodes, self._out
        visited = bytearray(len(nodes))
        visited[self._root] = 1
        root = self._vertex(self._root)
        leaf_types: set[str] = set()
        stack: list[tuple[Vertex, int]] = [(root, self._root)]
        # Depth first and in order, because which parent owns a vertex with several is decided by who is reached first.
        while stack:
            parent, number = stack.pop()
            below: list[tuple[Vertex, int]] = []
            kids = [kid for kid in out.get(number, ()) if not visited[kid]]
            for kid in kids:
                visited[kid] = 1
            has_children = [kid in out and not all(visited[target] for target in out[kid]) for kid in kids]
            leaves: dict[str, list[int]] = {}
            order: list[Vertex | tuple[str, int]] = []
            for kid, inner in zip(kids, has_children, strict=True):
                kind = nodes[kid].metadata.type
                if not self._has_edges[kid]:
                    leaf_types.add(kind)
                if inner or kind in _STAYS_A_VERTEX:
                    vertex = self._vertex(kid)
                    below.append((vertex, kid))
                    order.append(vertex)
                else:
                    leaves.setdefault(kind, []).append(kid)
                    order.append((kind, kid))
            self._attach(parent, order, leaves)
            stack.extend(reversed(below))
        if not out.get(self._root):
            leaf_types.add(root.type)
        graph = Graph(root, leaf_types=frozenset(leaf_types))
        graph.types |= {node.metadata.type for node in nodes}
        return graph

    def _vertex(self, number: int) -> Vertex:
        data = self._nodes[number].metadata
        id_, basename, name = _identity(data)
        return Vertex(
            data.type,
            basename,
            name,
            id_,
            data.uniq_id or 0,
            rank=data.rank,
            size=data.size,
            path=data.paths.containment or "",
            properties=data.properties or None,
            up=data.status == 0,
        )

    def _attach(self, parent: Vertex, order: list[Vertex | tuple[str, int]], leaves: dict[str, list[int]]) -> None:
        """Give a parent its children, leaves gathered by type."""
        runs: dict[str, tuple[LeafRun, dict[int, int]]] = {}
        for kind, numbers in leaves.items():
            run, places = self._run(parent, kind, numbers)
            parent.runs[kind] = run
            runs[kind] = (run, places)
        entries: list[Entry] = []
        left = {kind: len(numbers) for kind, numbers in leaves.items()}
        position = 0
        while position < len(order):
            item = order[position]
            if isinstance(item, Vertex):
                item.parent = parent
                item.depth = parent.depth + 1
                item.position = len(entries)
                item.place()
                parent.children.append(item)
                entries.append(item)
                position += 1
                continue
            kind = item[0]
            run, places = runs[kind]
            count = left[kind]
            ahead = order[position : position + count]
            if len(ahead) == count and all(not isinstance(other, Vertex) and other[0] == kind for other in ahead):
                run.position = len(entries)
                entries.append(run)
                position += count
                continue
            entries.append((run, places[item[1]]))
            run.position = -1
            left[kind] = -1  # scattered: never again looked at as one stretch
            position += 1
        parent.entries = entries

    def _run(self, parent: Vertex, kind: str, numbers: list[int]) -> tuple[LeafRun, dict[int, int]]:
        """Build a run; leaves stand by id, ties in the order of their edges."""
        rows = [self._nodes[number].metadata for number in numbers]
        identities = [_identity(data) for data in rows]
        ids = [identity[0] for identity in identities]
        by_id: Sequence[int] = range(len(rows))
        if any(a > b for a, b in pairwise(ids)):
            by_id = sorted(by_id, key=ids.__getitem__)
            ids = [ids[i] for i in by_id]
        sizes = {data.size for data in rows}
        common = rows[0].size if len(sizes) == 1 else max(sizes, key=[data.size for data in rows].count)
        ranks = [rows[i].rank for i in by_id]
        basename = identities[0][1]
        uniq_ids = _compact([rows[i].uniq_id or 0 for i in by_id])
        run = LeafRun(kind, basename, parent, _compact(ids), uniq_ids, ranks[0] if len(set(ranks)) == 1 else ranks, common)
        places = dict(zip((numbers[i] for i in by_id), range(len(rows)), strict=True))
        if not isinstance(by_id, range):
            run.order = [places[number] for number in numbers]
        prefix = parent.path + "/"
        for place, i in enumerate(by_id):
            data = rows[i]
            id_, own, name = identities[i]
            if own != basename or name != f"{basename}{id_}":
                run.basenames[place] = own
                run.names[place] = name
            if data.paths.containment != prefix + name:
                run.paths[place] = data.paths.containment or ""
            if data.size != common:
                run.odd_sizes[place] = data.size
            if data.size == 0:
                run.void |= 1 << place
            if data.properties:
                run.properties[place] = data.properties
            if data.status:
                run.down |= 1 << place
        return run, places


def _identity(data: _Metadata) -> tuple[int, str, str]:
    """Id, basename and name with the defaults of the original."""
    basename = data.basename if data.basename is not None else data.type
    id_ = data.id
    if id_ is None:
        id_ = data.uniq_id or 0
        if data.type == "node" and data.name is not None:
            digits = data.name[len(data.name.rstrip("0123456789")) :]
            if digits:
                id_ = int(digits[-18:])
    return id_, basename, data.name if data.name is not None else f"{basename}{id_}"


def _compact(numbers: list[int]) -> Sequence[int]:
    first = numbers[0]
    stretch = range(first, first + len(numbers))
    if numbers[-1] == stretch[-1] and numbers == list(stretch):
        return stretch
    return numbers
