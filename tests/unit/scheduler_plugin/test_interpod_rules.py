"""Rules about other pods in the check of a gang, against a second reading of the kube-scheduler's filters
(`support.pod_filters`) that counts all pods anew for each member.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
import orjson
import pytest
from support.builders import make_node, make_pod
from support.pod_filters import (
    HOST,
    NAMESPACES,
    REQUIRED,
    ZONE,
    ANode,
    APod,
    a_cluster,
    a_pod_of,
    at,
    inter_pod_affinity,
    pod_topology_spread,
)
from support.queue_builders import a_pod
from support.work_counts import assert_linear

from fluxqueue.api import names
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.checks import FITS, check_gang

OF_THE_GANG: Mapping[str, Any] = {"labelSelector": {"matchLabels": {"app": "x"}}}


class World:
    """Caches that no watch fills, and the pods that count there as the second reading sees them."""

    def __init__(self, nodes: Sequence[ANode], placed: Sequence[APod] = ()) -> None:
        self.caches = SchedulerCaches(cast("Api", None))
        self.nodes = {node.name: node for node in nodes}
        self.placed: dict[str, APod] = {}
        self._numbers = itertools.count()
        for name, labels in NAMESPACES.items():
            document = {"metadata": {"name": name, "uid": name, "labels": labels}}
            self.caches.namespaces.apply(msgspec.convert(document, Namespace))
        for node in nodes:
            builder = make_node(node.name).uid(node.name).with_("metadata.labels", dict(node.labels))
            for taint in node.taints:
                builder = builder.taint(taint.key, taint.effect)
            self.caches.nodes.apply(msgspec.convert(builder.build(), Node))
        for pod in placed:
            self.put(pod, pod.node)

    def put(self, pod: APod, bound_to: str = "", nominated_to: str = "") -> Pod:
        """Show a pod to the caches."""
        name = f"p{next(self._numbers)}"
        builder = make_pod(name).namespace(pod.namespace).with_("metadata.labels", dict(pod.labels))
        for field, value in pod.spec.items():
            builder = builder.with_(f"spec.{field}", value)
        if bound_to:
            builder = builder.on_node(bound_to)
            self.placed[name] = pod
        if nominated_to:
            builder = builder.with_("status.nominatedNodeName", nominated_to)
        if pod.going:
            builder = builder.with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z")
        document = a_pod(builder, uid=name)
        self.caches.pods.apply(document)
        return document

    def node(self, name: str) -> Node:
        node = self.caches.node(name)
        assert node is not None
        return node


def pinned(pod: APod, node: str) -> APod:
    """The pod with required affinity for its node, as the queue releases it to the stock scheduler."""
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [pin]}]}}
    spec = {**pod.spec, "affinity": {**pod.spec["affinity"], "nodeAffinity": terms}}
    return APod(pod.namespace, pod.labels, spec, node)


def numbered(pod: APod) -> APod:
    """The pod with a completion index instead of its label ``tier``, there and in all rules."""
    of_tier = orjson.dumps([pod.labels, pod.spec]).decode()
    labels, spec = orjson.loads(of_tier.replace('"tier"', f'"{names.JOB_INDEX_LABEL}"'))
    return replace(pod, labels=labels, spec=spec)


def a_gang(rng: random.Random, nodes: Sequence[ANode]) -> list[APod]:
    """Pods on nodes: most have one spec, with labels that differ for some."""
    template = a_pod_of(rng, rules=rng.randint(1, 3))
    gang = []
    for _ in range(rng.randint(2, 6)):
        pod = template if rng.random() < 0.8 else a_pod_of(rng, rules=rng.randint(0, 2))
        labels = {**pod.labels, "tier": rng.choice("ab")} if rng.random() < 0.3 else pod.labels
        member = APod(pod.namespace, labels, pod.spec, rng.choice(nodes).name)
        gang.append(pinned(member, member.node) if rng.random() < 0.2 else member)
    return gang


def allowed(
    pod: APod,
    nodes: Mapping[str, ANode],
    bound: Sequence[APod],
    waiting: Sequence[APod],
    nominated: Sequence[APod],
) -> bool:
    """Whether the filters admit a pod to its node, with and without the nominated pods.
    Only spread counts the pods that wait with it.
    """
    here, there = nodes[pod.node], [*nodes.values()]
    pin = pod.node if "nodeAffinity" in pod.spec["affinity"] else None
    return all(
        inter_pod_affinity(pod, here, there, [*bound, *rivals])
        and pod_topology_spread(pod, here, there, [*bound, *waiting, *rivals], pin)
        for rivals in ((), nominated)
    )


def check(
    rng: random.Random, world: World, gang: Sequence[APod], made: Callable[[APod], APod]
) -> list[tuple[Pod, APod]]:
    """Check a gang against a plain recount; return the members that were admitted."""
    members = {pod.metadata.uid: (pod, each) for pod, each in ((world.put(each), each) for each in gang)}
    bound, waiting = [*world.placed.values()], {uid: each for uid, (_, each) in members.items()}
    admitted = []
    with world.caches.interpod.checking([(pod, each.node) for pod, each in members.values()]) as checking:
        for uid, (pod, each) in members.items():
            del waiting[uid]
            rivals = [
                made(at(a_pod_of(rng, rules=rng.randint(0, 1), kinds="n"), each.node))
                for _ in range(rng.choice([0, 0, 0, 1, 2]))
            ]
            why = checking.violation(pod, world.node(each.node), [world.put(rival) for rival in rivals])
            assert (not why) == allowed(each, world.nodes, bound, [*waiting.values()], rivals), (each, why)
            if not why and rng.random() < 0.8:
                checking.assume(pod)
                bound.append(each)
                admitted.append((pod, each))
            else:  # it may still be bound with the others later, so it counts for spread
                waiting[uid] = each
    return admitted


@pytest.mark.parametrize("seed", range(300))
def test_each_member_is_admitted_as_a_recount_of_all_pods_admits_it(seed: int) -> None:
    rng = random.Random(seed)
    made: Callable[[APod], APod] = numbered if seed % 2 else lambda pod: pod
    nodes, placed = a_cluster(rng)
    world = World(nodes, [*map(made, placed)])
    for _ in range(3):
        for pod, each in check(rng, world, [*map(made, a_gang(rng, nodes))], made):
            uid = pod.metadata.uid
            if rng.random() < 0.5:
                world.caches.assume(pod, each.node)
                world.placed[uid] = each
                if rng.random() < 0.3:
                    world.caches.forget(uid, each.node)
                    del world.placed[uid]


def affinity(kind: str, topology: str, **term: Any) -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": topology, **OF_THE_GANG, **term}]}}}


def spread(topology: str, **constraint: Any) -> dict[str, Any]:
    whole = {"topologyKey": topology, "maxSkew": 1_000, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**whole, **OF_THE_GANG, **constraint}]}


RULES = {
    "spread over zones": spread(ZONE),
    "spread over hosts": spread(HOST, nodeTaintsPolicy="Honor", minDomains=2),
    "near each other": affinity("podAffinity", "region"),
    "apart from each other": affinity("podAntiAffinity", HOST),
    "spread by a label of each": spread(ZONE, matchLabelKeys=[names.JOB_INDEX_LABEL]),
    "apart from those of its number": affinity(
        "podAntiAffinity", HOST, matchLabelKeys=[names.JOB_INDEX_LABEL]
    ),
    "apart from those of other numbers": affinity(
        "podAntiAffinity", HOST, mismatchLabelKeys=[names.JOB_INDEX_LABEL]
    ),
    "apart from others": affinity("podAntiAffinity", ZONE, labelSelector={"matchLabels": {"app": "y"}}),
}


def cluster_of(count: int) -> World:
    """As many nodes, in ten zones of one region."""
    labels = [{HOST: f"h{number}", ZONE: f"z{number % 10}", "region": "r"} for number in range(count)]
    return World([ANode(f"n{number}", each) for number, each in enumerate(labels)])


def gang_of(count: int, world: World, rules: Mapping[str, Any]) -> list[tuple[Pod, str]]:
    """Pods of an Indexed Job, each with its node."""
    labels = [{"app": "x", names.JOB_INDEX_LABEL: f"{number}"} for number in range(count)]
    return [(world.put(APod("mine", each, rules)), f"n{number}") for number, each in enumerate(labels)]


def checked(world: World, members: Sequence[tuple[Pod, str]]) -> Callable[[], None]:
    """Return a check in which all of them fit."""

    def run() -> None:
        assert {*check_gang(members, world.caches).values()} == {FITS}

    return run


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_gang_costs_as_much_for_each_member_however_many_there_are(rules: dict[str, Any]) -> None:
    def gang(count: int) -> Callable[[], object]:
        world = cluster_of(count)
        return checked(world, gang_of(count, world, rules))

    assert_linear(gang)


def test_terms_of_other_pods_are_compared_with_all_members_at_once() -> None:
    def gang(count: int) -> Callable[[], object]:
        world = cluster_of(count)
        for number in range(count):
            others = [
                {"key": names.JOB_INDEX_LABEL, "operator": "NotIn", "values": [f"{number}"]},
                {"key": f"k{number}", "operator": "Exists"},
            ]
            term = {"namespaceSelector": {}, "labelSelector": {"matchExpressions": others}}
            world.put(APod("theirs", {}, affinity("podAntiAffinity", "region", **term)), f"n{number}")
        return checked(world, gang_of(count, world, {}))

    assert_linear(gang)


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_pods_of_former_jobs_are_counted_once_for_all_members(kind: str) -> None:
    def gang(count: int) -> Callable[[], object]:
        world = cluster_of(count + 1)
        for number in range(count):
            labels = {"app": "x", names.JOB_INDEX_LABEL: f"{number}"}
            world.put(APod("mine", labels), f"n{count}")
        topology = "region" if kind == "podAffinity" else HOST
        rules = affinity(kind, topology, mismatchLabelKeys=[names.JOB_INDEX_LABEL])
        return checked(world, gang_of(count, world, rules))

    assert_linear(gang)


def test_a_nominated_pod_is_counted_only_where_it_is_asked_about() -> None:
    def gang(count: int) -> Callable[[], object]:
        world = cluster_of(count)
        for number in range(count):
            world.put(APod("theirs", {}, affinity("podAntiAffinity", ZONE)), nominated_to=f"n{number}")
        return checked(world, gang_of(count, world, RULES["spread by a label of each"]))

    assert_linear(gang)


def test_a_nominated_pod_keeps_others_off_where_no_other_pod_has_rules() -> None:
    world = cluster_of(2)
    world.put(APod("mine", {}, affinity("podAntiAffinity", HOST)), nominated_to="n1")
    first, second = gang_of(2, world, {})
    results = check_gang([first, second], world.caches)
    assert results[first[0].metadata.uid] == FITS
    assert "podAntiAffinity of another pod" in results[second[0].metadata.uid].message
