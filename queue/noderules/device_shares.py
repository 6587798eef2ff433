"""How many requests can have a share of one device (consumable capacity, KEP-5075).

A driver may allow that a device is allocated several times. Each allocation then takes an amount of each
capacity of the device: what the request asks for, rounded by the policy of the capacity, or what the policy
gives to a request that asks for nothing; without a policy that is all of it. A device that is allocated once
only serves a request if it has the amounts at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Final

from fluxqueue.api.devices import CapacityPolicy, Device, DeviceCapacity
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity

__all__ = ["MOST_SHARES", "consumed", "shares_left"]

MOST_SHARES: Final = 1_024
"""Shares that are counted of a device whose allocations take nothing."""

Amounts = Mapping[str, Decimal]


def consumed(device: Device, requests: Mapping[str, str]) -> Amounts | None:
    """Return what one request takes of the capacities of a device; None if the device cannot serve it.

    Parameters
    ----------
    device
        As its driver publishes it.
    requests
        Capacity -> quantity, as the request states it.
    """
    capacities = device.capacity or {}
    if any(name not in capacities for name in requests):
        return None
    taken: dict[str, Decimal] = {}
    try:
        for name, capacity in capacities.items():
            amount = _amount(requests.get(name), capacity)
            if amount > parse_quantity(capacity.value) or _violates(amount, capacity.request_policy):
                return None
            taken[name] = amount
    except InvalidQuantity:
        return None
    return taken


def shares_left(device: Device, requests: Mapping[str, str], used: Iterable[Amounts] = ()) -> int:
    """Return how many more requests of this kind can have a share of a device.

    Parameters
    ----------
    device, requests
        As for `consumed`.
    used
        What each allocation of the device has.
    """
    taken, used = consumed(device, requests), [*used]
    if taken is None:
        return 0
    if not device.allow_multiple_allocations:
        return 0 if used else 1
    most = MOST_SHARES
    for name, amount in taken.items():
        left = parse_quantity((device.capacity or {})[name].value) - sum(
            each.get(name, Decimal()) for each in used
        )
        if amount > 0:
            most = min(most, int(left // amount))
        elif left < 0:
            most = 0
    return max(most, 0)


def _amount(text: str | None, capacity: DeviceCapacity) -> Decimal:
    policy = capacity.request_policy
    if text is None:
        return parse_quantity(capacity.value if policy is None or policy.default is None else policy.default)
    asked = parse_quantity(text)
    if policy is None:
        return asked
    limits = policy.valid_range
    if limits is not None and limits.min is not None:
        least = parse_quantity(limits.min)
        if asked <= least or limits.step is None:
            return max(asked, least)
        step = parse_quantity(limits.step)
        return least + step * ((asked - least) / step).to_integral_value(ROUND_CEILING) if step > 0 else asked
    values = [parse_quantity(each) for each in policy.valid_values or ()]
    return next((each for each in values if asked <= each), asked)


def _violates(amount: Decimal, policy: CapacityPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount == parse_quantity(policy.default)):
        return False
    limits = policy.valid_range
    if limits is not None and limits.max is not None and amount > parse_quantity(limits.max):
        return True
    return bool(policy.valid_values) and amount not in [
        parse_quantity(each) for each in policy.valid_values or ()
    ]
