"""Building a graph from node specifications, as a Kubernetes queue sends them.

Nodes get ids in the order they come, so low-id policies fill them in that order and a node added later comes last. Unique ids leave
every node a stretch of its own, which keeps the small term they add to scores from ever mattering. Pools become runs whose last leaf
carries the remainder.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.fluxion.graph import NODE, Graph, Vertex
from fluxqueue.fluxion.jgf import InvalidGraph
from fluxqueue.fluxion.messages import Level, NodeSpec, Pool
from fluxqueue.fluxion.runs import LeafRun

__all__ = ["add_node", "check_spec", "graph_of_nodes", "place_for", "resize_pools"]

_STRIDE = 10_000_000
_MAX_LEAVES = 1_000_000
_MAX_TOTAL = 1 << 60
_MAX_LEVELS = 32


def graph_of_nodes(nodes: Sequence[NodeSpec]) -> Graph:
    """Build a graph: one cluster, the levels of each node, the node, its pools."""
    graph = Graph(Vertex("cluster", "cluster", "cluster0", 0, 0, path="/cluster0"))
    for spec in nodes:
        if spec.name in graph.by_name:
            raise InvalidGraph(f"node {spec.name!r}: given twice")
        add_node(graph, spec)
    return graph


def add_node(graph: Graph, spec: NodeSpec) -> Vertex:
    """Add one node that is not there yet, creating its levels where needed."""
    check_spec(spec)
    parent = place_for(graph, spec)
    number = graph.next_node_id
    node = Vertex(
        NODE,
        spec.name,
        spec.name,
        number,
        (number + 1) * _STRIDE + 1,
        path=f"{parent.path}/{spec.name}",
        properties=dict(spec.properties),
        up=not spec.down,
    )
    parent.adopt(node)
    resize_pools(node, spec.pools)
    graph.register(node)
    return node


def place_for(graph: Graph, spec: NodeSpec) -> Vertex:
    """Return the vertex a node belongs below, made where needed."""
    parent = graph.root
    for level in spec.levels:
        parent = _level(graph, parent, level)
    return parent


def check_spec(spec: NodeSpec) -> None:
    """Refuse what cannot be a node."""
    if not spec.name or "/" in spec.name:
        raise InvalidGraph(f"node {spec.name!r:.80}: a name without slashes is needed")
    if len(spec.levels) > _MAX_LEVELS:
        raise InvalidGraph(f"node {spec.name!r:.80}: more than {_MAX_LEVELS} levels")
    seen: set[str] = set()
    for pool in spec.pools:
        if not pool.type or pool.type in seen:
            raise InvalidGraph(f"node {spec.name!r:.80}: pool type {pool.type!r:.40} is empty or stands twice")
        seen.add(pool.type)
        if not 0 <= pool.total <= _MAX_TOTAL or pool.vertex_size < 0 or -(-pool.total // (pool.vertex_size or 1)) > _MAX_LEAVES:
            raise InvalidGraph(f"node {spec.name!r:.80}: pool {pool.type}: {pool.total} in pieces of {pool.vertex_size} is out of range")


def _level(graph: Graph, parent: Vertex, level: Level) -> Vertex:
    if not level.type or not level.name or "/" in level.name:
        raise InvalidGraph(f"level {level.type!r:.40} {level.name!r:.80}: a type and a name without slashes are needed")
    path = f"{parent.path}/{level.name}"
    vertex = graph.by_path.get(path)
    if vertex is not None:
        if vertex.type != level.type:
            raise InvalidGraph(f"level {path}: is a {vertex.type} already, not a {level.type}")
        return vertex
    number = sum(1 for other in graph.by_path.values() if other.type == level.type)
    vertex = Vertex(level.type, level.name, level.name, number, -len(graph.by_path) - 1, path=path)
    parent.adopt(vertex)
    graph.register(vertex)
    return vertex


def resize_pools(node: Vertex, pools: Sequence[Pool]) -> None:
    """Give a node these pools, keeping the runs (and the jobs in them) that keep their vertex size.

    A run that shrinks keeps the bits of jobs beyond its new end: they are then in use but not part of the node.
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
