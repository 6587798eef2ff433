"""How far work that asked for a level of the topology came:
the vertex that all its nodes are below, or how many vertices they are in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import orjson

from fluxqueue.api.names import NO_NODE
from fluxqueue.api.topology import NODE_LEVEL, TopologyLevel
from fluxqueue.queue.model.topology_levels import levels_asked_for

__all__ = ["reached_levels"]


def reached_levels(
    jobspec: str,
    hosts: Iterable[str],
    labels_of: Callable[[str], Mapping[str, str]],
    levels: Sequence[TopologyLevel],
) -> str:
    """Return where the nodes of a workload are in the topology, in words; empty if it asked for no level.

    Parameters
    ----------
    jobspec
        Of the workload.
    hosts
        Its nodes.
    labels_of
        The labels of a node; empty for one that is gone.
    levels
        Of this installation, from the top down.
    """
    if '"group"' not in jobspec and '"preferred"' not in jobspec:
        return ""
    asked = levels_asked_for(orjson.loads(jobspec)["resources"])
    nodes = {host: labels_of(host) for host in hosts if host != NO_NODE}
    if not asked or not nodes:
        return ""
    paths = [tuple(labels.get(label, "") for _, label in levels) for labels in nodes.values()]
    common = ""
    for depth, (name, _) in enumerate(levels):
        values = {path[: depth + 1] for path in paths}
        if len(values) == 1 and paths[0][depth]:
            common = f"below {name} {paths[0][depth]}"
    lowest = asked[-1]
    number = next((number for number, (name, _) in enumerate(levels) if name == lowest), None)
    used = len({path[: number + 1] for path in paths}) if number is not None else len(nodes)
    if lowest == NODE_LEVEL or number is None or used == 1:
        return common
    return f"in {used} parts of level {lowest}{', ' + common if common else ''}"
