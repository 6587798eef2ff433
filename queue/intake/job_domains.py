"""Where a further pod of a Job or group must run if all its pods must lie below one vertex of the topology,
or in one domain of a label.

A Job that grows, a group with more pods than start together, or one whose pod lost its node, gets single pods
matched. The other pods decide which vertex or domain that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from fluxqueue.api import names
from fluxqueue.api.graphnames import label_property
from fluxqueue.api.nodes import Node
from fluxqueue.api.topology import NODE_LEVEL, TopologyLevel
from fluxqueue.fluxion.match.levels import GROUP
from fluxqueue.queue.model.topology_levels import required_level

__all__ = ["properties_beside"]


def properties_beside(
    jobspec: str, nodes: Iterable[Node | None], levels: Sequence[TopologyLevel]
) -> tuple[str, ...]:
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
    if f'"{GROUP}"' not in jobspec and '"together"' not in jobspec:
        return ()
    spec = orjson.loads(jobspec)
    wanted = [*_labels_of(required_level(spec["resources"]), levels), *_together(spec)]
    node = next((node for node in nodes if node is not None), None)
    if node is None:
        return ()
    return tuple(label_property(label, value) for label in wanted if (value := node.metadata.label(label)))


def _labels_of(required: str, levels: Sequence[TopologyLevel]) -> list[str]:
    """Return the labels of nodes below one vertex of a level: its own and those above it."""
    labels = [label for _, label in levels]
    if required == NODE_LEVEL:
        return [*labels, names.HOSTNAME_LABEL]
    at = next((number for number, (name, _) in enumerate(levels) if name == required), None)
    return labels[: at + 1] if at is not None else []


def _together(spec: dict[str, Any]) -> list[str]:
    rules = spec["attributes"]["system"].get("domains", ())
    return [key for rule in rules for key in rule.get("together", ())]
