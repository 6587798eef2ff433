"""Where a further pod of a Job must run if all its pods must lie below one vertex of the topology.

A Job that grows, or whose pod lost its node, gets single pods matched. Its other pods decide which vertex that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson

from fluxqueue.api import names
from fluxqueue.api.graphnames import label_property
from fluxqueue.api.nodes import Node
from fluxqueue.api.topology import NODE_LEVEL, TopologyLevel
from fluxqueue.fluxion.match.levels import GROUP
from fluxqueue.queue.model.topology_levels import required_level

__all__ = ["properties_beside"]


def properties_beside(jobspec: str, nodes: Iterable[Node | None], levels: Sequence[TopologyLevel]) -> tuple[str, ...]:
    """Return the properties that nodes next to these have.

    Parameters
    ----------
    jobspec
        Of the Job.
    nodes
        Of its other pods; None for one that is gone.
    levels
        Of this installation, from the top down.

    Returns
    -------
    tuple of str
        Empty if the Job requires no level, or none of its nodes exists.
    """
    if f'"{GROUP}"' not in jobspec:
        return ()
    required = required_level(orjson.loads(jobspec)["resources"])
    labels = [label for _, label in levels]
    if required == NODE_LEVEL:
        wanted = [*labels, names.HOSTNAME_LABEL]
    elif (at := next((number for number, (name, _) in enumerate(levels) if name == required), None)) is not None:
        wanted = labels[: at + 1]
    else:
        return ()
    node = next((node for node in nodes if node is not None), None)
    if node is None:
        return ()
    return tuple(label_property(label, value) for label in wanted if (value := node.metadata.label(label)))
