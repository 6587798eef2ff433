"""A second reading of the kube-scheduler's filters InterPodAffinity and PodTopologySpread, written for tests
alone, with random clusters for it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluxqueue.api.nodes import Taint

__all__ = [
    "HOST",
    "NAMESPACES",
    "RACK",
    "REQUIRED",
    "ZONE",
    "ANode",
    "APod",
    "a_cluster",
    "a_pod_of",
    "at",
    "inter_pod_affinity",
    "may_use",
    "pod_topology_spread",
    "schedulable",
    "tolerated",
]

HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
NAMESPACES: Mapping[str, Mapping[str, str]] = {"mine": {"team": "x"}, "theirs": {"team": "y"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class APod:
    """A pod as the API server shows it."""

    namespace: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any] = field(default_factory=dict)
    node: str = ""
    going: bool = False


@dataclass(frozen=True)
class ANode:
    name: str
    labels: Mapping[str, str]
    taints: Sequence[Taint] = ()
    room: int = 1


def at(pod: APod, node: str) -> APod:
    """Return the pod on a node."""
    return APod(pod.namespace, pod.labels, pod.spec, node, pod.going)


# ---- the second reading ------------------------------------------------------------------------------------


def label_selected(selector: Any, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions") or []:
        key, operator, values = each["key"], each["operator"], each.get("values") or []
        if operator == "In" and (key not in labels or labels[key] not in values):
            return False
        if operator == "NotIn" and key in labels and labels[key] in values:
            return False
        if operator == "Exists" and key not in labels:
            return False
        if operator == "DoesNotExist" and key in labels:
            return False
    return True


def speaks_of(term: Any, owner: APod, other: APod) -> bool:
    selector = term.get("namespaceSelector")
    in_reach = other.namespace in (term.get("namespaces") or []) or label_selected(
        selector, NAMESPACES[other.namespace]
    )
    if not term.get("namespaces") and selector is None:
        in_reach = other.namespace == owner.namespace
    if not in_reach or not label_selected(term.get("labelSelector"), other.labels):
        return False
    for key in term.get("matchLabelKeys") or []:
        if key in owner.labels and other.labels.get(key) != owner.labels[key]:
            return False
    return all(
        key not in owner.labels or other.labels.get(key) != owner.labels[key]
        for key in term.get("mismatchLabelKeys") or []
    )


def terms(pod: APod, kind: str) -> list[Any]:
    return list(((pod.spec.get("affinity") or {}).get(kind) or {}).get(REQUIRED) or [])


def inter_pod_affinity(pod: APod, node: ANode, nodes: Sequence[ANode], placed: Sequence[APod]) -> bool:
    at = {each.name: each for each in nodes}
    for other in placed:
        for term in terms(other, "podAntiAffinity"):
            domain = at[other.node].labels.get(term["topologyKey"])
            if (
                domain is not None
                and node.labels.get(term["topologyKey"]) == domain
                and speaks_of(term, other, pod)
            ):
                return False
        for term in terms(pod, "podAntiAffinity"):
            domain = at[other.node].labels.get(term["topologyKey"])
            if (
                domain is not None
                and node.labels.get(term["topologyKey"]) == domain
                and speaks_of(term, pod, other)
            ):
                return False
    wanted = terms(pod, "podAffinity")
    if not wanted:
        return True
    if any(term["topologyKey"] not in node.labels for term in wanted):
        return False
    near = [other for other in placed if all(speaks_of(term, pod, other) for term in wanted)]
    counts = {
        (term["topologyKey"], at[other.node].labels[term["topologyKey"]])
        for other in near
        for term in wanted
        if term["topologyKey"] in at[other.node].labels
    }
    if all((term["topologyKey"], node.labels[term["topologyKey"]]) in counts for term in wanted):
        return True
    return not counts and all(speaks_of(term, pod, pod) for term in wanted)


def tolerated(pod: APod, taint: Taint) -> bool:
    return any(
        each.get("key") == taint.key and each.get("operator") == "Exists"
        for each in pod.spec.get("tolerations") or []
    )


def may_use(pod: APod, node: ANode, pinned: str | None) -> bool:
    chosen = all(node.labels.get(key) == value for key, value in (pod.spec.get("nodeSelector") or {}).items())
    return chosen and pinned in (None, node.name)


def pod_topology_spread(
    pod: APod, node: ANode, nodes: Sequence[ANode], placed: Sequence[APod], pinned: str | None
) -> bool:
    hard = [
        each
        for each in pod.spec.get("topologySpreadConstraints") or []
        if each["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    keys = [each["topologyKey"] for each in hard]
    for each in hard:
        counts: dict[str, int] = {}
        for other_node in nodes:
            if any(key not in other_node.labels for key in keys):
                continue
            if each.get("nodeAffinityPolicy", "Honor") == "Honor" and not may_use(pod, other_node, pinned):
                continue
            if each.get("nodeTaintsPolicy", "Ignore") == "Honor" and any(
                not tolerated(pod, taint) for taint in other_node.taints
            ):
                continue
            domain = other_node.labels[each["topologyKey"]]
            counts[domain] = counts.get(domain, 0) + sum(
                other.node == other_node.name
                and other.namespace == pod.namespace
                and not other.going
                and spread_selects(each, pod, other)
                for other in placed
                if not counts_nothing(each, pod)
            )
        if each["topologyKey"] not in node.labels:
            return False
        least = min(counts.values(), default=1 << 31)
        if len(counts) < each.get("minDomains", 1):
            least = 0
        here = counts.get(node.labels[each["topologyKey"]], 0)
        if here + spread_selects(each, pod, pod) - least > each["maxSkew"]:
            return False
    return True


def counts_nothing(spread: Any, pod: APod) -> bool:
    """A selector that selects every pod is empty to the scheduler,
    and then it counts none (countPodsMatchSelector).
    """
    return spread.get("labelSelector") == {} and not any(
        key in pod.labels for key in spread.get("matchLabelKeys") or []
    )


def spread_selects(spread: Any, pod: APod, other: APod) -> bool:
    return label_selected(spread.get("labelSelector"), other.labels) and all(
        key not in pod.labels or other.labels.get(key) == pod.labels[key]
        for key in spread.get("matchLabelKeys") or []
    )


def schedulable(
    pod: APod, node: ANode, nodes: Sequence[ANode], placed: Sequence[APod], pinned: str | None = None
) -> bool:
    """Whether the scheduler takes this node, for a pod that may go anywhere or is pinned."""
    if not may_use(pod, node, pinned) or any(not tolerated(pod, taint) for taint in node.taints):
        return False
    return inter_pod_affinity(pod, node, nodes, placed) and pod_topology_spread(
        pod, node, nodes, placed, pinned
    )


# ---- random clusters ---------------------------------------------------------------------------------------


def a_selector(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.1:
        return {}
    if kind < 0.15:
        return None
    if kind < 0.75:
        return {"matchLabels": {"app": rng.choice("ab")}}
    operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
    values = {"values": rng.sample("abc", rng.randint(1, 2))} if operator in ("In", "NotIn") else {}
    return {"matchExpressions": [{"key": rng.choice(["app", "tier"]), "operator": operator, **values}]}


def a_term(rng: random.Random) -> dict[str, Any]:
    term: dict[str, Any] = {"topologyKey": rng.choice([HOST, ZONE, RACK]), "labelSelector": a_selector(rng)}
    if rng.random() < 0.15:
        term["namespaces"] = rng.sample(["mine", "theirs"], rng.randint(1, 2))
    if rng.random() < 0.15:
        term["namespaceSelector"] = rng.choice([{}, {"matchLabels": {"team": "y"}}])
    if term["labelSelector"] is not None and rng.random() < 0.1:
        term[rng.choice(["matchLabelKeys", "mismatchLabelKeys"])] = ["tier"]
    return term


def a_spread(rng: random.Random, topology: str) -> dict[str, Any]:
    spread: dict[str, Any] = {
        "topologyKey": topology,
        "maxSkew": rng.randint(1, 2),
        "labelSelector": a_selector(rng) or {},
    }
    spread["whenUnsatisfiable"] = "DoNotSchedule" if rng.random() < 0.9 else "ScheduleAnyway"
    if rng.random() < 0.2 and spread["whenUnsatisfiable"] == "DoNotSchedule":
        spread["minDomains"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        spread["nodeAffinityPolicy"] = rng.choice(["Honor", "Ignore"])
    if rng.random() < 0.3:
        spread["nodeTaintsPolicy"] = rng.choice(["Honor", "Ignore"])
    if rng.random() < 0.1:
        spread["matchLabelKeys"] = ["tier"]
    return spread


def a_pod_of(rng: random.Random, *, rules: int, kinds: str = "apns") -> APod:
    affinity: dict[str, Any] = {}
    spreads: list[dict[str, Any]] = []
    for _ in range(rules):
        match rng.choice(kinds):
            case "a":
                affinity.setdefault("podAffinity", {}).setdefault(REQUIRED, []).append(a_term(rng))
            case "s":
                used = {each["topologyKey"] for each in spreads}
                spreads += [
                    a_spread(rng, topology)
                    for topology in [rng.choice([HOST, ZONE, RACK])]
                    if topology not in used
                ]
            case _:
                affinity.setdefault("podAntiAffinity", {}).setdefault(REQUIRED, []).append(a_term(rng))
    spec: dict[str, Any] = {"affinity": affinity, "topologySpreadConstraints": spreads}
    if rng.random() < 0.2:
        spec["nodeSelector"] = {ZONE: rng.choice("xy")}
    if rng.random() < 0.5:
        spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    labels = {key: rng.choice("ab") for key in ("app", "tier") if rng.random() < 0.7}
    return APod(rng.choice(["mine", "mine", "theirs"]), labels, spec)


def a_cluster(rng: random.Random) -> tuple[list[ANode], list[APod]]:
    nodes = []
    for number in range(rng.randint(1, 5)):
        labels = {HOST: f"h-n{number}"}
        labels |= {ZONE: rng.choice("xyz")} if rng.random() < 0.85 else {}
        labels |= {RACK: rng.choice("123")} if rng.random() < 0.7 else {}
        taints = [Taint(key="gpu", value="", effect="NoSchedule")] if rng.random() < 0.15 else []
        nodes.append(ANode(f"n{number}", labels, taints, rng.randint(0, 3)))
    placed = []
    for _ in range(rng.randint(0, 6)):
        pod = a_pod_of(rng, rules=rng.choice([0, 0, 1]), kinds="n")
        placed.append(APod(pod.namespace, pod.labels, pod.spec, rng.choice(nodes).name, rng.random() < 0.1))
    return nodes, placed
