"""The devices of one node that a kind selects, and how many units of the kind they are:
single devices, shares of them, or sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from fluxqueue.api.devices import Device, DeviceClass
from fluxqueue.queue.noderules.device_counters import DeviceKey, SharedCounters
from fluxqueue.queue.noderules.device_requests import DeviceKind
from fluxqueue.queue.noderules.device_sets import attribute_of, sets_that_fit
from fluxqueue.queue.noderules.device_shares import shares_left

__all__ = ["Held", "KnownDevice", "Selection", "select"]


class KnownDevice(NamedTuple):
    """A device of a node."""

    driver: str
    pool: str
    device: Device

    @property
    def key(self) -> DeviceKey:
        """Driver, pool and name."""
        return self.driver, self.pool, self.device.name


class Held(NamedTuple):
    """A device, or a share of one, that a claim has."""

    device: DeviceKey
    amounts: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class Selection:
    """Devices of a node.

    Attributes
    ----------
    kind
        Which.
    of_queries
        Those that each query of the kind selects.
    shared
        Those that may be allocated several times.
    values
        The attribute that a set has in common, of the devices that have it; None if it needs none.
    devices
        All that are selected.
    """

    kind: DeviceKind
    of_queries: tuple[frozenset[DeviceKey], ...]
    shared: Mapping[DeviceKey, Device] = field(default_factory=dict)
    values: Mapping[DeviceKey, str] | None = None
    devices: frozenset[DeviceKey] = frozenset()

    def left(self, counters: SharedCounters, held: Iterable[Held] = ()) -> int:
        """Return how many units can be allocated while claims have these devices."""
        held = [*held]
        if self.kind.sets:
            allocated = frozenset(each.device for each in held)
            alternatives = [
                [(self.of_queries[query], count) for query, count in parts] for parts in self.kind.sets
            ]
            return sets_that_fit(
                alternatives, self.devices - allocated, counters.room(allocated), self.values
            )
        allocated = frozenset(each.device for each in held if each.device not in self.shared)
        units = counters.most(self.devices - self.shared.keys(), allocated)
        if self.shared:
            used: dict[DeviceKey, list[Mapping[str, Decimal]]] = {}
            for each in held:
                used.setdefault(each.device, []).append(each.amounts)
            asked = dict(self.kind.queries[0].capacity)
            units += sum(shares_left(device, asked, used.get(key, ())) for key, device in self.shared.items())
        return units

    def units_of(self, held: Iterable[Held]) -> int:
        """Return how many units of the kind the claims of one pod have at most."""
        number = sum(each.device in self.devices for each in held)
        if self.kind.every:
            return min(number, 1)
        return (
            number // min(sum(count for _, count in parts) for parts in self.kind.sets)
            if self.kind.sets
            else number
        )


def select(
    kind: DeviceKind, devices: Iterable[KnownDevice], classes: Mapping[str, DeviceClass | None]
) -> Selection:
    """Return the devices of a node that a kind selects."""
    devices = [*devices]
    of_queries = tuple(
        frozenset(
            each.key
            for each in devices
            if query.selects(each.driver, each.device, classes.get(query.device_class))
        )
        for query in kind.queries
    )
    found = frozenset[DeviceKey]().union(*of_queries)
    values = {
        each.key: value
        for each in devices
        if (value := attribute_of(each.driver, each.device, kind.match)) is not None
    }
    return Selection(
        kind,
        of_queries,
        {
            each.key: each.device
            for each in devices
            if each.device.allow_multiple_allocations and each.key in found
        },
        values if kind.match else None,
        found,
    )
