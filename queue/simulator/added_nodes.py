"""Nodes that a forecast adds to a cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fluxqueue.api.names import HOSTNAME_LABEL
from fluxqueue.queue.simulator.cluster_snapshot import ClusterSnapshot

__all__ = ["with_more_nodes"]


def with_more_nodes(snapshot: ClusterSnapshot, count: int) -> ClusterSnapshot:
    """Return the snapshot with more nodes, of the shape that most nodes have.

    Raises
    ------
    ValueError
        No node is up whose shape the new nodes could have.
    """
    shapes = Counter((node.pools, node.levels) for node in snapshot.nodes if not node.down)
    if not shapes:
        raise ValueError("nodes cannot be added: no node is up whose shape they could have")
    shape = shapes.most_common(1)[0][0]
    like = next(node for node in snapshot.nodes if not node.down and (node.pools, node.levels) == shape)
    properties = {name: value for name, value in like.properties.items() if HOSTNAME_LABEL not in name}
    more = [replace(like, name=f"added-{number}", properties=properties) for number in range(1, count + 1)]
    foreign = dict(snapshot.foreign)
    if taken := snapshot.daemons.get(like.name):
        foreign.update((node.name, taken) for node in more)
    return replace(snapshot, nodes=(*snapshot.nodes, *more), foreign=foreign)
