from typing import Any

import msgspec
import pytest

from fluxqueue.api.graphnames import display_name, is_countable, is_port, port_resource, resource_name, resource_type, volume_resource
from fluxqueue.api.hostports import MAX_HOST_PORTS, host_ports, pod_needs
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import InvalidRequest


def spec(*ports: dict[str, Any], **more: Any) -> PodSpec:
    return msgspec.convert({"containers": [{"name": "a", "ports": list(ports)}], **more}, PodSpec)


INIT = {"name": "i", "ports": [{"containerPort": 1, "hostPort": 81}]}


@pytest.mark.parametrize(
    ("pod", "opened"),
    [
        pytest.param(spec({"containerPort": 80}), set(), id="only of the container"),
        pytest.param(spec({"containerPort": 80, "hostPort": 8080}), {("TCP", 8080)}, id="of the host"),
        pytest.param(spec({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}), {("UDP", 8080)}, id="of another protocol"),
        pytest.param(spec({"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}), {("TCP", 8080)}, id="on one address"),
        pytest.param(spec({"containerPort": 80}, hostNetwork=True), {("TCP", 80)}, id="in the network of the host"),
        pytest.param(spec(initContainers=[INIT]), set(), id="of an init container, which ends before"),
        pytest.param(spec(initContainers=[{**INIT, "restartPolicy": "Always"}]), {("TCP", 81)}, id="of a sidecar"),
    ],
)
def test_the_ports_that_a_pod_opens_on_its_node(pod: PodSpec, opened: set[tuple[str, int]]) -> None:
    assert host_ports(pod) == opened


def test_a_pod_takes_one_unit_of_each_port_and_its_requests() -> None:
    pod = spec({"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 8080, "protocol": "UDP"})
    assert pod_needs(pod) == {"hostport/TCP/8080": 1, "hostport/UDP/8080": 1}


def test_a_pod_with_too_many_ports_is_refused_with_the_number() -> None:
    ports = [{"containerPort": 1, "hostPort": number} for number in range(1, MAX_HOST_PORTS + 2)]
    with pytest.raises(InvalidRequest, match="open 17 host ports, a pod may have 16"):
        pod_needs(spec(*ports))


def test_ports_and_volumes_are_types_that_no_resource_of_a_node_can_have() -> None:
    port, volumes = resource_type(port_resource("TCP", 80)), resource_type(volume_resource("ebs.csi.aws.com"))
    assert (is_port(port), is_countable(port), is_port(volumes), is_countable(volumes)) == (True, True, False, True)
    assert not is_countable(resource_type("hostport/x"))
    assert resource_name(port) == "hostport/TCP/80"
    assert (display_name(port), display_name(volumes), display_name("nvidia.com:gpu")) == (
        "host port 80/TCP",
        "volumes of ebs.csi.aws.com",
        "nvidia.com/gpu",
    )
