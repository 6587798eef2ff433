"""A workload's request as a Flux jobspec.

Every pod is a slot: cpu in millicores, memory in MiB, gpus and other resources in pieces, and always one pod slot of the node, so that a
pod that asks for nothing still takes its place. All slots of a workload are matched at once or not at all. Counts are those the pod asks
for; rounding up to whole vertices is the matcher's business (the graph's vertex sizes are not known here, and may change).

Written as canonical JSON: equal requests are equal texts, so a digest of the text stands for all that matching depends on.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson

from fluxqueue.api.graphnames import POD_SLOTS, resource_type

__all__ = ["SLOT", "jobspec_of", "shape_of", "slot_resources"]

SLOT = "pod"
"""Label of the slot every pod stands for."""

_MEBI = Decimal(1 << 20)
_MILLI = Decimal(1000)


def slot_resources(requests: Mapping[str, Decimal]) -> dict[str, int]:
    """One pod's request in the graph's units, rounded up.

    Parameters
    ----------
    requests
        Effective requests by Kubernetes resource name, in base units.

    Returns
    -------
    dict
        Resource type of the graph -> count (millicores, MiB, pieces); one pod slot is always among them.
    """
    counts = {POD_SLOTS: 1}
    for name, amount in requests.items():
        if name == "cpu":
            count = math.ceil(amount * _MILLI)
        elif name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
            count = math.ceil(amount / _MEBI)
        else:
            count = math.ceil(amount)
        kind = resource_type(name)
        counts[kind] = counts.get(kind, 0) + count
    return counts


def jobspec_of(
    name: str,
    requests: Mapping[str, Decimal],
    pods: int,
    *,
    duration_s: int | None,
    constraint: Mapping[str, Any] | None = None,
    one_per_node: bool = False,
) -> str:
    """Write the jobspec of a workload whose pods are all alike (RFC 14, version 1).

    Parameters
    ----------
    name
        ``namespace/name`` of the user's object, kept as the task's command.
    requests
        Effective requests of one pod.
    pods
        Slots wanted, at least 1.
    duration_s
        Expected wall time; None for work without an end.
    constraint
        RFC 31 constraint on nodes.
    one_per_node
        Whether no two pods may share a node.

    Returns
    -------
    str
        Canonical JSON.
    """
    members = [{"type": kind, "count": count} for kind, count in sorted(slot_resources(requests).items())]
    slot: dict[str, Any] = {"type": "slot", "count": 1 if one_per_node else pods, "label": SLOT, "with": members}
    system: dict[str, Any] = {}
    if duration_s is not None:
        system["duration"] = duration_s
    if constraint:
        system["constraints"] = constraint
    spec = {
        "version": 1,
        "resources": [{"type": "node", "count": pods, "with": [slot]} if one_per_node else slot],
        "tasks": [{"command": [name], "slot": SLOT, "count": {"per_slot": 1}}],
        "attributes": {"system": system},
    }
    return orjson.dumps(spec).decode()


def shape_of(jobspec: str) -> str:
    """Digest of all that a match depends on: the jobspec without the name of the work."""
    spec = orjson.loads(jobspec)
    spec.pop("tasks", None)
    return hashlib.sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
