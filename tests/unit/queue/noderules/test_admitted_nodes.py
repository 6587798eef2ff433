"""What rules about other pods come to, against a second reading of the kube-scheduler's filters
(`support.pod_filters`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson
import pytest
from support.pod_filters import (
    NAMESPACES,
    RACK,
    REQUIRED,
    ZONE,
    ANode,
    APod,
    a_cluster,
    a_pod_of,
    at,
    may_use,
    schedulable,
    tolerated,
)
from support.work_counts import assert_linear

from fluxqueue.api.pods import PodSpec
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.match.domains import Skew, write_domains
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, JobMatchRequest, MatchVerdict, Pool
from fluxqueue.queue.noderules.admitted_nodes import AdmittedNodes, NodeTopology, admitted_nodes
from fluxqueue.queue.noderules.placed_pods import PlacedPod, PlacedPods
from fluxqueue.queue.noderules.pod_rules import NodeFacts, PodRules, repelling_terms, rules_of, rules_of_all

NOW = CallContext(now=1_000)
A_NEIGHBOUR = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "a"}}}


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


@pytest.mark.parametrize("count", [1, 3])
def test_nodes_in_one_of_many_domains_are_found_by_their_label(count: int) -> None:
    near = APod("mine", {"app": "a"}, {"affinity": {"podAffinity": {REQUIRED: [A_NEIGHBOUR]}}})
    nodes = [ANode(f"n{number}", {RACK: f"{number}"}) for number in range(4)]
    found = ruled(near, nodes, [APod("mine", {"app": "a"}, node=f"n{number}") for number in (1, 3)], count)
    assert found.constraint == {"in": [RACK, "1", "3"]}


def test_the_nodes_of_a_gang_are_looked_at_in_proportion_to_its_number() -> None:
    def look(count: int) -> Callable[[], object]:
        apart = APod("mine", {"app": "a"}, {"affinity": {"podAntiAffinity": {REQUIRED: [A_NEIGHBOUR]}}})
        nodes = [ANode(f"n{number}", {RACK: f"{number}"}) for number in range(2 * count)]
        found = ruled(apart, nodes, [at(apart, node.name) for node in nodes[:count]], count)
        free, cluster = [node.name for node in nodes[count:]], cluster_of(nodes)

        def run() -> None:
            assert not found.problem(free, cluster)

        return run

    assert_linear(look)
