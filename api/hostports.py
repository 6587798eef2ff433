"""Host ports: the ports of a node that a pod opens.

Two pods with the same host port cannot run on one node, unless they open it on two addresses (``hostIP``). In
the graph a port is a resource like any other, so gangs, reservations and backfill handle ports without
special rules: a node has `ADDRESSES` units of each port, and one unit of each port on an address. A pod that
opens a port on all addresses takes all units of the port; one that opens it on one address takes one of them,
and the unit of that address. So each address is free for one pod, and all of them for a pod that wants all.

`conflicting_port` decides the same for pods on a node. Ports of init containers that end before the pod does
count nowhere, as for the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final, NamedTuple

from fluxqueue.api.graphnames import port_resource
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import InvalidRequest, pod_requests

__all__ = [
    "ADDRESSES",
    "MAX_HOST_PORTS",
    "OpenPort",
    "conflicting_port",
    "open_ports",
    "pod_needs",
    "port_units",
]

ADDRESSES: Final = 64
"""Units of a port that a node has.
No more addresses have the port at a time: each is a type of the graph, whose number is limited."""

MAX_HOST_PORTS: Final = 16
"""Host ports that one pod may open."""

_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104


class OpenPort(NamedTuple):
    """A port that a pod opens on its node for as long as it runs."""

    protocol: str
    number: int
    address: str

    def excludes(self, other: OpenPort) -> bool:
        """True if two pods with these ports cannot run on one node."""
        if self[:2] != other[:2]:
            return False
        return self.address == other.address or _ALL_ADDRESSES in (self.address, other.address)


def open_ports(spec: PodSpec) -> Iterator[OpenPort]:
    """Yield the ports that a pod opens on its node for as long as it runs:
    those of its containers and sidecars.
    """
    sidecars = (container for container in spec.init_containers or () if container.restart_policy == "Always")
    for container in (*spec.containers, *sidecars):
        for port in container.ports or ():
            if number := port.host_port or (port.container_port if spec.host_network else 0):
                yield OpenPort(port.protocol or "TCP", number, port.host_ip or _ALL_ADDRESSES)


def conflicting_port(spec: PodSpec, present: Iterable[PodSpec]) -> OpenPort | None:
    """Return a port that a pod opens and that a pod on the node has opened; None if there is no conflict."""
    wanted = [*open_ports(spec)]
    if not wanted:
        return None
    taken = [port for other in present for port in open_ports(other)]
    return min((port for port in wanted if any(port.excludes(other) for other in taken)), default=None)


def port_units(ports: Iterable[OpenPort]) -> dict[str, int]:
    """Return what ports take of a node on which all of them are open, by resource name."""
    units: Counter[str] = Counter()
    for protocol, number, address in {*ports}:
        everywhere = address == _ALL_ADDRESSES
        units[port_resource(protocol, number)] += ADDRESSES if everywhere else 1
        if not everywhere:
            units[port_resource(protocol, number, address)] = 1
    return {name: min(count, ADDRESSES) for name, count in sorted(units.items())}


def pod_needs(spec: PodSpec) -> dict[str, Decimal]:
    """Return what a pod takes of a node: its effective requests, and units of its host ports.

    If the pod uses the host network, all ports of its containers are ports of the node. The API server writes
    them as ``hostPort`` into pods, but not into templates.

    Raises
    ------
    InvalidRequest
        See `fluxqueue.api.requests.pod_requests`; also if the pod has more host ports than it may.
    """
    ports = {*open_ports(spec)}
    if len(ports) > MAX_HOST_PORTS:
        raise InvalidRequest(
            f"its containers open {len(ports)} host ports, a pod may have {MAX_HOST_PORTS}: "
            "use a Service, or fewer ports"
        )
    return {**pod_requests(spec), **{name: Decimal(count) for name, count in port_units(ports).items()}}
