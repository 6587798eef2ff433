"""Resources of nodes that the kubelet does not report: host ports, attachable volumes of a CSI driver, and
devices that pods claim or request as an extended resource.

A node's resources are those that its kubelet reports. Ports, volumes and claimed devices are not among them,
and there are too many ports to model all. So only those types are put into the graph that some work requests:
as a pool in every node, before that work is matched. What runs without the queue counts against these pools
only.

A type that nobody requests any more stays in the graph until the graph is filled again, so that work that
comes and goes does not change all nodes each time. Each type has a cost on every node. So there may be
`MAX_PORTS` host ports in all, and one namespace may request `MAX_PORTS_OF_NAMESPACE` of them; the same
numbers hold for kinds of devices. More are refused. The number of drivers of volumes is not limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.graphnames import (
    display_name,
    is_countable,
    is_device,
    is_port,
    is_port_of_address,
    is_volume,
    resource_type,
)
from fluxqueue.api.hostports import ADDRESSES, open_ports, port_units
from fluxqueue.api.pods import PodSpec
from fluxqueue.fluxion.messages import GraphNodeSpec, Pool
from fluxqueue.queue.cluster.extended_resources import NO_EXTENDED_RESOURCES, ExtendedResources
from fluxqueue.queue.model.jobspecs import sizes_in, taken_once_in
from fluxqueue.queue.model.records import NewWorkload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = [
    "MAX_PORTS",
    "MAX_PORTS_OF_NAMESPACE",
    "DeviceCapacity",
    "PortVolumePools",
    "VolumeLimits",
    "pool_types_in",
    "pools_for",
    "ports_taken",
    "with_pools",
]

MAX_PORTS: Final = 64
"""Different host ports that all work together may request; and as many kinds of devices."""
MAX_PORTS_OF_NAMESPACE: Final = 16
_UNLIMITED: Final = 1_000
"""Volumes of a driver on a node that states no limit. Its pods cannot have more."""
_MARKS: Final = ('"hostport:', '"volumes:', '"devices:')

VolumeLimits = Callable[[str], Mapping[str, int]]
"""Node -> type -> how many volumes of a driver may be attached there, for drivers that state a limit."""
DeviceCapacity = Callable[[str, frozenset[str]], Mapping[str, int]]
"""Node, types of devices -> type -> how many the node has."""


def pool_types_in(jobspec: str, extended: ExtendedResources = NO_EXTENDED_RESOURCES) -> frozenset[str]:
    """Return the types of ports, volumes and devices that a jobspec requests,
    and of resources that devices may stand for.
    """
    if not any(mark in jobspec for mark in _MARKS) and not extended.may_be_in(jobspec):
        return frozenset()
    asked = {kind for members in sizes_in(jobspec).values() for kind in members} | taken_once_in(
        jobspec
    ).keys()
    return frozenset(kind for kind in asked if is_countable(kind)) | (asked & extended.types)


def pools_for(types: Iterable[str], limits: Mapping[str, int]) -> tuple[Pool, ...]:
    """Return the pools that a node gets for these types; a limit of 0 leaves the node without one.

    A node gets no pool for a resource that it reports: ``limits`` do not have it.
    """
    pools: list[Pool] = []
    for kind in sorted(types):
        if is_port(kind):
            pools.append(Pool(kind, 1 if is_port_of_address(kind) else ADDRESSES, 1))
        elif kind in limits or is_countable(kind):
            pools.append(Pool(kind, limits.get(kind, _UNLIMITED if is_volume(kind) else 0), 1))
    return tuple(pools)


def with_pools(spec: GraphNodeSpec, pools: tuple[Pool, ...]) -> GraphNodeSpec:
    """Return a node with these pools in addition to its own."""
    return replace(spec, pools=(*spec.pools, *pools)) if pools else spec


def ports_taken(pods: Iterable[PodSpec], types: frozenset[str]) -> dict[str, int]:
    """Return what the pods of one node take of these port types."""
    units = port_units(port for pod in pods for port in open_ports(pod))
    return {kind: count for name, count in units.items() if (kind := resource_type(name)) in types}


class PortVolumePools:
    """The types of ports, volumes and devices that are in the graph because work requests them.

    Parameters
    ----------
    ledger
        The workloads.
    limits
        Volume limits of a node.
    devices
        How many devices a node has; without resources that it reports.
    extended
        The resources that devices may stand for.

    Attributes
    ----------
    types
        Those that the graph has, or gets next. Only `refresh` and `reset` change them.
    """

    def __init__(
        self,
        ledger: Ledger,
        limits: VolumeLimits = lambda _node: {},
        devices: DeviceCapacity = lambda _node, _types: {},
        extended: ExtendedResources = NO_EXTENDED_RESOURCES,
    ) -> None:
        self.types: frozenset[str] = frozenset()
        self._ledger = ledger
        self._extended = extended
        self._extended_types = extended.types
        self._limits = limits
        self._devices = devices
        self._in_use = 0
        self._device_types = (self.types, frozenset[str]())
        self._changed: set[WorkloadId] = set()

    def reset(self) -> None:
        """Forget the types that nobody requests any more, because the graph is filled again."""
        self._changed.clear()
        self._extended_types = self._extended.types
        shares = [share for _, allocation in self._ledger.live() for share in allocation.shares]
        held = {
            kind
            for share in shares
            for kind in share.amounts
            if is_countable(kind) or kind in self._extended_types
        }
        self.types = self._asked() | held
        self._in_use = len(self.types)

    def workload_changed(self, workload: WorkloadId) -> None:
        """Read at the next refresh what a workload requests."""
        self._changed.add(workload)

    def has(self, jobspec: str) -> bool:
        """True if all types are there that a request asks for."""
        return pool_types_in(jobspec, self._extended) <= self.types

    def refresh(self) -> None:
        """Add the types that work requests now."""
        changed = [self._ledger.get(workload_id) for workload_id in self._changed]
        self._changed.clear()
        if self._extended_types is not self._extended.types:
            self._extended_types = self._extended.types
            self.types |= self._asked()
            return
        self.types = self.types.union(
            *(pool_types_in(workload.jobspec, self._extended) for workload in changed if workload is not None)
        )

    def _asked(self) -> frozenset[str]:
        return frozenset(
            kind
            for workload in self._ledger.all()
            for kind in pool_types_in(workload.jobspec, self._extended)
        )

    @property
    def overfull(self) -> bool:
        """True if the graph has so many types that those that nobody requests must be removed."""
        return len(self.types) > max(MAX_PORTS, self._in_use)

    @property
    def devices(self) -> frozenset[str]:
        """The types of devices among them, and of resources that devices may stand for."""
        if self._device_types[0] is not self.types:
            self._device_types = (
                self.types,
                frozenset(kind for kind in self.types if not is_port(kind) and not is_volume(kind)),
            )
        return self._device_types[1]

    def pools(self, node: str) -> tuple[Pool, ...]:
        """Return the pools of a node."""
        if not self.types:
            return ()
        devices = self.devices
        return pools_for(
            self.types,
            {**self._limits(node), **self._devices(node, devices)} if devices else self._limits(node),
        )

    def limit_types(self, described: Sequence[NewWorkload]) -> list[NewWorkload]:
        """Return the descriptions of the intake; a request with too many different ports or kinds of devices
        is refused in its reason.
        """
        return self._limited(
            self._limited(described, is_port, "host ports"), is_device, "requests for devices"
        )

    def _limited(
        self, described: Sequence[NewWorkload], counts: Callable[[str], bool], what: str
    ) -> list[NewWorkload]:
        asked = [frozenset(filter(counts, pool_types_in(new.jobspec))) for new in described]
        if all(ports <= self.types for ports in asked):
            return list(described)
        again = {new.uid for new in described}
        of_all: set[str] = set()
        of_namespace: dict[str, set[str]] = {}
        for workload in self._ledger.all():
            if workload.uid not in again and (held := {*filter(counts, pool_types_in(workload.jobspec))}):
                of_all |= held
                of_namespace.setdefault(workload.namespace, set()).update(held)
        limited: list[NewWorkload] = []
        for new, ports in zip(described, asked, strict=True):
            own = of_namespace.setdefault(new.namespace, set())
            if ports <= self.types:
                limited.append(new)
            elif len(own | ports) > MAX_PORTS_OF_NAMESPACE:
                limited.append(
                    _refused(
                        new, ports - own, f"work of namespace {new.namespace}", MAX_PORTS_OF_NAMESPACE, what
                    )
                )
            elif len(of_all | ports) > MAX_PORTS:
                limited.append(_refused(new, ports - of_all, "all work", MAX_PORTS, what))
            else:
                own.update(ports)
                of_all.update(ports)
                limited.append(new)
        return limited


def _refused(new: NewWorkload, types: Iterable[str], whose: str, most: int, what: str) -> NewWorkload:
    remedy = (
        "use one of those, or a Service" if what == "host ports" else "use selectors that other work uses too"
    )
    message = (
        f"{new.ref} wants {display_name(min(types))}: {whose} together may ask for {most} different {what}, "
        f"and does: {remedy}"
    )
    return replace(new, jobspec="", shape="", reason=Reason.INVALID_REQUEST, message=message)
