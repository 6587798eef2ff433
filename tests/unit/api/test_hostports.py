from collections import Counter
from typing import Any

import msgspec
import pytest

from fluxqueue.api.graphnames import (
    display_name,
    is_countable,
    is_port,
    port_resource,
    resource_name,
    resource_type,
    volume_resource,
)
from fluxqueue.api.hostports import ADDRESSES, MAX_HOST_PORTS, OpenPort, open_ports, pod_needs, port_units
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
        pytest.param(
            spec({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}),
            {("UDP", 8080)},
            id="of another protocol",
        ),
        pytest.param(
            spec({"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}),
            {("TCP", 8080)},
            id="on one address",
        ),
        pytest.param(
            spec({"containerPort": 80}, hostNetwork=True), {("TCP", 80)}, id="in the network of the host"
        ),
        pytest.param(spec(initContainers=[INIT]), set(), id="of an init container, which ends before"),
        pytest.param(
            spec(initContainers=[{**INIT, "restartPolicy": "Always"}]), {("TCP", 81)}, id="of a sidecar"
        ),
    ],
)
def test_the_ports_that_a_pod_opens_on_its_node(pod: PodSpec, opened: set[tuple[str, int]]) -> None:
    assert {port[:2] for port in open_ports(pod)} == opened


def test_a_pod_takes_all_units_of_each_port_and_its_requests() -> None:
    pod = spec(
        {"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 8080, "protocol": "UDP"}
    )
    assert pod_needs(pod) == {"hostport/TCP/8080": ADDRESSES, "hostport/UDP/8080": ADDRESSES}


def test_a_pod_that_opens_a_port_on_one_address_takes_one_unit_of_the_port_and_the_address() -> None:
    ports = [
        {"containerPort": 80, "hostPort": 8080, "hostIP": address} for address in ("10.0.0.1", "fd00::1")
    ]
    assert pod_needs(spec(*ports)) == {
        "hostport/TCP/8080": 2,
        "hostport/TCP/8080/10.0.0.1": 1,
        "hostport/TCP/8080/fd00__1": 1,
    }
    assert pod_needs(spec(*ports, {"containerPort": 80, "hostPort": 8080}))["hostport/TCP/8080"] == ADDRESSES


PORTS = [OpenPort("TCP", 80, address) for address in ("0.0.0.0", "10.0.0.1", "10.0.0.2", "::")]


@pytest.mark.parametrize("one", PORTS)
@pytest.mark.parametrize("other", PORTS)
def test_two_ports_fit_the_units_of_a_node_exactly_if_neither_excludes_the_other(
    one: OpenPort, other: OpenPort
) -> None:
    taken = Counter(port_units([one])) + Counter(port_units([other]))
    fits = all(count <= (ADDRESSES if name == "hostport/TCP/80" else 1) for name, count in taken.items())
    assert fits != one.excludes(other)


def test_a_pod_with_too_many_ports_is_refused_with_the_number() -> None:
    ports = [{"containerPort": 1, "hostPort": number} for number in range(1, MAX_HOST_PORTS + 2)]
    with pytest.raises(InvalidRequest, match="open 17 host ports, a pod may have 16"):
        pod_needs(spec(*ports))


def test_ports_and_volumes_are_types_that_no_resource_of_a_node_can_have() -> None:
    port, volumes = resource_type(port_resource("TCP", 80)), resource_type(volume_resource("ebs.csi.aws.com"))
    assert (is_port(port), is_countable(port), is_port(volumes), is_countable(volumes)) == (
        True,
        True,
        False,
        True,
    )
    assert not is_countable(resource_type("hostport/x"))
    assert resource_name(port) == "hostport/TCP/80"
    assert (display_name(port), display_name(volumes), display_name("nvidia.com:gpu")) == (
        "host port 80/TCP",
        "volumes of ebs.csi.aws.com",
        "nvidia.com/gpu",
    )
    assert display_name(resource_type(port_resource("TCP", 80, "fd00::1"))) == "host port 80/TCP on fd00::1"
