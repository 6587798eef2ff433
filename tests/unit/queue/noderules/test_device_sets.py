"""How many sets of devices fit together."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from fluxqueue.api.devices import Device
from fluxqueue.queue.noderules.device_counters import DeviceKey, SharedCounters
from fluxqueue.queue.noderules.device_sets import attribute_of, sets_that_fit

NO_COUNTERS = SharedCounters()


def keys(names: str) -> frozenset[DeviceKey]:
    return frozenset(("driver", "pool", name) for name in names)


def key(name: str) -> DeviceKey:
    return "driver", "pool", name


def fit(
    *alternatives: list[tuple[str, int]], free: str = "abcdef", values: dict[str, str] | None = None
) -> int:
    parts = [[(keys(names), count) for names, count in each] for each in alternatives]
    of_devices = (
        None if values is None else {key(name): value for value, names in values.items() for name in names}
    )
    return sets_that_fit(parts, keys(free), NO_COUNTERS.room(), of_devices)


def test_devices_of_one_value_are_taken_together() -> None:
    assert fit([("abcdef", 2)], values={"left": "abc", "right": "def"}) == 2, "one is left on each side"
    assert fit([("abcdef", 4)], values={"left": "abc", "right": "def"}) == 0
    assert fit([("abcdef", 2)], values={"left": "ab"}) == 1, "devices without the attribute belong to no set"


def test_a_set_takes_of_each_part() -> None:
    assert fit([("abcd", 2), ("ef", 1)], values={"left": "abe", "right": "cdf"}) == 2
    assert fit([("abcd", 2), ("ef", 1)], values={"left": "abef", "right": "cd"}) == 1
    assert fit([("abc", 1), ("a", 1)]) == 1, "what only one part can use is left for it"


def test_the_first_alternative_is_taken_as_often_as_it_fits() -> None:
    assert fit([("ab", 1)], [("cdef", 2)]) == 4
    assert fit([("ab", 2)], [("abcdef", 1)]) == 5
    assert fit([("ab", 1)], [("cdef", 2)], free="acd") == 2


def test_devices_that_exclude_each_other_are_not_taken_together() -> None:
    gpu = ("driver", "pool", "gpu", "slices")
    one, two = {gpu: Decimal(1)}, {gpu: Decimal(2)}
    shared = SharedCounters(two, {key("a"): one, key("b"): one, key("c"): two})
    assert sets_that_fit([[(keys("abc"), 2)]], keys("abc"), shared.room()) == 1
    assert sets_that_fit([[(keys("abc"), 1)]], keys("c"), shared.room([key("a")])) == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("driver/root", "[('string', 'r0')]"),
        ("other/root", "[('int', 7)]"),
        ("driver/none", None),
        ("third/root", None),
    ],
)
def test_an_attribute_without_a_domain_is_of_the_driver(name: str, expected: str | None) -> None:
    device = msgspec.convert(
        {"name": "a", "attributes": {"root": {"string": "r0"}, "other/root": {"int": 7}}}, Device
    )
    assert attribute_of("driver", device, name) == expected
