"""What is requested from an autoscaler: the pod sets of a workload, and the name of its request."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.builders import make_pod
from support.queue_builders import a_workload

from fluxqueue.api import names
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.topology import TopologyRequest
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of
from fluxqueue.queue.scheduling.provisioning.node_requests import pod_sets_of, request_name


def a_spec(**changes: Any) -> PodSpec:
    return msgspec.convert({**make_pod().cpu("2").build()["spec"], **changes}, PodSpec)


def test_equal_pods_form_one_pod_set_with_the_rules_of_their_queue() -> None:
    tolerated = a_spec(tolerations=[{"key": "dedicated", "operator": "Exists"}], nodeSelector={"a": "1"})
    rooms = pod_sets_of(
        [({"x": "y"}, tolerated, 3), ({"x": "y"}, tolerated, 2), ({}, a_spec(), 1)],
        {"pool": "large"},
        a_workload(),
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
        [({}, a_spec(containers=[main], initContainers=[sidecar], overhead={"cpu": "100m"}), 1)],
        {},
        a_workload(),
    )
    (container,) = room.spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "2.6", "memory": "1073741824", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }


def test_a_pod_set_has_the_host_ports_of_its_pods() -> None:
    main = {"name": "m", "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]}
    (room,) = pod_sets_of([({}, a_spec(containers=[main]), 1)], {}, a_workload())
    (port,) = room.spec["containers"][0]["ports"]
    assert port == {"containerPort": 8080, "hostPort": 8080, "protocol": "TCP", "hostIP": "0.0.0.0"}
    (shared,) = pod_sets_of([({}, a_spec(containers=[main], hostNetwork=True), 1)], {}, a_workload())
    assert [each["hostPort"] for each in shared.spec["containers"][0]["ports"]] == [81, 8080]


@pytest.mark.parametrize("most", [1, 3])
def test_a_pod_set_has_a_spread_constraint_for_the_most_pods_on_one_node(most: int) -> None:
    """However many pods the emptiest node has: the scheduler compares with 0 below ``minDomains``."""
    placement = PlacementRules(topology=TopologyRequest(pods_per_node=most))
    jobspec = jobspec_of("ns/j", [SizedPods({"cpu": Decimal(2)}, 6)], duration_s=60, placement=placement)
    (room,) = pod_sets_of([({}, a_spec(), 6)], {}, a_workload(uid="u", jobspec=jobspec))
    (constraint,) = room.spec["topologySpreadConstraints"]
    assert (constraint["maxSkew"], constraint["topologyKey"]) == (most, names.HOSTNAME_LABEL)
    assert (constraint["minDomains"], constraint["whenUnsatisfiable"]) == (1_000_000, "DoNotSchedule")
    assert constraint["labelSelector"] == {"matchLabels": {names.PROVISIONS_LABEL: "u"}}


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
