"""Node shapes: which work fits a larger cluster, and the pod sets of its ProvisioningRequest."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.builders import make_pod
from support.queue_builders import a_workload

from fluxqueue.api.clusterobjects import ProvisioningRequest
from fluxqueue.api.nodes import Taint
from fluxqueue.api.pods import PodSpec
from fluxqueue.fluxion.graph.nodes import NodeRules
from fluxqueue.queue.config import InvalidConfig, read_config
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.scheduling.node_shapes import (
    NodeShape,
    NodeShapes,
    PodSetTemplate,
    pod_sets_of,
    possible_nodes,
    request_name,
    template_body,
)


def a_shape(**changes: Any) -> NodeShape:
    return NodeShape(**{"name": "large", "allocatable": {"cpu": "16", "memory": "64Gi"}, "max_nodes": 2, **changes})


def a_spec(**changes: Any) -> PodSpec:
    return msgspec.convert({**make_pod().cpu("2").build()["spec"], **changes}, PodSpec)


def test_a_shape_becomes_its_greatest_number_of_nodes_with_labels_and_taints() -> None:
    taint = Taint(key="dedicated", value="batch", effect="NoSchedule")
    made = possible_nodes([a_shape(labels={"pool": "large"}, taints=[taint])], NodeRules())
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
def test_invalid_shapes_are_refused_at_start(tmp_path: Path, shapes: str, said: str) -> None:
    config = tmp_path / "queue.yaml"
    config.write_text(f"nodeShapes: {shapes}")
    with pytest.raises(InvalidConfig, match=said):
        read_config(config)


async def test_a_changed_node_changes_the_answer() -> None:
    small = possible_nodes([a_shape(name="small", max_nodes=1, allocatable={"cpu": "4"})], NodeRules())
    larger = possible_nodes([a_shape(name="small", max_nodes=1, allocatable={"cpu": "16"})], NodeRules())
    node_shapes = NodeShapes(possible_nodes([a_shape(max_nodes=1, allocatable={"cpu": "16"})], NodeRules()))
    pair = jobspec_of("two", [SizedPods({"cpu": Decimal(16)}, 2)], duration_s=60)
    assert await node_shapes.needed([pair], small) == [()]
    assert await node_shapes.needed([pair], larger) == [("large",)]
    assert await node_shapes.needed([pair], {}) == [()]


def test_equal_pods_form_one_pod_set_with_the_rules_of_their_queue() -> None:
    tolerated = a_spec(tolerations=[{"key": "dedicated", "operator": "Exists"}], nodeSelector={"a": "1"})
    rooms = pod_sets_of([({"x": "y"}, tolerated, 3), ({"x": "y"}, tolerated, 2), ({}, a_spec(), 1)], {"pool": "large"})
    assert [room.count for room in rooms] == [5, 1]
    assert rooms[0].spec["nodeSelector"] == {"a": "1", "pool": "large"}
    assert rooms[0].spec["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert rooms[1].spec["nodeSelector"] == {"pool": "large"}


def test_a_pod_set_has_all_requests_and_limits_for_what_cannot_be_shared() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    main = {"name": "m", "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}
    (room,) = pod_sets_of([({}, a_spec(containers=[main], initContainers=[sidecar], overhead={"cpu": "100m"}), 1)], {})
    (container,) = room.spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "2.6", "memory": "1073741824", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }


def test_a_template_has_the_labels_that_anti_affinity_selects() -> None:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}}
    (room,) = pod_sets_of([({"job-name": "j"}, a_spec(affinity=affinity), 2)], {})
    body = template_body(room, {"name": "t"})
    assert body["metadata"] == {"name": "t"}
    assert body["template"]["metadata"]["labels"] == {"job-name": "j"}
    assert body["template"]["spec"]["affinity"] == affinity
    assert room == PodSetTemplate({"job-name": "j"}, room.spec, 2)


def test_a_changed_workload_has_another_provisioning_request() -> None:
    one, other = a_workload("w" * 60, uid="a", shape="0123456789abcdef"), a_workload("w" * 60, uid="a", shape="fedcba9876543210")
    assert request_name(one) != request_name(other)
    assert request_name(one) == request_name(a_workload("w" * 60, uid="a", shape="0123456789abcdef"))
    assert request_name(one) != request_name(a_workload("w" * 60, uid="b", shape="0123456789abcdef")), "long names are not confused"
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
def test_a_provisioning_request_failed_if_its_condition_says_so(conditions: list[dict[str, str]], why: str) -> None:
    assert msgspec.convert({"status": {"conditions": conditions}}, ProvisioningRequest).failed == why
