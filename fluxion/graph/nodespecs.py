"""The graph from node specifications, as a Kubernetes queue sends them.

Nodes get ascending ids in the order of the specifications. So low-id policies fill them in that order, and a
node added later comes last. Every node has a range of unique ids of its own, so the small term that unique
ids add to scores never changes their order. Pools become runs whose last leaf has the remainder.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.fluxion.graph.jgf import InvalidGraph
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import NODE, Graph, Vertex
from fluxqueue.fluxion.messages import GraphNodeSpec, Level, Pool

__all__ = ["add_node", "check_spec", "graph_of_nodes", "parent_for", "resize_pools"]

_STRIDE = 10_000_000
_MAX_LEAVES = 1_000_000
_MAX_TOTAL = 1 << 60
_MAX_LEVELS = 32


def graph_of_nodes(nodes: Sequence[GraphNodeSpec]) -> Graph:
    """Build a graph: one cluster, the levels of each node, the node, its pools."""
    graph = Graph(Vertex("cluster", "cluster", "cluster0", 0, 0, path="/cluster0"))
    for spec in nodes:
        if spec.name in graph.by_name:
            raise InvalidGraph(f"node {spec.name!r}: given twice")
        add_node(graph, spec)
    return graph


def add_node(graph: Graph, spec: GraphNodeSpec) -> Vertex:
    """Add one node that the graph does not have, and create missing levels."""
    check_spec(spec)
    parent = parent_for(graph, spec)
    number = graph.next_node_id
    node = Vertex(
        NODE, spec.name, spec.name, number, (number + 1) * _STRIDE + 1, path=f"{parent.path}/{spec.name}"
    )
    node.properties = dict(spec.properties)
    node.up = not spec.down
    parent.add_child(node)
    resize_pools(node, spec.pools)
    graph.register(node)
    return node


def parent_for(graph: Graph, spec: GraphNodeSpec) -> Vertex:
    """Return the parent of a node, and create missing levels."""
    parent = graph.root
    for level in spec.levels:
        parent = _level(graph, parent, level)
    return parent


def check_spec(spec: GraphNodeSpec) -> None:
    """Raise `InvalidGraph` if this cannot be a node."""
    if not spec.name or "/" in spec.name:
        raise InvalidGraph(f"node {spec.name!r:.80}: a name without slashes is needed")
    if len(spec.levels) > _MAX_LEVELS:
        raise InvalidGraph(f"node {spec.name!r:.80}: more than {_MAX_LEVELS} levels")
    seen: set[str] = set()
    for pool in spec.pools:
        if not pool.type or pool.type in seen:
            raise InvalidGraph(
                f"node {spec.name!r:.80}: pool type {pool.type!r:.40} is empty or occurs twice"
            )
        seen.add(pool.type)
        if (
            not 0 <= pool.total <= _MAX_TOTAL
            or pool.vertex_size < 0
            or -(-pool.total // (pool.vertex_size or 1)) > _MAX_LEAVES
        ):
            raise InvalidGraph(
                f"node {spec.name!r:.80}: pool {pool.type}: {pool.total} in pieces of {pool.vertex_size} is "
                "out of range"
            )


def _level(graph: Graph, parent: Vertex, level: Level) -> Vertex:
    if not level.type or not level.name or "/" in level.name:
        raise InvalidGraph(
            f"level {level.type!r:.40} {level.name!r:.80}: a type and a name without slashes are needed"
        )
    path = f"{parent.path}/{level.name}"
    vertex = graph.by_path.get(path)
    if vertex is not None and vertex.type != level.type:
        # A zone, a rack or a node without a zone may have one name: labels of one node must not keep the
        # others out of the graph.
        path = f"{parent.path}/{level.type}:{level.name}"
        vertex = graph.by_path.get(path)
    if vertex is not None:
        return vertex
    number = sum(1 for other in graph.by_path.values() if other.type == level.type)
    vertex = Vertex(level.type, level.name, level.name, number, -len(graph.by_path) - 1, path=path)
    parent.add_child(vertex)
    graph.register(vertex)
    return vertex


def resize_pools(node: Vertex, pools: Sequence[Pool]) -> None:
    """Replace the pools of a node; runs whose vertex size stays are kept, with the jobs in them.

    A run that shrinks keeps the bits of jobs beyond its new end. Those leaves are in use but no longer part
    of the node.
    """
    wanted = {pool.type: pool for pool in pools if pool.total > 0}
    offset = node.uniq_id + 1
    runs: dict[str, LeafRun] = {}
    for kind, pool in wanted.items():
        size = pool.vertex_size or 1
        count = -(-pool.total // size)
        run = node.runs.get(kind)
        if run is None or run.size != size:
            run = LeafRun(kind, kind, node, range(count), range(offset, offset + count), node.rank, size)
        else:
            reach = max(count, run.held().bit_length())
            run.ids, run.uniq_ids, run.full = range(reach), range(offset, offset + reach), (1 << count) - 1
        remainder = pool.total - (count - 1) * size
        run.odd_sizes = {count - 1: remainder} if remainder != size else {}
        runs[kind] = run
        offset += count
    node.runs = runs
    node.entries = [*node.children, *runs.values()]
    for position, run in enumerate(runs.values(), len(node.children)):
        run.position = position
