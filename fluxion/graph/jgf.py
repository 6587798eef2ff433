"""The reader of JGF, the JSON format of resource graphs.

flux-sched loads the array form of JGF: ``{"graph": {"nodes": [...], "edges": [...]}}``. Vertices have their
containment path. Edges are in the order in which children are explored. Relation names and edges of other
subsystems are ignored. A graph may have every edge in both directions (fluxqueue's own has): the tree is what
a walk from the root discovers first.

The text may have a million vertices. So it is decoded directly into small structs, and the leaves of one type
below one parent become a `LeafRun` without objects of their own.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from fluxqueue.fluxion.graph.constraints import CONSTRAINED_TYPES
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import Entry, Graph, Vertex

__all__ = ["InvalidGraph", "read_jgf"]

CONTAINMENT = "containment"
_STAYS_A_VERTEX = CONSTRAINED_TYPES | {"cluster"}
_MAX_NUMBER = (1 << 63) - 1
_MAX_SIZE = 1 << 40
_MAX_DEPTH = 64


class InvalidGraph(ValueError):
    """The text is not a graph that can be loaded; the message names the vertex or the key."""


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
        The message names the wrong vertex or key.
    """
    # A million small objects that all stay: repeated garbage collection among them would take longer than
    # reading them.
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
        self._out = self._read_edges(body.edges)
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
                    raise InvalidGraph(
                        f"JGF: vertex {node.id!r:.40} has no uniq_id and its id is not a whole number"
                    ) from None
            if (
                not -_MAX_NUMBER <= data.uniq_id <= _MAX_NUMBER
                or not 0 <= data.size <= _MAX_SIZE
                or data.status not in (0, 1)
            ):
                raise InvalidGraph(f"JGF: vertex {node.id!r:.40} has a size, status or uniq_id out of range")
            number[node.id] = first = places.setdefault(path if data.rank == -1 else (path, data.rank), i)
            if path.rfind("/") == 0 and first == i:
                if root >= 0:
                    raise InvalidGraph(
                        f"JGF: two roots, {self._nodes[root].metadata.paths.containment} and {path}"
                    )
                root = i
        if root < 0:
            raise InvalidGraph("JGF: no root: one vertex needs a containment path with a single /")
        return root

    def _read_edges(self, edges: list[_Edge]) -> dict[int, list[int]]:
        out: dict[int, list[int]] = {}
        number = self._number
        for edge in edges:
            try:
                source, target = number[edge.source], number[edge.target]
            except KeyError:
                where = f"{edge.source!r:.40} -> {edge.target!r:.40}"
                raise InvalidGraph(f"JGF: edge {where}: source and/or target vertex not found") from None
            if edge.metadata is not None and edge.metadata.subsystem != CONTAINMENT:
                continue
            targets = out.get(source)
            if targets is None:
                out[source] = [target]
            else:
                targets.append(target)
        for source, targets in out.items():
            if len(set(targets)) < len(targets):
                raise InvalidGraph(f"JGF: an edge from {self._nodes[source].id!r:.40} occurs twice")
        return out

    def graph(self) -> Graph:
        """Walk the tree from the root and build the graph."""
        nodes, out = self._nodes, self._out
        visited = bytearray(len(nodes))
        visited[self._root] = 1
        root = self._vertex(self._root)
        leaf_types: set[str] = set()
        stack: list[tuple[Vertex, int]] = [(root, self._root)]
        # Depth first and in order: a vertex with several parents belongs to the parent that is reached first.
        while stack:
            parent, number = stack.pop()
            if parent.depth > _MAX_DEPTH:
                raise InvalidGraph(
                    f"JGF: the tree is deeper than {_MAX_DEPTH} levels at {parent.path!r:.200}"
                )
            below: list[tuple[Vertex, int]] = []
            kids = [kid for kid in out.get(number, ()) if not visited[kid]]
            for kid in kids:
                visited[kid] = 1
            leaves: dict[str, list[int]] = {}
            order: list[Vertex | tuple[str, int]] = []
            for kid in kids:
                kind = nodes[kid].metadata.type
                targets = out.get(kid)
                if targets is None:
                    leaf_types.add(kind)
                if (
                    targets is not None and not all(visited[target] for target in targets)
                ) or kind in _STAYS_A_VERTEX:
                    vertex = self._vertex(kid)
                    below.append((vertex, kid))
                    order.append(vertex)
                    continue
                alike = leaves.get(kind)
                if alike is None:
                    leaves[kind] = [kid]
                else:
                    alike.append(kid)
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
        vertex = Vertex(
            data.type,
            basename,
            name,
            id_,
            data.uniq_id or 0,
            size=data.size,
            path=data.paths.containment or "",
        )
        vertex.rank = data.rank
        vertex.properties = data.properties or {}
        vertex.up = data.status == 0
        return vertex

    def _attach(
        self, parent: Vertex, order: list[Vertex | tuple[str, int]], leaves: dict[str, list[int]]
    ) -> None:
        """Add the children to a parent, with the leaves gathered by type."""
        runs: dict[str, tuple[LeafRun, dict[int, int]]] = {}
        for kind, numbers in leaves.items():
            run, places = self._run(parent, kind, numbers)
            parent.runs[kind] = run
            runs[kind] = (run, places)
        entries: list[Entry] = []
        spread: dict[str, tuple[int, int]] = {}
        for position, item in enumerate(order):
            if not isinstance(item, Vertex):
                first, _ = spread.get(item[0], (position, position))
                spread[item[0]] = first, position
        for item in order:
            if isinstance(item, Vertex):
                item.parent = parent
                item.depth = parent.depth + 1
                item.position = len(entries)
                item.update_factor()
                parent.children.append(item)
                entries.append(item)
                continue
            kind, number = item
            run, places = runs[kind]
            first, last = spread[kind]
            if last - first + 1 > len(leaves[kind]):
                run.position = -1
                entries.append((run, places[number]))
            elif number == leaves[kind][0]:
                run.position = len(entries)
                entries.append(run)
        parent.entries = entries

    def _run(self, parent: Vertex, kind: str, numbers: list[int]) -> tuple[LeafRun, dict[int, int]]:
        """Build a run; its leaves are ordered by id, and equal ids by their edges."""
        rows = [self._nodes[number].metadata for number in numbers]
        ids = [data.id if data.id is not None else data.uniq_id or 0 for data in rows]
        by_id: Sequence[int] = range(len(rows))
        if any(a > b for a, b in pairwise(ids)):
            by_id = sorted(by_id, key=ids.__getitem__)
            ids = [ids[i] for i in by_id]
            rows = [rows[i] for i in by_id]
        sizes = [data.size for data in rows]
        common = sizes[0] if len(set(sizes)) == 1 else max(set(sizes), key=sizes.count)
        ranks = [data.rank for data in rows]
        basename = rows[0].basename if rows[0].basename is not None else kind
        uniq_ids = _compact([data.uniq_id or 0 for data in rows])
        run = LeafRun(
            kind,
            basename,
            parent,
            _compact(ids),
            uniq_ids,
            ranks[0] if len(set(ranks)) == 1 else ranks,
            common,
        )
        places = dict(zip((numbers[i] for i in by_id), range(len(rows)), strict=True))
        if not isinstance(by_id, range):
            run.order = [places[number] for number in numbers]
        stem = f"{parent.path}/{basename}"
        for place, (id_, data) in enumerate(zip(ids, rows, strict=True)):
            if data.paths.containment != f"{stem}{id_}" or data.name is not None or data.basename is not None:
                self._note_names(run, place, data)
            if data.size != common:
                run.odd_sizes[place] = data.size
            if data.size == 0:
                run.void |= 1 << place
            if data.properties:
                run.properties[place] = data.properties
            if data.status:
                run.down |= 1 << place
        return run, places

    def _note_names(self, run: LeafRun, place: int, data: _Metadata) -> None:
        """Record names and paths that do not follow from the run's basename and the leaf's id."""
        id_, basename, name = _identity(data)
        if basename != run.basename or name != f"{run.basename}{id_}":
            run.basenames[place] = basename
            run.names[place] = name
        if data.paths.containment != f"{run.parent.path}/{name}":
            run.paths[place] = data.paths.containment or ""


def _identity(data: _Metadata) -> tuple[int, str, str]:
    """Return id, basename and name, with flux-sched's defaults."""
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
