from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from support.builders import NodeBuilder, PodBuilder, make_node, make_pod
from support.queue_builders import a_pod

from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.checks import FITS, FitResult, FitStatus, check_gang

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


class World(SchedulerCaches):
    """Caches that no watch fills."""

    def __init__(self, *nodes: NodeBuilder) -> None:
        super().__init__(cast("Api", None))
        self.namespaces.apply(msgspec.convert({"metadata": {"name": "default", "uid": "ns"}}, Namespace))
        for node in nodes or (make_node("n1"),):
            self.nodes.apply(
                msgspec.convert(node.uid(f"uid-{node.build()['metadata']['name']}").build(), Node)
            )

    def put(self, builder: PodBuilder, name: str) -> Pod:
        pod = a_pod(builder.with_("metadata.name", name), uid=f"uid-{name}")
        self.pods.apply(pod)
        return pod

    def check(self, *members: tuple[Pod, str]) -> list[FitResult]:
        found = check_gang(members, self)
        return [found[pod.metadata.uid] for pod, _ in members]


def verdicts(findings: Sequence[FitResult]) -> list[FitStatus]:
    return [finding.status for finding in findings]


def zoned(name: str, zone: str) -> NodeBuilder:
    return make_node(name).label(ZONE, zone)


def term(app: str, topology: str = HOST) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}


def requiring(kind: str, *terms: dict[str, Any]) -> PodBuilder:
    return make_pod().with_(
        f"spec.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution", list(terms)
    )


def test_members_of_one_node_are_counted_together_in_their_order() -> None:
    world = World(make_node("n1", cpu="4"), make_node("n2", cpu="4"))
    first, second, third, other = (world.put(make_pod().cpu("2"), name) for name in "abcd")
    found = world.check((first, "n1"), (second, "n1"), (third, "n1"), (other, "n2"))
    assert verdicts(found) == [FitStatus.FITS, FitStatus.FITS, FitStatus.REFUSED, FitStatus.FITS]
    assert found[2].message == "node n1 has too little cpu left"


def test_a_refused_member_takes_no_room() -> None:
    world = World(make_node("n1", cpu="4"))
    big, small = world.put(make_pod().cpu("8"), "big"), world.put(make_pod().cpu("4"), "small")
    assert verdicts(world.check((big, "n1"), (small, "n1"))) == [FitStatus.REFUSED, FitStatus.FITS]


def test_an_assumed_member_is_not_counted_twice() -> None:
    world = World(make_node("n1", cpu="2"))
    pod = world.put(make_pod().cpu("2"), "a")
    world.assume(pod, "n1")
    assert world.check((pod, "n1")) == [FITS]
    other = world.put(make_pod().cpu("1"), "b")
    assert verdicts(world.check((other, "n1"))) == [FitStatus.REFUSED]


def test_capacity_of_a_nominated_pod_is_kept_unless_its_priority_is_lower() -> None:
    world = World(make_node("n1", cpu="2"))
    world.put(make_pod().cpu("2").with_("status.nominatedNodeName", "n1").with_("spec.priority", 5), "rival")
    for priority, verdict in ((4, FitStatus.REFUSED), (5, FitStatus.REFUSED), (6, FitStatus.FITS)):
        pod = world.put(make_pod().cpu("1").with_("spec.priority", priority), f"p{priority}")
        assert verdicts(world.check((pod, "n1"))) == [verdict]


def test_a_taint_of_a_cordon_counts_as_long_as_it_is_there() -> None:
    world = World(make_node("n1").taint("node.kubernetes.io/unschedulable", "NoSchedule"))
    (found,) = world.check((world.put(make_pod(), "a"), "n1"))
    assert found.status is FitStatus.REFUSED
    assert "the taint node.kubernetes.io/unschedulable=:NoSchedule" in found.message


def test_a_pod_that_claims_devices_gets_the_remedy() -> None:
    world = World()
    (found,) = world.check((world.put(make_pod().with_("spec.resourceClaims", [{"name": "gpu"}]), "a"), "n1"))
    assert found.status is FitStatus.WAITS
    assert found.message.endswith("label it fluxqueue/scheduler=stock and create it again")


def test_a_missing_node_is_refused() -> None:
    world = World()
    assert world.check((world.put(make_pod(), "a"), "n9")) == [
        FitResult(FitStatus.REFUSED, "node n9 does not exist")
    ]


def test_pods_that_repel_each_other_are_kept_apart_also_within_a_gang() -> None:
    world = World(make_node("n1"), make_node("n2"))
    apart = requiring("podAntiAffinity", term("a")).label("app", "a")
    one, two = world.put(apart, "one"), world.put(apart, "two")
    assert verdicts(world.check((one, "n1"), (two, "n2"))) == [FitStatus.FITS, FitStatus.FITS]
    found = world.check((one, "n1"), (two, "n1"))
    assert verdicts(found) == [FitStatus.FITS, FitStatus.REFUSED]
    assert found[1].message == f"required podAntiAffinity of the pod by {HOST} keeps it off node n1"


def test_a_pod_that_is_there_repels_others_and_an_assumed_one_does_too() -> None:
    world = World(make_node("n1"), make_node("n2"))
    world.put(requiring("podAntiAffinity", term("a")).on_node("n1"), "there")
    wanted = world.put(make_pod().label("app", "a"), "wanted")
    assert verdicts(world.check((wanted, "n1"))) == [FitStatus.REFUSED]
    assert world.check((wanted, "n2")) == [FITS]
    coming = world.put(requiring("podAntiAffinity", term("a")), "coming")
    world.assume(coming, "n2")
    (found,) = world.check((wanted, "n2"))
    assert found.message == f"required podAntiAffinity of another pod by {HOST} keeps the pod off node n2"
    world.forget("uid-coming", "n2")
    assert world.check((wanted, "n2")) == [FITS]


def test_a_check_leaves_nothing_behind() -> None:
    world = World(make_node("n1"), make_node("n2"))
    apart = requiring("podAntiAffinity", term("a")).label("app", "a")
    one, two = world.put(apart, "one"), world.put(apart, "two")
    for _ in range(2):
        assert world.check((one, "n1")) == [FITS]
        assert world.check((two, "n1")) == [FITS]
    world.assume(one, "n1")
    assert world.check((one, "n1")) == [FITS]
    assert verdicts(world.check((two, "n1"))) == [FitStatus.REFUSED]


def test_affinity_is_met_by_a_pod_that_is_there_or_by_the_gang_itself() -> None:
    world = World(zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b"))
    near = requiring("podAffinity", term("x", ZONE)).label("app", "x")
    one, two = world.put(near, "one"), world.put(near, "two")
    assert verdicts(world.check((one, "n1"), (two, "n2"))) == [FitStatus.FITS, FitStatus.FITS]
    assert verdicts(world.check((one, "n1"), (two, "n3"))) == [FitStatus.FITS, FitStatus.REFUSED]
    world.put(make_pod().label("app", "x").on_node("n3"), "there")
    assert verdicts(world.check((one, "n1"))) == [FitStatus.REFUSED]
    assert verdicts(world.check((one, "n3"))) == [FitStatus.FITS]


def test_a_gang_is_spread_as_a_whole_whatever_its_order() -> None:
    world = World(zoned("n1", "a"), zoned("n2", "b"))
    spread = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    pods = [
        world.put(make_pod().label("app", "x").with_("spec.topologySpreadConstraints", [spread]), name)
        for name in "abcd"
    ]
    even = [(pod, node) for pod, node in zip(pods, ("n1", "n1", "n2", "n2"), strict=True)]
    assert verdicts(world.check(*even)) == [FitStatus.FITS] * 4
    uneven = [(pod, node) for pod, node in zip(pods, ("n1", "n1", "n1", "n2"), strict=True)]
    assert FitStatus.REFUSED in verdicts(world.check(*uneven))


def test_a_rival_that_is_only_nominated_meets_no_affinity_and_repels() -> None:
    world = World(make_node("n1"))
    nominated = make_pod().label("app", "x").with_("status.nominatedNodeName", "n1")
    world.put(nominated, "rival")
    assert verdicts(world.check((world.put(requiring("podAffinity", term("x")), "near"), "n1"))) == [
        FitStatus.REFUSED
    ]
    assert verdicts(world.check((world.put(requiring("podAntiAffinity", term("x")), "apart"), "n1"))) == [
        FitStatus.REFUSED
    ]


def test_an_assumed_pod_counts_on_its_node_although_it_is_nominated_to_another() -> None:
    world = World(make_node("n1"), make_node("n2"))
    apart = requiring("podAntiAffinity", term("a")).label("app", "a")
    there = world.put(apart.with_("status.nominatedNodeName", "n1"), "there")
    world.assume(there, "n2")
    other = world.put(requiring("podAntiAffinity", term("a")).label("app", "a"), "other")
    assert world.check((other, "n1")) == [FITS]
    assert verdicts(world.check((other, "n2"))) == [FitStatus.REFUSED]


# ---- claims ------------------------------------------------------------------------------------------------


def claim(world: World, name: str, *modes: str, storage_class: str = "late", **spec: Any) -> None:
    whole = {"storageClassName": storage_class, "accessModes": modes or ["ReadWriteOnce"], **spec}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    status = {"phase": "Bound"} if "volumeName" in spec else {}
    world.storage.claims.apply(
        msgspec.convert({"metadata": metadata, "spec": whole, "status": status}, PersistentVolumeClaim)
    )


def with_classes(world: World) -> World:
    for name, provisioner in (("late", "example.com/p"), ("static", "kubernetes.io/no-provisioner")):
        body = {
            "metadata": {"name": name, "uid": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        world.storage.classes.apply(msgspec.convert(body, StorageClass))
    return world


def volume(world: World, name: str, storage_class: str = "") -> None:
    spec = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}
    body = {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": spec,
        "status": {"phase": "Available"},
    }
    world.storage.volumes.apply(msgspec.convert(body, PersistentVolume))


def using(*claims: str) -> PodBuilder:
    return make_pod().with_(
        "spec.volumes", [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    )


def test_a_claim_that_two_members_use_is_made_for_one_node() -> None:
    world = with_classes(World(make_node("n1"), make_node("n2")))
    claim(world, "data")
    one, two = world.put(using("data"), "one"), world.put(using("data"), "two")
    assert verdicts(world.check((one, "n1"), (two, "n1"))) == [FitStatus.FITS, FitStatus.FITS]
    found = world.check((one, "n1"), (two, "n2"))
    assert verdicts(found) == [FitStatus.FITS, FitStatus.REFUSED]
    assert (
        found[1].message
        == "the volume of PersistentVolumeClaim default/data is being made for node n1, not for node n2"
    )


def test_members_do_not_count_on_one_free_volume() -> None:
    world = with_classes(World())
    volume(world, "only", "static")
    for name in ("a", "b"):
        claim(world, name, storage_class="static")
    found = world.check((world.put(using("a"), "pa"), "n1"), (world.put(using("b"), "pb"), "n1"))
    assert verdicts(found) == [FitStatus.FITS, FitStatus.REFUSED]


def test_a_claim_for_one_pod_is_awaited_by_the_second() -> None:
    world = with_classes(World(make_node("n1"), make_node("n2")))
    volume(world, "v")
    claim(world, "mine", "ReadWriteOncePod", storage_class="", volumeName="v")
    one, two = world.put(using("mine"), "one"), world.put(using("mine"), "two")
    assert verdicts(world.check((one, "n1"), (two, "n2"))) == [FitStatus.FITS, FitStatus.WAITS]
    world.put(using("mine").on_node("n2"), "user")
    (found,) = world.check((one, "n1"))
    assert found.status is FitStatus.WAITS
    assert "default/mine is for one pod (ReadWriteOncePod), and another one uses it" in found.message
