"""A workload's request as a Flux jobspec.

Every pod is a slot: cpu in millicores, memory in MiB, gpus and other resources in pieces, and always one pod slot of the node, so that a
pod that asks for nothing still takes its place. All slots of a workload are matched at once or not at all. Counts are those the pod asks
for; rounding up to whole vertices is the matcher's business (the graph's vertex sizes are not known here, and may change).

Written as canonical JSON: equal requests are equal texts, so a digest of the text stands for all that matching depends on.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import orjson

from fluxqueue.api.graphnames import POD_SLOTS, resource_type
from fluxqueue.fluxion.messages import NodeShare

__all__ = [
    "BESIDE",
    "SLOT",
    "Beside",
    "Role",
    "jobspec_of",
    "label_for",
    "labels_of",
    "places_of",
    "shape_of",
    "share_on",
    "sizes_in",
    "slot_resources",
    "slots_in",
]

SLOT = "pod"
"""Label of the slot every pod stands for; where a workload has pods of several sizes, ``pod.0``, ``pod.1`` and so on."""

BESIDE = "services"
"""Label of the slot of a pod that goes beside those of a Job; its rank comes after theirs."""

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


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one size among those of a workload.

    Attributes
    ----------
    requests
        Effective requests of one of them, by Kubernetes resource name.
    pods
        How many there are, at least 1.
    """

    requests: Mapping[str, Decimal]
    pods: int


@dataclass(frozen=True, slots=True)
class Beside:
    """A pod that goes beside those of a Job: the services pod of a MiniCluster.

    Attributes
    ----------
    requests
        Effective requests, by Kubernetes resource name.
    apart
        Whether it may not share a node with those that have one each.
    """

    requests: Mapping[str, Decimal]
    apart: bool = False


def jobspec_of(
    name: str,
    roles: Sequence[Role],
    *,
    duration_s: int | None,
    constraint: Mapping[str, Any] | None = None,
    one_per_node: bool = False,
    beside: Beside | None = None,
) -> str:
    """Write a workload's jobspec (RFC 14, version 1).

    Parameters
    ----------
    name
        ``namespace/name`` of the user's object, kept as the task's command.
    roles
        One where all pods are alike. Several become as many slots side by side, a form that the matcher's extended calls know.
    duration_s
        Expected wall time; None for work without an end.
    constraint
        RFC 31 constraint on nodes, of all roles.
    one_per_node
        Whether no two pods may share a node; of one role only.
    beside
        A pod that is no role's, whatever its size.

    Returns
    -------
    str
        Canonical JSON: it does not depend on the order of the roles.
    """
    sizes: dict[tuple[tuple[str, int], ...], int] = {}
    for role in roles:
        size = tuple(sorted(slot_resources(role.requests).items()))
        sizes[size] = sizes.get(size, 0) + role.pods
    slots: list[dict[str, Any]] = []
    for number, (size, pods) in enumerate(sorted(sizes.items())):
        label = SLOT if len(sizes) == 1 else f"{SLOT}.{number}"
        slots.append(_slot(label, size, 1 if one_per_node else pods))
    parts = [_nodes(sum(sizes.values()), slots)] if one_per_node else [*slots]
    if beside is not None:
        slots.append(_slot(BESIDE, tuple(sorted(slot_resources(beside.requests).items())), 1))
        parts.append(_nodes(1, slots[-1:]) if beside.apart else slots[-1])
    system: dict[str, Any] = {}
    if duration_s is not None:
        system["duration"] = duration_s
    if constraint:
        system["constraints"] = constraint
    spec = {
        "version": 1,
        "resources": parts,
        "tasks": [{"command": [name], "slot": slot["label"], "count": {"per_slot": 1}} for slot in slots],
        "attributes": {"system": system},
    }
    return orjson.dumps(spec).decode()


def _slot(label: str, size: Iterable[tuple[str, int]], count: int) -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": label, "with": [{"type": kind, "count": amount} for kind, amount in size]}


def _nodes(count: int, slots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"type": "node", "count": count, "with": list(slots)}


def slots_in(jobspec: str) -> list[tuple[str, int, Mapping[str, int]]]:
    """Label, number and members of the slots of a jobspec as `jobspec_of` wrote it, in the order of ranks."""
    found: list[tuple[str, int, Mapping[str, int]]] = []
    for part in orjson.loads(jobspec)["resources"]:
        nodes, slots = (int(part["count"]), part["with"]) if part["type"] == "node" else (1, [part])
        for slot in slots:
            members = {str(member["type"]): int(member["count"]) for member in slot["with"]}
            found.append((str(slot["label"]), nodes * int(slot["count"]), members))
    return found


@lru_cache(maxsize=4_096)
def sizes_in(jobspec: str) -> Mapping[str, Mapping[str, int]]:
    """What one slot of each label is made of."""
    return {label: members for label, _, members in slots_in(jobspec)}


def share_on(node: str, slots: Mapping[str, int], sizes: Mapping[str, Mapping[str, int]]) -> NodeShare:
    """What so many slots of each label take on a node."""
    amounts: Counter[str] = Counter()
    for label, count in slots.items():
        for kind, amount in sizes[label].items():
            amounts[kind] += amount * count
    return NodeShare(node, dict(slots), dict(amounts))


def label_for(jobspec: str, requests: Mapping[str, Decimal]) -> str | None:
    """The label of the slots that are made for a pod of these requests; None where there are none."""
    size = slot_resources(requests)
    return next((label for label, members in sizes_in(jobspec).items() if members == size and label != BESIDE), None)


def places_of(shares: Iterable[NodeShare]) -> list[tuple[str, str]]:
    """Node and label of each rank: label by label, and within one in the order in which Fluxion chose the nodes."""
    found = [(label, share.node, count) for share in shares for label, count in share.slots.items()]
    if len({label for label, _, _ in found}) > 1:
        found.sort(key=lambda place: (len(place[0]), place[0]))
    return [(node, label) for label, node, count in found for _ in range(count)]


def labels_of(shares: Iterable[NodeShare], ranks: int) -> list[str]:
    """The label of each rank's slot."""
    places = places_of(shares)
    if len({label for _, label in places}) < 2:
        return [places[0][1] if places else SLOT] * ranks  # ranks without a node are of the same size
    return [label for _, label in places]


def shape_of(jobspec: str) -> str:
    """Digest of all that a match depends on: the jobspec without the name of the work."""
    spec = orjson.loads(jobspec)
    spec.pop("tasks", None)
    return hashlib.sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
