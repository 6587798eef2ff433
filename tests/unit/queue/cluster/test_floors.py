"""Which pods of a gang go on without some of their siblings, and which of those may end that are to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.builders import PodBuilder, make_node, make_pod
from support.controller_bench import managed_caches
from support.gang_builders import read_object
from support.memory_api import MemoryApi
from support.queue_builders import a_workload
from support.work_counts import assert_linear

from fluxqueue.api.pods import Pod
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.floors import Floors
from fluxqueue.queue.cluster.gang_objects import Lookup, Readable
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.model.replacement_rules import ReplicaOwner
from fluxqueue.queue.model.sources.rayclusters import RAY_CLUSTERS
from fluxqueue.queue.model.victim_views import Floor

FLOOR = Floor(ReplicaOwner("default", "RayCluster", "ray"), 1, "worker/small")


def ray_pod(name: str, node_type: str = "worker") -> PodBuilder:
    made = make_pod(name).uid(name).on_node("n0").phase("Running").label("ray.io/node-type", node_type)
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": "x", "controller": True}
    return made.label("ray.io/group", "small").with_("metadata.ownerReferences", [owner])


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> Caches:
    server = MemoryApi()
    caches = managed_caches(server)
    server.put("nodes", make_node("n0").build())
    for each in (ray_pod("head", "head"), ray_pod("a"), ray_pod("b"), ray_pod("c").phase("Pending")):
        server.put("pods", each.build())
    group = {"groupName": "small", "replicas": 3, "minReplicas": 1}
    obj = read_object(RAY_CLUSTERS, {"workerGroupSpecs": [group]}, name="ray")

    def find(*_of: Any) -> Lookup:
        return Lookup(Readable.YES, obj)

    monkeypatch.setattr(caches.gang_objects, "find", find)
    return caches


def named(caches: Caches, name: str) -> Pod:
    pod = caches.pods.get_by_uid(name)
    assert pod is not None
    return pod


def test_workers_have_the_floor_of_their_group_and_the_head_has_none(caches: Caches) -> None:
    gang = a_workload("ray", kind="RayCluster", api_version="ray.io/v1", release_mode=ReleaseMode.GROUP)
    assert Floors(caches).of_gang(gang) == {"a": FLOOR, "b": FLOOR, "c": FLOOR}
    assert {pod.metadata.name for pod in Floors(caches).alike(named(caches, "a"), FLOOR)} == {"a", "b", "c"}


def test_as_many_keep_running_as_the_floor_says(caches: Caches) -> None:
    ends = Floors(caches).spare([named(caches, name) for name in ("a", "b", "c")], lambda _pod: False)
    assert [pod.metadata.name for pod in ends] == ["a", "c"], "c does not run"


def test_what_ends_in_any_case_does_not_keep_the_others_going(caches: Caches) -> None:
    assert Floors(caches).spare([named(caches, "a")], lambda pod: pod.metadata.name == "b") == []


def test_a_gang_of_many_worker_groups_is_read_in_proportion_to_its_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gang = a_workload("ray", kind="RayCluster", api_version="ray.io/v1", release_mode=ReleaseMode.GROUP)

    def prepare(groups: int) -> Callable[[], object]:
        server = MemoryApi()
        caches = managed_caches(server)
        for number in range(groups):
            pod = ray_pod(f"p{number}").label("ray.io/group", f"g{number}")
            server.put("pods", pod.build())
        specs = [{"groupName": f"g{number}", "minReplicas": 1} for number in range(groups)]
        obj = read_object(RAY_CLUSTERS, {"workerGroupSpecs": specs}, name="ray")
        monkeypatch.setattr(caches.gang_objects, "find", lambda *_of: Lookup(Readable.YES, obj))
        assert len(Floors(caches).of_gang(gang)) == groups
        return lambda: Floors(caches).of_gang(gang)

    assert_linear(prepare)


def test_of_an_unknown_object_no_pod_has_a_floor(caches: Caches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches.gang_objects, "find", lambda *_of: Lookup(Readable.NOT_YET))
    assert Floors(caches).of_pod(named(caches, "a")) is None
