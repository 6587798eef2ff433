"""How many sets of devices a node has left: the devices that one claim gets together, with alternatives and a
common attribute.

A claim may ask for devices of several requests that have one value of an attribute (``matchAttribute``: two
GPUs and a network card behind one PCIe root), or for the first of several alternatives that is there
(``firstAvailable``). Neither is a number of single devices: of three GPUs behind two roots, no two can be had
together. So what is counted is sets. They are taken one after another, as the scheduler of the cluster would:
each alternative as often as it fits, within each value of the attribute. That is exact where the requests of
a set select devices of which none is selected by another, or all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluxqueue.api.devices import Device
from fluxqueue.queue.noderules.device_counters import CounterRoom, DeviceKey

__all__ = ["attribute_of", "sets_that_fit"]

Part = tuple[frozenset[DeviceKey], int]
"""The devices of which one must be taken so many times."""


def sets_that_fit(
    alternatives: Sequence[Sequence[Part]],
    free: Iterable[DeviceKey],
    room: CounterRoom,
    values: Mapping[DeviceKey, str] | None = None,
) -> int:
    """Return how many sets can be taken together.

    Parameters
    ----------
    alternatives
        The parts of a set; the first alternative that fits is taken.
    free
        Devices that nobody has.
    room
        The counters that devices share.
    values
        The attribute that is one for all devices of a set, of the devices that have it; None: any devices.
    """
    unused = set(free)
    groups = [unused] if values is None else _by_value(unused, values)
    count = 0
    for parts in alternatives:
        for group in groups:
            while (chosen := _choose(parts, group, room)) is not None:
                group -= chosen
                count += 1
    return count


def attribute_of(driver: str, device: Device, name: str) -> str | None:
    """Return the value of an attribute as text, with its type; a name without a domain is of the driver's.
    None if the device has none.
    """
    attributes = device.attributes or {}
    domain, _, own = name.rpartition("/")
    value = attributes.get(name) or (attributes.get(own) if domain == driver else None)
    return repr(sorted(value.items())) if value else None


def _by_value(devices: Iterable[DeviceKey], values: Mapping[DeviceKey, str]) -> list[set[DeviceKey]]:
    groups: dict[str, set[DeviceKey]] = {}
    for device in sorted(devices):
        if device in values:
            groups.setdefault(values[device], set()).add(device)
    return list(groups.values())


def _choose(parts: Sequence[Part], available: set[DeviceKey], room: CounterRoom) -> set[DeviceKey] | None:
    """Return one set, which is taken from the counters; None if there is none.
    The part with the fewest devices chooses first.
    """
    chosen: set[DeviceKey] = set()
    for selected, number in sorted(parts, key=lambda part: len(part[0])):
        wanted = number
        for device in sorted((selected & available) - chosen):
            if wanted and room.take(device):
                chosen.add(device)
                wanted -= 1
        if wanted:
            room.give_back(chosen)
            return None
    return chosen or None
