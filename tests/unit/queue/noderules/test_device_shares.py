"""How many requests can have a share of one device."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from fluxqueue.api.devices import Device
from fluxqueue.queue.noderules.device_shares import MOST_SHARES, consumed, shares_left

GI = Decimal(2**30)


def device(policy: Any = None, *, shared: bool = True, memory: str = "40Gi") -> Device:
    capacity = {"memory": {"value": memory, **({"requestPolicy": policy} if policy else {})}}
    return msgspec.convert(
        {"name": "gpu-0", "allowMultipleAllocations": shared, "capacity": capacity}, Device
    )


RANGE = {"default": "2Gi", "validRange": {"min": "2Gi", "step": "2Gi", "max": "20Gi"}}
VALUES = {"default": "5Gi", "validValues": ["5Gi", "10Gi", "20Gi"]}


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        pytest.param(None, "3Gi", 3, id="as asked"),
        pytest.param(None, None, 40, id="nothing is asked: all of it"),
        pytest.param(RANGE, "1Gi", 2, id="the least"),
        pytest.param(RANGE, "5Gi", 6, id="the next step"),
        pytest.param(RANGE, "6Gi", 6, id="a step"),
        pytest.param(RANGE, "21Gi", None, id="more than the most"),
        pytest.param(RANGE, None, 2, id="the default"),
        pytest.param(VALUES, "6Gi", 10, id="the next value"),
        pytest.param(VALUES, "21Gi", None, id="more than the largest value"),
        pytest.param(VALUES, None, 5, id="the default value"),
        pytest.param(None, "41Gi", None, id="more than there is"),
        pytest.param(None, "much", None, id="unreadable"),
    ],
)
def test_a_request_takes_what_the_policy_makes_of_it(
    policy: Any, asked: str | None, expected: int | None
) -> None:
    found = consumed(device(policy), {"memory": asked} if asked else {})
    assert found == (None if expected is None else {"memory": expected * GI})


def test_a_device_without_the_capacity_serves_nobody() -> None:
    assert consumed(device(), {"cores": "1"}) is None
    assert shares_left(device(), {"cores": "1"}) == 0


def test_shares_are_counted_until_the_capacity_is_used() -> None:
    assert shares_left(device(), {"memory": "10Gi"}) == 4
    assert shares_left(device(), {"memory": "10Gi"}, [{"memory": 15 * GI}]) == 2
    assert shares_left(device(), {"memory": "10Gi"}, [{"memory": 15 * GI}, {"memory": 20 * GI}]) == 0
    assert shares_left(device(), {}, [{"memory": 1 * GI}]) == 0


def test_a_device_that_is_allocated_once_has_one_share() -> None:
    assert shares_left(device(shared=False), {"memory": "10Gi"}) == 1
    assert shares_left(device(shared=False), {"memory": "10Gi"}, [{}]) == 0


def test_shares_that_take_nothing_have_a_limit() -> None:
    bare = msgspec.convert({"name": "gpu-0", "allowMultipleAllocations": True}, Device)
    assert shares_left(bare, {}, [{}] * 3) == MOST_SHARES
