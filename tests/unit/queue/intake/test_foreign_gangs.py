"""What a gang of another project waits for, and when its pods are matched one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from support.builders import PodBuilder, make_pod
from support.controller_bench import subscribed
from support.gang_builders import pod_builder, read_object
from support.memory_api import MemoryApi
from support.memory_store import memory_ledger
from support.queue_builders import a_pod

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Lookup, Readable
from fluxqueue.queue.intake import foreign_gangs, group_reader
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.model.groups import GatheredGroup, GroupKey, gather
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.sources.gang_sources import GangSource
from fluxqueue.queue.model.sources.gathering import GangPods, gather_gang_of_source
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS
from fluxqueue.queue.model.sources.rayclusters import RAY_CLUSTERS
from fluxqueue.queue.model.sources.scheduler_plugins import SCHEDULER_PLUGINS
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

PLUGINS = GroupKey("default", "solver", "PodGroup", "scheduler-plugins")
RAY = GroupKey("default", "ray", "RayCluster", "raycluster")


@dataclass
class Bench:
    """An intake in memory, and what it is told about objects of other projects."""

    caches: Caches
    ledger: Ledger
    intake: IntakeController
    lookups: dict[str, Lookup] = field(default_factory=dict)

    def find(self, source: GangSource, _namespace: str, name: str) -> Lookup:
        return self.lookups.get(f"{source.name}/{name}", Lookup(Readable.YES))

    async def read(self, key: GroupKey, *pods: PodBuilder) -> list[Workload]:
        """Show pods, read them and their group, and return the rows."""
        for pod in pods:
            self.caches.pods.apply(a_pod(pod, uid=pod.build()["metadata"]["name"]))
        await self.intake.take_in([key])
        await self.intake.take_in([pod.metadata.uid for pod in self.caches.pods.list()])
        return sorted(self.ledger.all(), key=lambda row: row.id)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    api = MemoryApi()
    caches, ledger = Caches(api.api), await memory_ledger()
    bench = Bench(
        caches,
        ledger,
        subscribed(IntakeController(api.api, caches, ledger, Trigger(lambda _task: None)), caches, ledger),
    )
    monkeypatch.setattr(caches.gang_objects, "find", bench.find)
    return bench


def member(name: str) -> PodBuilder:
    return pod_builder(name, {"scheduling.x-k8s.io/pod-group": "solver"})


def ray_node(name: str, node_type: str, *, owner: str = "x") -> PodBuilder:
    labels = {"ray.io/node-type": node_type, "ray.io/group": "small"}
    reference = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": "ray",
        "uid": owner,
        "controller": True,
    }
    return pod_builder(name, labels).with_("metadata.ownerReferences", [reference])


def cluster(workers: int, **metadata: Any) -> Lookup:
    return Lookup(
        Readable.YES,
        read_object(
            RAY_CLUSTERS, {"workerGroupSpecs": [{"groupName": "small", "replicas": workers}]}, **metadata
        ),
    )


def pod_group(size: int) -> Lookup:
    return Lookup(Readable.YES, read_object(SCHEDULER_PLUGINS, {"minMember": size}))


@pytest.mark.parametrize(
    ("lookup", "reason", "said"),
    [
        pytest.param(
            Lookup(Readable.NOT_YET),
            Reason.WAITING_FOR_GROUP,
            "until the queue has read all podgroups",
            id="not read yet",
        ),
        pytest.param(
            Lookup(Readable.YES),
            Reason.WAITING_FOR_GROUP,
            "default/solver, which does not exist: create it",
            id="missing",
        ),
        pytest.param(
            Lookup(Readable.NOT_SERVED),
            Reason.WAITING_FOR_GROUP,
            "has no podgroups.scheduling.x-k8s.io: install",
            id="no CRD",
        ),
        pytest.param(
            Lookup(Readable.FORBIDDEN),
            Reason.WAITING_FOR_GROUP,
            "add it to gangs.resources of the chart",
            id="no right",
        ),
        pytest.param(
            Lookup(Readable.YES, None, "Expected `int`"),
            Reason.INVALID_REQUEST,
            "cannot be read, correct it",
            id="unreadable",
        ),
    ],
)
async def test_a_group_that_pods_name_waits_with_one_sentence(
    bench: Bench, lookup: Lookup, reason: Reason, said: str
) -> None:
    bench.lookups["scheduler-plugins/solver"] = lookup
    (row,) = await bench.read(PLUGINS, member("a"), member("b"))
    assert (row.kind, row.api_version, row.state, row.reason) == (
        "PodGroup",
        "scheduling.x-k8s.io/v1alpha1",
        State.PENDING,
        reason,
    )
    assert said in row.message


@pytest.mark.parametrize("readable", [Readable.NOT_SERVED, Readable.FORBIDDEN])
async def test_pods_of_a_controller_whose_objects_cannot_be_known_are_matched_one_by_one(
    bench: Bench, readable: Readable
) -> None:
    bench.lookups["raycluster/ray"] = Lookup(readable)
    rows = await bench.read(RAY, ray_node("head", "head"), ray_node("w0", "worker"))
    assert [(row.kind, row.name, row.reason) for row in rows] == [
        ("Pod", "head", Reason.NONE),
        ("Pod", "w0", Reason.NONE),
    ]


async def test_a_gang_becomes_one_workload_and_keeps_it_when_it_is_complete(bench: Bench) -> None:
    bench.lookups["raycluster/ray"] = cluster(2)
    (waiting,) = await bench.read(RAY, ray_node("head", "head"))
    assert waiting.reason is Reason.WAITING_FOR_GROUP
    (complete,) = await bench.read(RAY, ray_node("w0", "worker"), ray_node("w1", "worker"))
    assert (complete.id, complete.uid, complete.reason, complete.pods) == (
        waiting.id,
        waiting.uid,
        Reason.NONE,
        3,
    )


async def test_the_object_may_name_the_queue_of_its_gang(bench: Bench) -> None:
    bench.lookups["raycluster/ray"] = cluster(0, annotations={"fluxqueue/priority": "7"})
    (row,) = await bench.read(RAY, ray_node("head", "head"))
    assert row.priority == 7


async def test_pods_beyond_the_minimum_wait_for_the_start_of_their_gang(bench: Bench) -> None:
    bench.lookups["scheduler-plugins/solver"] = pod_group(2)
    (row,) = await bench.read(PLUGINS, member("a"), member("b"), member("c"))
    assert (row.reason, row.pods) == (Reason.NONE, 2)


async def test_a_gang_whose_size_changes_while_it_waits_is_read_again(bench: Bench) -> None:
    bench.lookups["scheduler-plugins/solver"] = pod_group(3)
    (row,) = await bench.read(PLUGINS, member("a"), member("b"))
    assert row.reason is Reason.WAITING_FOR_GROUP
    bench.lookups["scheduler-plugins/solver"] = pod_group(2)
    (row,) = await bench.read(PLUGINS)
    assert (row.reason, row.pods) == (Reason.NONE, 2)


async def test_two_projects_groups_of_one_name_are_two_workloads(bench: Bench) -> None:
    bench.lookups["scheduler-plugins/solver"] = pod_group(1)
    ours = (
        make_pod("ours")
        .gate("fluxqueue")
        .label("fluxqueue/pod-group", "solver")
        .annotation("fluxqueue/pod-group-size", "1")
    )
    await bench.read(PLUGINS, member("a"), ours)
    rows = await bench.read(GroupKey("default", "solver"))
    assert sorted(row.api_version for row in rows) == ["scheduling.x-k8s.io/v1alpha1", "v1"]


async def test_a_gang_ends_with_its_waiting_pods(bench: Bench) -> None:
    bench.lookups["scheduler-plugins/solver"] = pod_group(2)
    await bench.read(PLUGINS, member("a"))
    bench.caches.pods.replace([])
    assert await bench.read(PLUGINS) == []


async def test_a_pod_that_comes_when_enough_run_is_matched_alone(bench: Bench) -> None:
    bench.lookups["scheduler-plugins/solver"] = pod_group(2)
    for name in ("a", "b"):
        runs = a_pod(member(name).with_("spec.schedulingGates", []).on_node("n1").phase("Running"), uid=name)
        bench.caches.pods.apply(msgspec.structs.replace(runs))
    (row,) = await bench.read(PLUGINS, member("c"))
    assert (row.kind, row.name) == ("Pod", "c")


async def test_pods_of_a_deleted_owner_of_the_same_name_do_not_count(bench: Bench) -> None:
    """A RayCluster that is deleted and created again has pods of its own,
    and garbage collection may not have deleted the former ones.
    """
    for name, node_type in (("former-head", "head"), ("former-w0", "worker")):
        former = (
            ray_node(name, node_type, owner="former")
            .with_("spec.schedulingGates", [])
            .on_node("n1")
            .phase("Running")
        )
        bench.caches.pods.apply(a_pod(former, uid=name))
    bench.caches.pods.apply(a_pod(ray_node("former-w1", "worker", owner="former"), uid="former-w1"))
    bench.lookups["raycluster/ray"] = cluster(1)
    (waiting,) = await bench.read(RAY, ray_node("head", "head"))
    assert (waiting.kind, waiting.reason) == ("RayCluster", Reason.WAITING_FOR_GROUP)
    (complete,) = await bench.read(RAY, ray_node("w0", "worker"))
    assert (complete.kind, complete.reason, complete.pods) == ("RayCluster", Reason.NONE, 2)


async def test_a_gang_waits_until_the_object_that_was_created_again_is_read(bench: Bench) -> None:
    bench.lookups["raycluster/ray"] = cluster(0, uid="former")
    (row,) = await bench.read(RAY, ray_node("head", "head"))
    assert (row.kind, row.reason) == ("RayCluster", Reason.WAITING_FOR_GROUP)
    assert "RayCluster default/ray, which was created again" in row.message
    bench.lookups["raycluster/ray"] = cluster(0)
    (row,) = await bench.read(RAY)
    assert (row.reason, row.pods) == (Reason.NONE, 1)


async def test_a_large_group_is_gathered_once_for_all_its_pods_that_are_read_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of thousands of pods would be compared with all of them otherwise,
    while the leader does nothing else.
    """
    gathered: list[str] = []

    def counted(pods: GangPods, *rest: Any) -> GatheredGroup | None:
        gathered.append(pods.where)
        return gather_gang_of_source(pods, *rest)

    monkeypatch.setattr(foreign_gangs, "gather_gang_of_source", counted)
    bench.lookups["kubernetes/train"] = Lookup(
        Readable.YES, read_object(NATIVE_POD_GROUPS, {"schedulingPolicy": {"basic": {}}})
    )
    builders = [
        pod_builder(f"p{number}").with_("spec.schedulingGroup", {"podGroupName": "train"})
        for number in range(20)
    ]
    rows = await bench.read(GroupKey("default", "train", "PodGroup", "kubernetes"), *builders)
    assert {row.kind for row in rows} == {"Pod"}
    assert len(rows) == 20
    assert len(gathered) == 2, "once for the group, once for all its pods"
    bench.caches.pods.apply(a_pod(builders[0].with_("metadata.name", "new"), uid="new"))
    await bench.intake.take_in(["new"])
    assert len(gathered) == 3, "what was found is not kept for a later turn"


async def test_a_large_pod_group_is_gathered_once_for_all_its_pods_that_are_read_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[GroupKey] = []

    def counted(key: GroupKey, *rest: Any) -> GatheredGroup | None:
        gathered.append(key)
        return gather(key, *rest)

    monkeypatch.setattr(group_reader, "gather", counted)
    builders = [
        make_pod(f"p{number}")
        .gate("fluxqueue")
        .label("fluxqueue/pod-group", "g")
        .annotation("fluxqueue/pod-group-size", "18")
        for number in range(20)
    ]
    rows = await bench.read(GroupKey("default", "g"), *builders)
    assert sorted(row.kind for row in rows) == ["Pod", "Pod", "PodGroup"]
    assert len(gathered) == 2, "once for the group, once for all its pods"
