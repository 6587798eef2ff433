"""Which nodes a pod may have, decided from the extender's caches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from support.builders import PodBuilder, make_pod
from support.work_counts import assert_linear

from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.extender.decisions import HIGHEST, RESERVED, Decider
from fluxqueue.scheduler_plugin.extender.wire import FilterResult

NODES = ("n1", "n2", "n3")
_versions = itertools.count(1)


class World:
    """Nodes of four cores, pods, and the extender's decisions about them."""

    def __init__(self) -> None:
        self.caches = SchedulerCaches(cast(Any, None))
        self.decider = Decider(self.caches)
        for name in NODES:
            self.node(name)

    def node(self, name: str, *, cordoned: bool = False, cpu: str = "4", zone: str = "z") -> None:
        document = {
            "metadata": {
                "name": name,
                "uid": name,
                "resourceVersion": str(next(_versions)),
                "labels": {"zone": zone},
            },
            "spec": {"unschedulable": cordoned},
            "status": {
                "allocatable": {"cpu": cpu, "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.caches.nodes.apply(msgspec.convert(document, Node))

    def add(self, builder: PodBuilder) -> Pod:
        name = builder.build()["metadata"]["name"]
        document = (
            builder.namespace("team")
            .uid(name)
            .with_("metadata.resourceVersion", str(next(_versions)))
            .build()
        )
        pod = msgspec.convert(document, Pod)
        self.caches.pods.apply(pod)
        return pod

    def gang(self, *nodes: str, cpu: str = "2") -> list[Pod]:
        """Release the pods of one Job as a gang with one pod per node."""
        return [self.add(member(f"g{rank}", node, len(nodes), cpu)) for rank, node in enumerate(nodes)]

    def bind(self, pod: Pod, node: str) -> None:
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        metadata = msgspec.structs.replace(pod.metadata, resource_version=str(next(_versions)))
        self.caches.pods.apply(msgspec.structs.replace(pod, spec=spec, metadata=metadata))

    def filter(self, pod: Pod) -> FilterResult:
        return self.decider.filter(pod, NODES)

    def kept(self, pod: Pod) -> list[str]:
        return [*self.filter(pod).kept]


@pytest.fixture
def world() -> World:
    return World()


def member(name: str, node: str, size: int, cpu: str = "2") -> PodBuilder:
    return released(name, node, cpu).annotation("fluxqueue/gang-size", str(size))


def released(name: str, node: str, cpu: str = "2", jobid: int = 7) -> PodBuilder:
    return (
        make_pod(name)
        .cpu(cpu)
        .annotation("fluxqueue/allocation", str(jobid))
        .annotation("fluxqueue/fluxion-nodes", node)
    )


def other(name: str = "other", cpu: str = "3") -> PodBuilder:
    return make_pod(name).cpu(cpu)


def test_a_released_pod_may_have_its_own_node_only(world: World) -> None:
    result = world.filter(world.add(released("p", "n2")))
    assert [*result.kept] == ["n2"]
    assert result.unresolvable == dict.fromkeys(("n1", "n3"), "fluxqueue has found node n2 for this pod")
    assert not result.failed


def test_a_released_pod_gets_no_node_if_kube_scheduler_excludes_its_own(world: World) -> None:
    pod = world.add(released("p", "n2"))
    result = world.decider.filter(pod, ["n1", "n3"])
    assert not result.kept
    assert {*result.unresolvable} == {"n1", "n3"}


def test_where_only_room_is_missing_evicting_may_help_and_else_not(world: World) -> None:
    pod = world.add(released("p", "n1"))
    world.bind(world.add(other()), "n1")
    assert world.filter(pod).failed == {"n1": "node n1 has too little cpu left"}
    world.node("n1", cordoned=True)
    result = world.filter(pod)
    assert not result.failed
    assert result.unresolvable["n1"] == "node n1 is cordoned"


def test_a_list_of_nodes_is_read_by_the_completion_index(world: World) -> None:
    assert world.kept(world.add(released("p", "n1,n3").index(1))) == ["n3"]


def test_an_unreadable_assignment_is_reported(world: World) -> None:
    result = world.filter(world.add(released("p", "n1,n3")))
    assert not result.kept
    assert "no completion index" in result.unresolvable["n1"]


def test_a_gang_waits_until_all_of_it_is_released(world: World) -> None:
    first = world.add(member("g0", "n1", 3))
    second = world.add(member("g1", "n2", 3))
    for pod, node in ((first, "n1"), (second, "n2")):
        why = world.filter(pod).unresolvable[node]
        assert why == (
            "it starts with the others of its group or not at all, "
            "and 2 of 3 pods of allocation 7 are released so far"
        )
    third = world.add(member("g2", "n3", 3))
    assert [world.kept(pod) for pod in (first, second, third)] == [["n1"], ["n2"], ["n3"]]


def test_a_member_with_a_foreign_gate_holds_back_the_gang(world: World) -> None:
    first = world.add(member("g0", "n1", 2))
    world.add(member("g1", "n2", 2).gate("example.com/licence"))
    assert not world.kept(first)


@pytest.mark.parametrize("blocked", [0, 1, 2])
def test_one_blocked_member_holds_back_the_whole_gang(world: World, blocked: int) -> None:
    pods = world.gang(*NODES)
    world.node(NODES[blocked], cordoned=True)
    assert [world.kept(pod) for pod in pods] == [[], [], []]
    for rank, pod in enumerate(pods):
        about = (
            ""
            if rank == blocked
            else f"it starts with the others of its group or not at all, and pod g{blocked} cannot start: "
        )
        assert world.filter(pod).unresolvable[NODES[rank]] == f"{about}node {NODES[blocked]} is cordoned"
        assert world.decider.bind_obstacle(pod, NODES[rank]) == f"{about}node {NODES[blocked]} is cordoned"
    world.node(NODES[blocked])
    assert [world.kept(pod) for pod in pods] == [["n1"], ["n2"], ["n3"]]


def test_a_gang_of_pinned_pods_costs_as_much_for_each_of_them_however_many_there_are(world: World) -> None:
    spread = {
        "topologyKey": "zone",
        "maxSkew": 1_000,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }

    def gang(count: int) -> Callable[[], object]:
        pods = []
        for number in range(count):
            name = f"{count}-{number}"
            world.node(name, zone=f"z{number % 10}")
            pin = {"key": "metadata.name", "operator": "In", "values": [name]}
            pod = member(name, name, count).required_terms({"matchFields": [pin]}).label("app", "x")
            pod = pod.annotation("fluxqueue/allocation", f"{count}")
            pods.append(world.add(pod.with_("spec.topologySpreadConstraints", [spread])))

        def run() -> None:
            assert world.decider.bind_obstacle(pods[0], f"{count}-0") == ""

        return run

    assert_linear(gang)


def test_members_on_one_node_must_fit_together(world: World) -> None:
    pods = world.gang("n1", "n1", "n2")
    assert all(world.kept(pod) for pod in pods)
    world.bind(world.add(other(cpu="1")), "n1")
    assert not any(world.kept(pod) for pod in pods)


def test_once_one_pod_is_bound_or_being_bound_the_others_pass_by_themselves(world: World) -> None:
    pods = world.gang(*NODES)
    world.node("n3", cordoned=True)
    assert not world.kept(pods[1])
    world.decider.assume(pods[0], "n1")
    assert world.kept(pods[1]) == ["n2"]
    world.decider.unassume(pods[0])
    assert not world.kept(pods[1])
    world.bind(pods[0], "n1")
    assert world.kept(pods[1]) == ["n2"]
    assert not world.kept(pods[2])


def test_other_pods_may_have_only_capacity_that_is_not_reserved(world: World) -> None:
    world.add(released("p", "n1"))
    large, small = world.add(other("large", "3")), world.add(other("small", "2"))
    result = world.filter(large)
    assert [*result.kept] == ["n2", "n3"]
    assert result.unresolvable == {"n1": RESERVED}
    assert world.kept(small) == [*NODES]
    world.bind(small, "n1")
    assert world.kept(world.add(other("another", "1"))) == ["n2", "n3"]


def test_capacity_is_reserved_until_the_pod_is_bound_ended_or_gone(world: World) -> None:
    pod, foreign = world.add(released("p", "n1", "4")), world.add(other(cpu="1"))
    assert world.kept(foreign) == ["n2", "n3"]
    world.bind(pod, "n1")
    assert world.kept(foreign) == [*NODES], "bound pods are kube-scheduler's to count"
    again = world.add(released("q", "n1", "4"))
    assert world.kept(foreign) == ["n2", "n3"]
    world.caches.pods.remove(again)
    assert world.kept(foreign) == [*NODES]


def test_no_capacity_is_reserved_for_a_pod_that_waits_for_the_queue(world: World) -> None:
    foreign = world.add(other(cpu="3"))
    world.add(released("p", "n1", "4").gate("fluxqueue"))
    assert world.kept(foreign) == [*NODES]
    world.add(released("q", "n2", "4").gate("example.com/licence"))
    assert world.kept(foreign) == ["n1", "n3"], "released, and held by somebody else"


def test_capacity_is_reserved_for_pods_of_our_own_scheduler_too(world: World) -> None:
    world.add(make_pod("p").cpu("2").by_fluxion("n1"))
    assert world.kept(world.add(other())) == ["n2", "n3"]


def test_a_pod_of_higher_priority_may_take_reserved_capacity(world: World) -> None:
    world.add(released("p", "n1").with_("spec.priority", 5))
    world.add(released("q", "n1", "1").with_("spec.priority", 9))
    for priority, kept in ((5, ["n2", "n3"]), (6, [*NODES]), (None, ["n2", "n3"])):
        pod = other(f"of-{priority}", "3")
        assert (
            world.kept(world.add(pod if priority is None else pod.with_("spec.priority", priority))) == kept
        )


def test_a_host_port_is_reserved_too(world: World) -> None:
    world.add(released("p", "n1").host_ports(8080))
    assert world.kept(world.add(other(cpu="1").host_ports(8080))) == ["n2", "n3"]
    assert world.kept(world.add(other("free", "1").host_ports(8081))) == [*NODES]


def test_resources_that_no_released_pod_requests_are_not_reserved(world: World) -> None:
    world.add(released("p", "n1"))
    assert world.kept(world.add(other(cpu="1").request("example.com/ignored-by-the-scheduler", "9"))) == [
        *NODES
    ]


def test_scores_prefer_the_own_node_and_avoid_reserved_capacity(world: World) -> None:
    pod = world.add(released("p", "n1"))
    assert world.decider.prioritize(pod, NODES) == {"n1": HIGHEST, "n2": 0, "n3": 0}
    assert world.decider.prioritize(world.add(other()), NODES) == {"n1": 0, "n2": HIGHEST, "n3": HIGHEST}


def test_a_pod_is_bound_to_its_own_node_only(world: World) -> None:
    pod = world.add(released("p", "n1"))
    assert world.decider.bind_obstacle(pod, "n1") == ""
    assert world.decider.bind_obstacle(pod, "n2") == "fluxqueue has found node n1 for this pod, not n2"


def test_a_pod_that_is_being_bound_counts_for_those_after_it(world: World) -> None:
    world.add(released("p", "n1"))
    one, two = world.add(other("one", "1")), world.add(other("two", "2"))
    assert world.decider.bind_obstacle(two, "n1") == ""
    world.decider.assume(one, "n1")
    assert world.decider.bind_obstacle(two, "n1") == f"node n1: {RESERVED}"
    world.decider.unassume(one)
    assert world.decider.bind_obstacle(two, "n1") == ""
