"""Nodes that are not there yet, and what is written of the pods that need them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import make_pod
from queue_builders import a_workload

from fluxqueue.api.clusterobjects import ProvisioningRequest
from fluxqueue.api.objects import PodSpec, Taint
from fluxqueue.fluxion.nodes import NodeRules
from fluxqueue.queue.config import InvalidConfig, read_config
from fluxqueue.queue.jobspecs import Role, jobspec_of
from fluxqueue.queue.provisioning import NodeShape, Prospects, Room, imagined_nodes, request_name, rooms_of, template_body


def a_shape(**changes: Any) -> NodeShape:
    return NodeShape(**{"name": "large", "allocatable": {"cpu": "16", "memory": "64Gi"}, "max_nodes": 2, **changes})


def a_spec(**changes: Any) -> PodSpec:
    return msgspec.convert({**make_pod().cpu("2").build()["spec"], **changes}, PodSpec)


def test_a_shape_becomes_as_many_nodes_as_there_may_be_with_labels_and_taints() -> None:
    taint = Taint(key="dedicated", value="batch", effect="NoSchedule")
    made = imagined_nodes([a_shape(labels={"pool": "large"}, taints=[taint])], NodeRules())
    assert len(made) == 2
    assert not any(spec.down for spec in made.values())
    for name, spec in made.items():
        assert "_" in name, "no node of a cluster is called so"
        assert spec.properties["pool"] == "large"
        assert "taint:dedicated=batch:NoSchedule" in spec.properties
        assert {pool.type: pool.total for pool in spec.pools}["pods"] == 110


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ("[{name: a, allocatable: {cpu: lots}, maxNodes: 1}]", "'a': its allocatable cpu cannot be used"),
        ("[{name: a, allocatable: {cpu: 1}, maxNodes: 0}]", "'a' allows 0 nodes"),
        ("[{name: a, allocatable: {cpu: 1}, maxNodes: 1}, {name: a, allocatable: {cpu: 2}, maxNodes: 1}]", "two shapes are called 'a'"),
        ("[{name: a, allocatable: {cpu: 1}}]", "maxNodes"),
        ("[{name: a, allocatable: {cpu: 1}, maxNodes: 1, color: red}]", "color"),
    ],
)
def test_shapes_that_cannot_be_meant_are_refused_at_start(tmp_path: Path, shapes: str, said: str) -> None:
    config = tmp_path / "queue.yaml"
    config.write_text(f"nodeShapes: {shapes}")
    with pytest.raises(InvalidConfig, match=said):
        read_config(config)


async def test_a_node_that_changes_is_looked_at_anew() -> None:
    small = imagined_nodes([a_shape(name="small", max_nodes=1, allocatable={"cpu": "4"})], NodeRules())
    larger = imagined_nodes([a_shape(name="small", max_nodes=1, allocatable={"cpu": "16"})], NodeRules())
    prospects = Prospects(imagined_nodes([a_shape(max_nodes=1, allocatable={"cpu": "16"})], NodeRules()))
    pair = jobspec_of("two", [Role({"cpu": Decimal(16)}, 2)], duration_s=60)
    assert await prospects.look([pair], small) == [()]
    assert await prospects.look([pair], larger) == [("large",)]
    assert await prospects.look([pair], {}) == [()]


def test_pods_alike_ask_for_room_together_and_with_the_rules_of_their_queue() -> None:
    tolerated = a_spec(tolerations=[{"key": "dedicated", "operator": "Exists"}], nodeSelector={"a": "1"})
    rooms = rooms_of([({"x": "y"}, tolerated, 3), ({"x": "y"}, tolerated, 2), ({}, a_spec(), 1)], {"pool": "large"})
    assert [room.count for room in rooms] == [5, 1]
    assert rooms[0].spec["nodeSelector"] == {"a": "1", "pool": "large"}
    assert rooms[0].spec["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert rooms[1].spec["nodeSelector"] == {"pool": "large"}


def test_a_room_has_all_that_its_pod_requests_and_limits_of_what_cannot_be_shared() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    main = {"name": "m", "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}
    (room,) = rooms_of([({}, a_spec(containers=[main], initContainers=[sidecar], overhead={"cpu": "100m"}), 1)], {})
    (container,) = room.spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "2.6", "memory": "1073741824", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }


def test_a_template_carries_the_labels_by_which_its_pods_keep_apart() -> None:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}}
    (room,) = rooms_of([({"job-name": "j"}, a_spec(affinity=affinity), 2)], {})
    body = template_body(room, {"name": "t"})
    assert body["metadata"] == {"name": "t"}
    assert body["template"]["metadata"]["labels"] == {"job-name": "j"}
    assert body["template"]["spec"]["affinity"] == affinity
    assert room == Room({"job-name": "j"}, room.spec, 2)


def test_who_asks_for_something_else_has_another_request() -> None:
    one, other = a_workload("w" * 60, shape="0123456789abcdef"), a_workload("w" * 60, shape="fedcba9876543210")
    assert request_name(one) != request_name(other)
    assert request_name(one) == request_name(a_workload("w" * 60, shape="0123456789abcdef"))
    assert len(request_name(one)) <= 63


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ([], ""),
        ([{"type": "Accepted", "status": "True"}], ""),
        ([{"type": "Failed", "status": "False", "message": "no"}], ""),
        ([{"type": "Failed", "status": "True", "reason": "OutOfStock", "message": "no such nodes"}], "no such nodes"),
        ([{"type": "Failed", "status": "True", "reason": "OutOfStock"}], "OutOfStock"),
    ],
)
def test_a_request_has_failed_when_the_autoscaler_says_so(conditions: list[dict[str, str]], why: str) -> None:
    assert msgspec.convert({"status": {"conditions": conditions}}, ProvisioningRequest).failed == why
