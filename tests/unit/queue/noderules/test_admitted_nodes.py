"""What rules about other pods come to, against a second reading of the kube-scheduler's filters,
written for this test alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
import pytest

from fluxqueue.api.nodes import Taint
from fluxqueue.api.pods import PodSpec
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.match.domains import Skew, write_domains
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, JobMatchRequest, MatchVerdict, Pool
from fluxqueue.queue.noderules.admitted_nodes import AdmittedNodes, NodeTopology, admitted_nodes
from fluxqueue.queue.noderules.placed_pods import PlacedPod, PlacedPods
from fluxqueue.queue.noderules.pod_rules import NodeFacts, PodRules, repelling_terms, rules_of, rules_of_all

HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
NAMESPACES: Mapping[str, Mapping[str, str]] = {"mine": {"team": "x"}, "theirs": {"team": "y"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NOW = CallContext(now=1_000)


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


# ---- what the queue makes of it ----------------------------------------------------------------------------


def decoded(pod: APod) -> PodSpec:
    return msgspec.convert(pod.spec, PodSpec)


def cluster_of(nodes: Sequence[ANode]) -> NodeTopology:
    facts = {node.name: NodeFacts(node.name, node.labels, tuple(node.taints)) for node in nodes}
    return NodeTopology(facts, lambda namespace: NAMESPACES[namespace])


def index_of(placed: Sequence[APod]) -> PlacedPods:
    index = PlacedPods()
    for number, pod in enumerate(placed):
        repels = repelling_terms(decoded(pod), pod.namespace, pod.labels)
        index.put(PlacedPod(f"pod-{number}", pod.namespace, pod.labels, pod.node, pod.going, repels))
    return index


def ruled(pod: APod, nodes: Sequence[ANode], placed: Sequence[APod], count: int = 1) -> AdmittedNodes:
    return admitted_nodes(
        rules_of(decoded(pod), pod.namespace, pod.labels), index_of(placed), cluster_of(nodes), count
    )


def usable(pod: APod, nodes: Sequence[ANode]) -> list[ANode]:
    """What node selectors and taints leave: the part of another module."""
    return [
        node
        for node in nodes
        if may_use(pod, node, None) and all(tolerated(pod, taint) for taint in node.taints)
    ]


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


@pytest.mark.parametrize("seed", range(400))
def test_a_single_pod_is_admitted_to_exactly_the_nodes_the_scheduler_takes(seed: int) -> None:
    rng = random.Random(seed)
    nodes, placed = a_cluster(rng)
    pod = a_pod_of(rng, rules=rng.randint(0, 3))
    found = ruled(pod, nodes, placed)
    assert found.domains == ()
    admitted = {node.name for node in usable(pod, nodes) if not found.problem([node.name], cluster_of(nodes))}
    taken = {
        node.name
        for node in nodes
        if schedulable(pod, node, nodes, placed) and schedulable(pod, node, nodes, placed, pinned=node.name)
    }
    assert admitted == taken, (pod, found)


def in_turn(pod: APod, left: Mapping[str, int], nodes: Sequence[ANode], placed: Sequence[APod]) -> bool:
    """Whether pinned pods, so many for each node, are all scheduled:
    whoever can go next goes, as retries do.
    """
    left, placed = dict(left), list(placed)
    at = {node.name: node for node in nodes}
    while any(left.values()):
        for name, count in left.items():
            free = schedulable(pod, at[name], nodes, placed) and schedulable(
                pod, at[name], nodes, placed, pinned=name
            )
            if count and free:
                left[name] -= 1
                placed.append(APod(pod.namespace, pod.labels, pod.spec, name))
                break
        else:
            return False
    return True


def ways(count: int, nodes: Sequence[ANode]) -> Iterator[dict[str, int]]:
    for split in itertools.product(*(range(min(node.room, count) + 1) for node in nodes)):
        if sum(split) == count:
            yield {node.name: each for node, each in zip(nodes, split, strict=True) if each}


def matched(found: AdmittedNodes, count: int, nodes: Sequence[ANode]) -> dict[str, int] | None:
    """Where the matcher puts a gang of pods under a ruling."""
    if found.refusal:
        return None
    specs = []
    for node in nodes:
        properties = {**node.labels, **{f"{key}={value}": "" for key, value in node.labels.items()}}
        specs.append(GraphNodeSpec(node.name, (Pool("cpu", node.room * 100, 100),), (), properties))
    system: dict[str, Any] = {"constraints": found.constraint or {}, "domains": write_domains(found.domains)}
    slot = {"type": "slot", "count": count, "label": "pod", "with": [{"type": "cpu", "count": 100}]}
    task = {"command": ["a"], "slot": "pod", "count": {"per_slot": 1}}
    engine = Engine()
    engine.init("lonode", nodes=specs, call=NOW)
    text = orjson.dumps(
        {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": system}}
    ).decode()
    (answer,) = engine.match_batch([JobMatchRequest(text, 1, explain=True)], NOW).results
    assert answer.verdict is not MatchVerdict.INVALID, answer.reason
    return (
        {share.node: sum(share.slots.values()) for share in answer.shares}
        if answer.verdict is MatchVerdict.GRANTED
        else None
    )


@pytest.mark.parametrize("rules", [1, 2, 3])
@pytest.mark.parametrize("seed", range(150))
def test_a_gang_is_placed_where_the_scheduler_takes_all_of_it(seed: int, rules: int) -> None:
    rng = random.Random(seed)
    nodes, placed = a_cluster(rng)
    pod = a_pod_of(rng, rules=rules)
    count = rng.randint(2, 5)
    nodes = usable(pod, nodes)
    names = {node.name for node in nodes}
    placed = [each for each in placed if each.node in names]
    if not nodes:
        return
    found = ruled(pod, nodes, placed, count)
    where = matched(found, count, nodes)
    if where is not None:
        assert in_turn(pod, where, nodes, placed), (pod, found, where)
        assert not found.problem(
            [name for name, each in where.items() for _ in range(each)], cluster_of(nodes)
        )
    elif rules == 1:
        assert not any(in_turn(pod, way, nodes, placed) for way in ways(count, nodes)), (pod, found)


@pytest.mark.parametrize("count", [1, 4])
def test_spread_with_an_empty_selector_counts_no_pod(count: int) -> None:
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    rules = rules_of(msgspec.convert({"topologySpreadConstraints": [spread]}, PodSpec), "mine", {"app": "a"})
    pods = PlacedPods()
    for number in range(3):
        pods.put(PlacedPod(f"p{number}", "mine", {}, "n1"))
    nodes = {name: NodeFacts(name, {ZONE: name}, ()) for name in ("n1", "n2")}
    assert admitted_nodes(rules, pods, NodeTopology(nodes, lambda _: {}), count) == AdmittedNodes(
        {"properties": [ZONE]}
    )


def group_of_two(spec: dict[str, Any]) -> PodRules:
    """The rules of a group of a pod ``app: a`` and one ``app: b``."""
    return rules_of_all(
        [rules_of(msgspec.convert(spec, PodSpec), "mine", {"app": app, "all": "of them"}) for app in "ab"]
    )


def test_a_group_of_different_labels_that_are_all_selected_is_spread() -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}
    spread = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    nodes = {name: NodeFacts(name, {ZONE: name}, ()) for name in ("n1", "n2")}
    rules = group_of_two({"topologySpreadConstraints": [spread]})
    admitted = admitted_nodes(rules, PlacedPods(), NodeTopology(nodes, lambda _: {}), 2)
    assert admitted.domains == (Skew(ZONE, 1, (("n1", 0), ("n2", 0)), zero=False),)


def test_a_placed_pod_that_repels_some_of_a_group_keeps_all_of_it_off() -> None:
    terms = [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "b"}}}]
    repels = repelling_terms(
        msgspec.convert({"affinity": {"podAntiAffinity": {REQUIRED: terms}}}, PodSpec), "mine", {}
    )
    pods = PlacedPods()
    pods.put(PlacedPod("p", "mine", {}, "n1", repels=repels))
    nodes = {name: NodeFacts(name, {ZONE: name}, ()) for name in ("n1", "n2")}
    assert admitted_nodes(group_of_two({}), pods, NodeTopology(nodes, lambda _: {}), 2).constraint == {
        "not": [{"properties": [f"{ZONE}=n1"]}]
    }
