"""Sizes and use of the graph, for people and for the queue, which compares them with its records."""

from __future__ import annotations

from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.messages import NodeUse, Stat

__all__ = ["stat"]


def stat(state: GraphState, *, per_node: bool) -> Stat:
    """Sum up a state.

    Parameters
    ----------
    per_node
        List every node with its use and its jobs.

    Returns
    -------
    Stat
        ``total`` counts all nodes, ``free`` what can be taken now on nodes that are up and not closed.
    """
    total: dict[str, int] = {}
    free: dict[str, int] = {}
    use: list[NodeUse] = []
    graph = state.graph
    if per_node or not state.table.plain:
        for node in graph.nodes:
            here, used = _use(node, state.now)
            open_ = node.up and not node.closed and not node.held(state.now, state.now + 1, state.now)
            for kind, amount in here.items():
                total[kind] = total.get(kind, 0) + amount
                free[kind] = free.get(kind, 0) + (amount - used[kind] if open_ else 0)
            if per_node:
                jobids = {job.jobid for job in (*node.exclusive, *node.shared)}
                use.append(NodeUse(node.name, node.up, node.closed, here, used, tuple(sorted(jobids))))
    else:
        table = state.table
        for kind in table.total:
            total[kind] = int(table.total[kind][table.present].sum())
            free[kind] = int(table.amount[kind][table.usable].sum())
    reserved = len(state.reserved)
    advance = sum(len(times) for times in state.reserved_times.values())
    return Stat(
        instance=state.instance,
        policy=state.policy.name,
        nodes=len(graph.nodes),
        nodes_up=sum(1 for node in graph.nodes if node.up),
        vertices=graph.vertices,
        total=total,
        free=free,
        allocated_jobs=len(state.jobs) - reserved,
        reserved_jobs=reserved - advance,
        now=state.now,
        epoch=state.epoch,
        node_use=tuple(use),
    )


def _use(node: Vertex, now: int) -> tuple[dict[str, int], dict[str, int]]:
    total: dict[str, int] = {}
    used: dict[str, int] = {}
    for vertex in node.subtree():
        for kind, run in vertex.runs.items():
            total[kind] = total.get(kind, 0) + run.total
            used[kind] = used.get(kind, 0) + run.amount(run.taken(now, now + 1, now) & run.full)
    return total, used
