"""How many devices can be allocated together where they are parts of one piece of hardware (partitionable
devices, KEP-4815).

A driver publishes every part that a GPU could be cut into as a device of its own, and says what each takes of
the counters that they share: memory, or slices of the chip. So allocating one part makes others impossible.
The number of a kind that fits together is found by taking the smallest first, which is exact as long as those
of a kind are of one size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from fluxqueue.api.devices import Counters, ResourceSlice
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity

__all__ = ["CounterRoom", "DeviceKey", "SharedCounters", "shared_counters"]

DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""
_Counter = tuple[str, str, str, str]
"""Driver, pool, set and name of a counter."""


@dataclass(frozen=True, slots=True)
class SharedCounters:
    """The counters of a node.

    Attributes
    ----------
    there
        How much of each there is.
    needed
        How much each device takes; without devices that take nothing.
    """

    there: Mapping[_Counter, Decimal] = field(default_factory=dict)
    needed: Mapping[DeviceKey, Mapping[_Counter, Decimal]] = field(default_factory=dict)

    def most(self, devices: Iterable[DeviceKey], allocated: frozenset[DeviceKey] = frozenset()) -> int:
        """Return how many of these devices can be allocated together, while others are allocated."""
        wanted = set(devices) - allocated
        if not self.needed:
            return len(wanted)
        room = self.room(allocated)
        return sum(
            map(room.take, sorted(wanted, key=lambda each: (sum(self.needed.get(each, {}).values()), each)))
        )

    def room(self, allocated: Iterable[DeviceKey] = ()) -> CounterRoom:
        """Return what is left of the counters while devices are allocated."""
        room = CounterRoom(self.needed, dict(self.there))
        for device in allocated if self.needed else ():
            room.add(device, -1)
        return room


@dataclass(frozen=True, slots=True)
class CounterRoom:
    """What is left of counters.

    Attributes
    ----------
    needed
        How much each device takes.
    left
        How much of each counter is left.
    """

    needed: Mapping[DeviceKey, Mapping[_Counter, Decimal]]
    left: dict[_Counter, Decimal]

    def take(self, device: DeviceKey) -> bool:
        """Take what a device needs; False if there is not enough."""
        fits = all(
            self.left.get(counter, Decimal()) >= amount
            for counter, amount in self.needed.get(device, {}).items()
        )
        if fits:
            self.add(device, -1)
        return fits

    def give_back(self, devices: Iterable[DeviceKey]) -> None:
        """Give back what devices took."""
        for device in devices:
            self.add(device, 1)

    def add(self, device: DeviceKey, times: int) -> None:
        """Add what a device needs so many times."""
        for counter, amount in self.needed.get(device, {}).items():
            self.left[counter] = self.left.get(counter, Decimal()) + amount * times


def shared_counters(slices: Iterable[ResourceSlice]) -> SharedCounters:
    """Read the counters of the slices of a node.
    A counter that cannot be read has nothing, so what needs it is not allocated.
    """
    there: dict[_Counter, Decimal] = {}
    needed: dict[DeviceKey, dict[_Counter, Decimal]] = {}
    for each in slices:
        spec = each.spec
        pool = spec.driver, spec.pool.name
        for shared in spec.shared_counters or ():
            there.update({(*pool, shared.name, name): amount for name, amount in _amounts(shared).items()})
        for device in spec.devices or ():
            for taken in device.consumes_counters or ():
                amounts = {
                    (*pool, taken.counter_set, name): amount for name, amount in _amounts(taken).items()
                }
                needed.setdefault((*pool, device.name), {}).update(amounts)
    return SharedCounters(there, needed)


def _amounts(counters: Counters) -> dict[str, Decimal]:
    amounts: dict[str, Decimal] = {}
    for name, counter in (counters.counters or {}).items():
        try:
            amounts[name] = parse_quantity(counter.value)
        except InvalidQuantity:
            continue
    return amounts
