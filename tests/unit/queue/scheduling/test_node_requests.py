"""What is requested from an autoscaler: the pod sets of a workload, and the name of its request."""

from __future__ import annotations

from typing import Any

import msgspec
from support.builders import make_pod
from support.queue_builders import a_workload

from fluxqueue.api.pods import PodSpec
from fluxqueue.queue.scheduling.node_requests import pod_sets_of, request_name


def a_spec(**changes: Any) -> PodSpec:
    return msgspec.convert({**make_pod().cpu("2").build()["spec"], **changes}, PodSpec)


def test_equal_pods_form_one_pod_set_with_the_rules_of_their_queue() -> None:
    tolerated = a_spec(tolerations=[{"key": "dedicated", "operator": "Exists"}], nodeSelector={"a": "1"})
    rooms = pod_sets_of(
        [({"x": "y"}, tolerated, 3), ({"x": "y"}, tolerated, 2), ({}, a_spec(), 1)], {"pool": "large"}
    )
    assert [room.count for room in rooms] == [5, 1]
    assert rooms[0].spec["nodeSelector"] == {"a": "1", "pool": "large"}
    assert rooms[0].spec["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert rooms[1].spec["nodeSelector"] == {"pool": "large"}


def test_a_pod_set_has_all_requests_and_limits_for_what_cannot_be_shared() -> None:
    sidecar = {
        "name": "s",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
    }
    main = {
        "name": "m",
        "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
    }
    (room,) = pod_sets_of(
        [({}, a_spec(containers=[main], initContainers=[sidecar], overhead={"cpu": "100m"}), 1)], {}
    )
    (container,) = room.spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "2.6", "memory": "1073741824", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }


def test_a_changed_workload_has_another_provisioning_request() -> None:
    one, other = (
        a_workload("w" * 60, uid="a", shape="0123456789abcdef"),
        a_workload("w" * 60, uid="a", shape="fedcba9876543210"),
    )
    assert request_name(one) != request_name(other)
    assert request_name(one) == request_name(a_workload("w" * 60, uid="a", shape="0123456789abcdef"))
    assert request_name(one) != request_name(a_workload("w" * 60, uid="b", shape="0123456789abcdef")), (
        "long names are not confused"
    )
    assert len(request_name(one)) <= 63
