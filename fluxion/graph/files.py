"""Resource graphs as files: show one, check one, and write one from node specifications.

The engine's reader stops at the first problem that keeps a graph from loading. A person who repairs a file
needs all of them, and also what loads but is probably a mistake: vertices that no edge reaches, nodes without
resources, a size that the Go service's messages cannot hold. So this module reads the file once more,
leniently. Every problem is a sentence that names vertex and key. The engine's reader decides whether the file
loads, so its error is among the problems.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fluxqueue.fluxion.graph.jgf import InvalidGraph, read_jgf
from fluxqueue.fluxion.messages import GraphNodeSpec

__all__ = [
    "GraphProblem",
    "TreeVertex",
    "UnreadableGraph",
    "check_jgf",
    "read_tree",
    "tree_lines",
    "write_jgf",
]

_GO_LIMIT_BYTES: Final = 4 * 2**20
_MANY: Final = 20


class UnreadableGraph(ValueError):
    """The file is no JGF."""


@dataclass(frozen=True, slots=True)
class GraphProblem:
    """One problem of a graph; ``fatal`` if the graph does not load because of it."""

    fatal: bool
    sentence: str


@dataclass(slots=True)
class TreeVertex:
    """A vertex as the file has it."""

    id: str
    type: str
    name: str
    path: str
    size: int = 1
    up: bool = True
    children: list[TreeVertex] = field(default_factory=list)


# ---- reading -----------------------------------------------------------------------------------------------


def _parts(text: str | bytes) -> tuple[list[Any], list[Any]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableGraph(f"not JSON: {error}") from None
    graph = document.get("graph") if isinstance(document, dict) else None
    if not isinstance(graph, dict):
        raise UnreadableGraph(
            'the key "graph" is missing: JGF is {"graph": {"nodes": [...], "edges": [...]}}'
        )
    for key in ("nodes", "edges"):
        if isinstance(graph.get(key), dict):
            raise UnreadableGraph(
                f"graph.{key} is an object keyed by id (JGF version 2): Fluxion reads the array form only"
            )
        if not isinstance(graph.get(key), list):
            raise UnreadableGraph(f"graph.{key} is missing or no list")
    return graph["nodes"], graph["edges"]


def _vertex(node: Any) -> TreeVertex | None:
    metadata = node.get("metadata") if isinstance(node, dict) else None
    paths = metadata.get("paths") if isinstance(metadata, dict) else None
    path = paths.get("containment") if isinstance(paths, dict) else None
    if (
        not isinstance(metadata, dict)
        or not isinstance(path, str)
        or not isinstance(metadata.get("type"), str)
    ):
        return None
    size = metadata.get("size", 1)
    return TreeVertex(
        id=str(node.get("id", "")),
        type=metadata["type"],
        name=str(metadata.get("name") or path.rsplit("/", 1)[-1]),
        path=path,
        size=size if isinstance(size, int) else 1,
        up=metadata.get("status", 0) == 0,
    )


def _is_containment(edge: dict[str, Any]) -> bool:
    metadata = edge.get("metadata")
    return not isinstance(metadata, dict) or metadata.get("subsystem", "containment") == "containment"


def _is_root(vertex: TreeVertex) -> bool:
    return vertex.path.startswith("/") and vertex.path.count("/") == 1


def read_tree(text: str | bytes) -> TreeVertex:
    """Return the tree that a walk from the root discovers.

    Raises
    ------
    UnreadableGraph
        The text is no JGF, or has no root.
    """
    nodes, edges = _parts(text)
    vertices = {vertex.id: vertex for vertex in map(_vertex, nodes) if vertex is not None}
    root = next((vertex for vertex in vertices.values() if _is_root(vertex)), None)
    if root is None:
        raise UnreadableGraph("no root: one vertex needs a containment path with a single /")
    targets: dict[str, list[str]] = {}
    for edge in edges:
        if isinstance(edge, dict) and _is_containment(edge):
            targets.setdefault(str(edge.get("source")), []).append(str(edge.get("target")))
    reached = {root.id}
    stack = [root]
    while stack:
        parent = stack.pop()
        for target in targets.get(parent.id, ()):
            if target in vertices and target not in reached:
                reached.add(target)
                parent.children.append(vertices[target])
        stack.extend(reversed(parent.children))
    return root


# ---- checking ----------------------------------------------------------------------------------------------


def check_jgf(text: str | bytes) -> list[GraphProblem]:
    """Return all problems of a graph, those that keep it from loading first."""
    try:
        nodes, edges = _parts(text)
    except UnreadableGraph as error:
        return [GraphProblem(True, str(error))]
    fatal = [GraphProblem(True, sentence) for sentence in (*_wrong_nodes(nodes), *_wrong_edges(nodes, edges))]
    try:
        read_jgf(text)
    except InvalidGraph as error:
        if not fatal:
            fatal.append(GraphProblem(True, str(error)))
    odd = [GraphProblem(False, sentence) for sentence in _odd(text, nodes, edges)]
    return fatal + odd


def _wrong_nodes(nodes: Sequence[Any]) -> Iterator[str]:
    seen: Counter[str] = Counter()
    roots = []
    for position, node in enumerate(nodes):
        if not isinstance(node, dict) or not isinstance(node.get("id"), str):
            yield f"node {position}: id is missing or no string"
            continue
        name = f"vertex {node['id']!r:.40}"
        seen[node["id"]] += 1
        metadata = node.get("metadata")
        vertex = _vertex(node)
        if not isinstance(metadata, dict):
            yield f"{name}: metadata is missing"
        elif not isinstance(metadata.get("type"), str):
            yield f"{name}: metadata.type is missing or no string"
        elif vertex is None:
            yield f"{name}: metadata.paths.containment is missing or no string"
        else:
            if _is_root(vertex):
                roots.append(vertex.path)
            if metadata.get("status", 0) not in (0, 1):
                yield f"{name}: metadata.status is {metadata['status']!r:.40}: 0 is up, 1 is down"
            size = metadata.get("size", 1)
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                yield f"{name}: metadata.size is {size!r:.40}: a whole number of at least 0"
    for repeated in (identity for identity, times in seen.items() if times > 1):
        yield f"vertex {repeated!r:.40}: occurs {seen[repeated]} times"
    if len(roots) != 1:
        roots_text = f"{len(roots)} of them: {', '.join(sorted(roots)[:_MANY])}" if roots else "none"
        yield f"a graph has one root, a vertex whose containment path has a single /; here is {roots_text}"


def _wrong_edges(nodes: Sequence[Any], edges: Sequence[Any]) -> Iterator[str]:
    known = {node.get("id") for node in nodes if isinstance(node, dict) and isinstance(node.get("id"), str)}
    seen: set[tuple[str, str]] = set()
    for position, edge in enumerate(edges):
        source, target = (edge.get("source"), edge.get("target")) if isinstance(edge, dict) else (None, None)
        if not isinstance(source, str) or not isinstance(target, str):
            yield f"edge {position}: source or target is missing or no string"
            continue
        for end, identity in (("source", source), ("target", target)):
            if identity not in known:
                yield f"edge {source!r:.40} -> {target!r:.40}: its {end} is no vertex of this graph"
        if _is_containment(edge):
            if (source, target) in seen:
                yield f"edge {source!r:.40} -> {target!r:.40}: occurs twice"
            seen.add((source, target))


def _odd(text: str | bytes, nodes: Sequence[Any], edges: Sequence[Any]) -> Iterator[str]:
    size = len(text.encode()) if isinstance(text, str) else len(text)
    if size > _GO_LIMIT_BYTES:
        yield f"{size / 2**20:.1f} MiB: a Go fluxion service takes 4 MiB at most, this one 256"
    try:
        root = read_tree(text)
    except UnreadableGraph:
        return
    ends = {
        (edge["source"], edge["target"])
        for edge in edges
        if isinstance(edge, dict) and "source" in edge and "target" in edge
    }
    both = sum(1 for source, target in ends if isinstance(source, str) and (target, source) in ends) // 2
    if both:
        yield f"edges in both directions ({both}) load, and only cost space"
    reached = {vertex.id for vertex in _walk(root)}
    lost = [
        str(node["id"])
        for node in nodes
        if isinstance(node, dict) and "id" in node and str(node["id"]) not in reached
    ]
    if lost:
        yield f"vertices that are not reached from the root ({len(lost)}) never match: {_some(lost)}"
    bare = [vertex.path for vertex in _walk(root) if vertex.type == "node" and not vertex.children]
    if bare:
        yield f"nodes with nothing on them ({len(bare)}): {_some(bare)}"
    names = Counter(vertex.name for vertex in _walk(root) if vertex.type == "node")
    repeated = [name for name, times in names.items() if times > 1]
    if repeated:
        yield (
            f"node names that occur more than once ({len(repeated)}) are ambiguous in calls that name "
            f"nodes: {_some(repeated)}"
        )


def _walk(root: TreeVertex) -> Iterator[TreeVertex]:
    stack = [root]
    while stack:
        vertex = stack.pop()
        yield vertex
        stack.extend(reversed(vertex.children))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_MANY]) + (" ..." if len(names) > _MANY else "")


# ---- showing -----------------------------------------------------------------------------------------------


def tree_lines(root: TreeVertex, everything: bool = False, most: int = 50) -> Iterator[str]:
    """Yield the tree as lines of text.

    Parameters
    ----------
    root
        From `read_tree`.
    everything
        One line for every vertex; otherwise leaves of a node are counted by type on its line.
    most
        Children shown of one vertex, unless ``everything``.
    """
    stack: list[tuple[TreeVertex | None, str, str, str]] = [(root, "", "", "")]
    while stack:
        vertex, lead, below, text = stack.pop()
        if vertex is None:
            yield lead + text
            continue
        leaves = (
            []
            if everything
            else [child for child in vertex.children if not child.children and child.type != "node"]
        )
        inner = (
            vertex.children
            if everything
            else [child for child in vertex.children if child.children or child.type == "node"]
        )
        yield lead + _title(vertex, leaves)
        shown = inner if everything else inner[:most]
        rows: list[tuple[TreeVertex | None, str]] = [(child, "") for child in shown]
        if len(inner) > len(shown):
            rows.append((None, f"... and {len(inner) - len(shown)} more"))
        for position in range(len(rows) - 1, -1, -1):
            child, words = rows[position]
            last = position == len(rows) - 1
            stack.append(
                (child, below + ("└── " if last else "├── "), below + ("    " if last else "│   "), words)
            )


def _title(vertex: TreeVertex, leaves: Sequence[TreeVertex]) -> str:
    words = [vertex.name if vertex.name.startswith(vertex.type) else f"{vertex.type} {vertex.name}"]
    if vertex.size != 1:
        words.append(f"size {vertex.size}")
    if not vertex.up:
        words.append("down")
    totals: dict[str, list[int]] = {}
    for leaf in leaves:
        totals.setdefault(leaf.type, []).append(leaf.size)
    for kind, sizes in totals.items():
        pieces = (
            f" in {len(sizes)} {'vertex' if len(sizes) == 1 else 'vertices'}"
            if sum(sizes) != len(sizes)
            else ""
        )
        words.append(f"{kind} {sum(sizes)}{pieces}")
    return "  ".join(words)


# ---- writing -----------------------------------------------------------------------------------------------


def write_jgf(nodes: Sequence[GraphNodeSpec]) -> str:
    """Return a graph of these nodes as compact JGF, which flux-sched reads too:
    cluster, levels, nodes, one vertex per piece of a pool.
    """
    writer = _Writer()
    cluster = writer.vertex("cluster", "cluster0", 0, "/cluster0")
    levels: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for rank, node in enumerate(nodes):
        parent, path = cluster, "/cluster0"
        for level in node.levels:
            path = f"{path}/{level.name}"
            if path not in levels:
                levels[path] = writer.vertex(level.type, level.name, counts[level.type], path, below=parent)
                counts[level.type] += 1
            parent = levels[path]
        path = f"{path}/{node.name}"
        extra: dict[str, Any] = {"status": 1} if node.down else {}
        if node.properties:
            extra["properties"] = dict(node.properties)
        vertex = writer.vertex("node", node.name, rank, path, below=parent, rank=rank, **extra)
        for pool in node.pools:
            for index in range(-(-pool.total // pool.vertex_size)):
                size = min(pool.vertex_size, pool.total - index * pool.vertex_size)
                name = f"{pool.type}{index}"
                sized = {"size": size} if size != 1 else {}
                writer.vertex(pool.type, name, index, f"{path}/{name}", below=vertex, rank=rank, **sized)
    return json.dumps({"graph": {"nodes": writer.nodes, "edges": writer.edges}}, separators=(",", ":"))


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[dict[str, str]] = []

    def vertex(
        self, kind: str, name: str, number: int, path: str, below: int | None = None, **extra: Any
    ) -> int:
        identity = len(self.nodes)
        metadata = {
            "type": kind,
            "name": name,
            "id": number,
            "uniq_id": identity,
            **extra,
            "paths": {"containment": path},
        }
        self.nodes.append({"id": str(identity), "metadata": metadata})
        if below is not None:
            self.edges.append({"source": str(below), "target": str(identity)})
        return identity
