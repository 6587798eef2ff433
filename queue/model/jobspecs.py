"""A workload's request as a Flux jobspec (RFC 14).

Each pod is a slot: cpu in millicores, memory in MiB, gpus and other resources in pieces, and always one pod
slot of the node. So a pod that requests nothing still takes its share of a node's ``pods``. All slots of a
workload are matched together, or none. The counts are those that the pod requests. The matcher rounds them up
to whole vertices: the graph's vertex sizes are not known here, and may change. The request of one pod is
bounded where it is read. The number of pods, and of different sizes, is bounded here
(`fluxqueue.api.bounds`).

A jobspec is written as canonical JSON. Equal requests are equal texts, so a digest of the text stands for all
that matching depends on.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson

from fluxqueue.api.bounds import MAX_POD_SIZES, is_measured_in_bytes, too_many_pods
from fluxqueue.api.fluxqueues import Flavor
from fluxqueue.api.graphnames import POD_SLOTS, is_device, is_volume, label_property, resource_type
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.api.topology import ANYWHERE, TopologyRequest
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.remembered import remembered
from fluxqueue.queue.model.topology_levels import (
    below_levels,
    divided,
    most_per_node,
    node_rules_of,
    with_levels,
)

__all__ = [
    "ANY_NODE",
    "MIN_PODS",
    "SERVICES_SLOT",
    "SLOT",
    "PlacementRules",
    "ServicesPod",
    "SizedPods",
    "extra_requests_in",
    "jobspec_of",
    "labels_of",
    "pods_per_node_in",
    "ranks_of",
    "reservation_in",
    "shape_of",
    "share_on",
    "sizes_in",
    "slot_resources",
    "slots_for",
    "slots_in",
    "taken_once_in",
    "takes_whole_nodes",
    "without_nodes",
]

SLOT = "pod"
"""Label of the slot of a pod. A workload with pods of several sizes has ``pod.0``, ``pod.1`` and so on."""

SERVICES_SLOT = "services"
"""Label of the slot of a MiniCluster's services pod. Its rank comes after those of the brokers."""

_EXTRA_REQUESTS = "surplus"
MIN_PODS = "minPods"
_ONCE = "once"
"""Attributes of stored jobspecs: their names are part of the format."""
_MEBI = Decimal(1 << 20)
_MILLI = Decimal(1000)

Size = tuple[tuple[str, int], ...]
"""Resource type of the graph and count, sorted by type."""


def slot_resources(requests: Mapping[str, Decimal]) -> dict[str, int]:
    """Return one pod's request in the graph's units, rounded up.

    Parameters
    ----------
    requests
        Effective requests by Kubernetes resource name, in base units.

    Returns
    -------
    dict
        Resource type of the graph -> count (millicores, MiB, pieces). One pod slot is always part of it.
    """
    counts = {POD_SLOTS: 1}
    for name, amount in requests.items():
        if name == "cpu":
            count = math.ceil(amount * _MILLI)
        elif is_measured_in_bytes(name):
            count = math.ceil(amount / _MEBI)
        else:
            count = math.ceil(amount)
        counts[resource_type(name)] = count
    return counts


@dataclass(frozen=True, slots=True)
class SizedPods:
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
class ServicesPod:
    """The services pod of a MiniCluster, which is matched together with the brokers.

    Attributes
    ----------
    requests
        Effective requests, by Kubernetes resource name.
    apart
        True if it may not share a node with brokers that have a node each.
    """

    requests: Mapping[str, Decimal]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """Which nodes the pods of a workload may run on.

    Attributes
    ----------
    constraint
        RFC 31 constraint on the nodes of all pods; None or empty: any node.
    one_per_node
        True if no two pods may share a node. Only for pods of one size.
    pod_rules
        Rules about other pods (`fluxqueue.queue.noderules.pod_rules`). The queue reads them, the matcher does
        not.
    topology
        Levels of the topology, and how its pods share nodes.
    reservation
        The FluxReservation on whose nodes, and within whose times, they run; empty: none.
    once
        What the pods on a node share and take once, by Kubernetes resource name.
    one_node
        True if they all must run on one node.
    flavors
        Of which nodes they use one kind, in their order; empty: all alike.
    """

    constraint: Mapping[str, Any] | None = None
    one_per_node: bool = False
    pod_rules: Mapping[str, Any] | None = None
    topology: TopologyRequest = ANYWHERE
    reservation: str = ""
    once: Mapping[str, int] = field(default_factory=dict)
    one_node: bool = False
    flavors: Sequence[Flavor] = ()


ANY_NODE = PlacementRules()


def jobspec_of(
    name: str,
    pods: Sequence[SizedPods],
    *,
    duration_s: int | None,
    placement: PlacementRules = ANY_NODE,
    services: ServicesPod | None = None,
    extra_requests: Mapping[str, int] | None = None,
    min_pods: int = 0,
) -> str:
    """Write a workload's jobspec (RFC 14, version 1).

    Parameters
    ----------
    name
        ``namespace/name`` of the user's object, kept as the task's command.
    pods
        One entry if all pods are alike. Several sizes become as many slots side by side, a form that only the
        extended calls of the matcher accept.
    duration_s
        Expected wall time in seconds; None for work without an end.
    placement
        Which nodes all pods may run on.
    services
        A services pod, of whatever size.
    extra_requests
        What each pod requests beyond ``pods``, in the graph's units (`fluxqueue.queue.model.extra_requests`).
        Not added to ``services``.
    min_pods
        With how few pods it may start (`fluxqueue.queue.model.moldable`); 0 if only with all.

    Returns
    -------
    str
        Canonical JSON. It does not depend on the order of ``pods``.

    Raises
    ------
    InvalidRequest
        The workload has more pods, or pods of more sizes, than one workload may have.
    """
    sizes = _sizes(pods, extra_requests or {})
    count = sum(sizes.values())
    topology, slices = divided(placement.topology, count, sizes=len(sizes), services=services is not None)
    slots, resources = _resources(sizes, placement.one_per_node, services, divided_by=slices or 1)
    attributes: dict[str, Any] = {"system": _system(duration_s, placement, topology)}
    user: dict[str, Any] = {MIN_PODS: min_pods} if 0 < min_pods < count else {}
    if extra_requests:
        user[_EXTRA_REQUESTS] = dict(sorted(extra_requests.items()))
    if user:
        attributes["user"] = user
    spec = {
        "version": 1,
        "resources": with_levels(resources, topology, slices),
        "tasks": [{"command": [name], "slot": slot["label"], "count": {"per_slot": 1}} for slot in slots],
        "attributes": attributes,
    }
    return orjson.dumps(spec).decode()


def _system(duration_s: int | None, placement: PlacementRules, topology: TopologyRequest) -> dict[str, Any]:
    """The attributes that the matcher reads."""
    system: dict[str, Any] = {}
    if duration_s is not None:
        system["duration"] = duration_s
    if placement.constraint:
        system["constraints"] = placement.constraint
    if placement.pod_rules:
        system["podRules"] = placement.pod_rules
    rules = [*([{"together": [""]}] if placement.one_node else ()), *node_rules_of(topology)]
    if placement.once:
        rules.append({_ONCE: {resource_type(name): count for name, count in sorted(placement.once.items())}})
    if rules:
        system["domains"] = rules
    if placement.reservation:
        system["reservation"] = placement.reservation
    elif placement.flavors:
        system["flavors"] = [
            {
                "name": each.name,
                "wait": each.wait_seconds,
                "labels": [label_property(*pair) for pair in sorted((each.node_selector or {}).items())],
            }
            for each in placement.flavors
        ]
    return system


def _sizes(pods: Sequence[SizedPods], extra_requests: Mapping[str, int]) -> dict[Size, int]:
    """Return how many pods there are of each size.

    Raises
    ------
    InvalidRequest
        More pods, or sizes, than one workload may have.
    """
    sizes: dict[Size, int] = {}
    for each in pods:
        size = tuple(sorted((Counter(slot_resources(each.requests)) + Counter(extra_requests)).items()))
        sizes[size] = sizes.get(size, 0) + each.pods
    if problem := too_many_pods(sum(sizes.values())):
        raise InvalidRequest(problem)
    if len(sizes) > MAX_POD_SIZES:
        raise InvalidRequest(
            f"its pods have {len(sizes)} different sizes, the most that starts as one is {MAX_POD_SIZES}: "
            "make them more alike"
        )
    return sizes


def _resources(
    sizes: Mapping[Size, int], one_per_node: bool, services: ServicesPod | None, divided_by: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the slots in the order of ranks, and the ``resources`` of the jobspec, or of one slice of it,
    which hold them.
    """
    slots = [
        _slot(
            SLOT if len(sizes) == 1 else f"{SLOT}.{number}", size, 1 if one_per_node else count // divided_by
        )
        for number, (size, count) in enumerate(sorted(sizes.items()))
    ]
    resources = [_nodes(sum(sizes.values()) // divided_by, slots)] if one_per_node else [*slots]
    if services is None:
        return slots, resources
    slot = _slot(SERVICES_SLOT, sorted(slot_resources(services.requests).items()), 1)
    return [*slots, slot], [*resources, _nodes(1, [slot]) if services.apart else slot]


def _slot(label: str, size: Iterable[tuple[str, int]], count: int) -> dict[str, Any]:
    return {
        "type": "slot",
        "count": count,
        "label": label,
        "with": [{"type": kind, "count": amount} for kind, amount in size],
    }


def _nodes(count: int, slots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"type": "node", "count": count, "with": list(slots)}


def slots_in(jobspec: str) -> list[tuple[str, int, Mapping[str, int]]]:
    """Return label, number and members of the slots of a jobspec as `jobspec_of` wrote it,
    in the order of ranks.
    """
    slots_of_job: list[tuple[str, int, Mapping[str, int]]] = []
    parts, times = below_levels(orjson.loads(jobspec)["resources"])
    for part in parts:
        nodes, slots = (
            (times * int(part["count"]), part["with"]) if part["type"] == "node" else (times, [part])
        )
        for slot in slots:
            members = {str(member["type"]): int(member["count"]) for member in slot["with"]}
            slots_of_job.append((str(slot["label"]), nodes * int(slot["count"]), members))
    return slots_of_job


def extra_requests_in(jobspec: str) -> Mapping[str, int]:
    """Return what each slot of a jobspec has beyond the template of its pod, in the graph's units."""
    return _extra_requests_in(jobspec) if f'"{_EXTRA_REQUESTS}"' in jobspec else {}


@remembered(4_096)
def _extra_requests_in(jobspec: str) -> Mapping[str, int]:
    extra: dict[str, int] = orjson.loads(jobspec)["attributes"].get("user", {}).get(_EXTRA_REQUESTS, {})
    return extra


def reservation_in(jobspec: str) -> str:
    """Return the name of the FluxReservation that a jobspec is for; empty if it is for none."""
    return _reservation_in(jobspec) if '"reservation"' in jobspec else ""


@remembered(4_096)
def _reservation_in(jobspec: str) -> str:
    return str(orjson.loads(jobspec)["attributes"]["system"].get("reservation", ""))


@remembered(4_096)
def sizes_in(jobspec: str) -> Mapping[str, Mapping[str, int]]:
    """Return the members of one slot of each label: resource type of the graph -> count."""
    return {label: members for label, _, members in slots_in(jobspec)}


def taken_once_in(jobspec: str) -> Mapping[str, int]:
    """Return what the pods of a jobspec share and take once on each node:
    resource type of the graph -> count.
    """
    rules = (
        orjson.loads(jobspec)["attributes"]["system"].get("domains", ()) if f'"{_ONCE}"' in jobspec else ()
    )
    return {kind: int(count) for rule in rules for kind, count in rule.get(_ONCE, {}).items()}


def share_on(node: str, slots: Mapping[str, int], sizes: Mapping[str, Mapping[str, int]]) -> NodeShare:
    """Return what a number of slots of each label take on a node.

    Parameters
    ----------
    node
        Its name.
    slots
        Label -> number of slots.
    sizes
        As `sizes_in` returns them.
    """
    amounts: Counter[str] = Counter()
    for label, count in slots.items():
        for kind, amount in sizes[label].items():
            amounts[kind] += amount * count
    return NodeShare(node, dict(slots), dict(amounts))


def slots_for(jobspec: str, requests: Mapping[str, Decimal]) -> dict[str, Mapping[str, int]]:
    """Return the slots that have exactly the size of a pod with these requests, by label,
    and what each has for claims beside.
    """
    size, found = slot_resources(requests), dict[str, Mapping[str, int]]()
    for label, members in sizes_in(jobspec).items():
        claims = {kind: amount for kind, amount in members.items() if is_volume(kind) or is_device(kind)}
        if (
            label != SERVICES_SLOT
            and {kind: amount for kind, amount in members.items() if kind not in claims} == size
        ):
            found[label] = claims
    return found


def ranks_of(shares: Iterable[NodeShare]) -> list[tuple[str, str]]:
    """Return node and label of each rank: label by label, and within a label in the order in which Fluxion
    chose the nodes.
    """
    parts = [(label, share.node, count) for share in shares for label, count in share.slots.items()]
    if len({label for label, _, _ in parts}) > 1:
        parts.sort(key=lambda part: (len(part[0]), part[0]))
    return [(node, label) for label, node, count in parts for _ in range(count)]


def labels_of(shares: Iterable[NodeShare], ranks: int) -> list[str]:
    """Return the label of each rank's slot."""
    placed = ranks_of(shares)
    if len({label for _, label in placed}) < 2:
        return [placed[0][1] if placed else SLOT] * ranks  # ranks without a node are of the same size
    return [SLOT] * (ranks - len(placed)) + [label for _, label in placed]  # a services slot is the last one


def takes_whole_nodes(jobspec: str) -> bool:
    """Return True if no other workload may have anything on its nodes."""
    return '"whole"' in jobspec and {"whole": True} in orjson.loads(jobspec)["attributes"]["system"].get(
        "domains", ()
    )


def pods_per_node_in(jobspec: str) -> int:
    """Return the most pods of a jobspec on one node; 0: any number."""
    if '"most"' not in jobspec:
        return 0
    return most_per_node(orjson.loads(jobspec)["attributes"]["system"].get("domains", ()))


def without_nodes(jobspec: str, nodes: Sequence[str]) -> str:
    """Return the same request, on all nodes but these."""
    spec = orjson.loads(jobspec)
    system = spec["attributes"]["system"]
    others = {"not": [{"hostlist": list(nodes)}]}
    system["constraints"] = {"and": [system["constraints"], others]} if system.get("constraints") else others
    return orjson.dumps(spec).decode()


def shape_of(jobspec: str) -> str:
    """Return a digest of all that a match depends on: the jobspec without the name of the work."""
    spec = orjson.loads(jobspec)
    spec.pop("tasks", None)
    return hashlib.sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
