"""Parts of one GPU: how many fit together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fluxqueue.api.devices import ResourceSlice
from fluxqueue.queue.noderules.device_counters import DeviceKey, SharedCounters, shared_counters


def a_gpu(memory: str = "40Gi") -> SharedCounters:
    """A GPU of seven slices and 40 GiB, cut as MIG cuts it: whole, halves and sevenths."""

    def part(name: str, slices: int, memory: str) -> dict[str, Any]:
        amounts = {"slices": {"value": str(slices)}, "memory": {"value": memory}}
        return {"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": amounts}]}

    parts = [
        part("whole", 7, "40Gi"),
        *(part(f"half-{n}", 3, "20Gi") for n in range(2)),
        *(part(f"small-{n}", 1, "5Gi") for n in range(7)),
    ]
    counters = {"slices": {"value": "7"}, "memory": {"value": memory}}
    pool = {"name": "n1", "resourceSliceCount": 2}
    bodies = [
        {"spec": {"driver": "gpu", "pool": pool, "sharedCounters": [{"name": "gpu", "counters": counters}]}},
        {"spec": {"driver": "gpu", "pool": pool, "devices": [*parts, {"name": "alone"}]}},
    ]
    return shared_counters(msgspec.convert(bodies, list[ResourceSlice]))


def keys(*names: str) -> frozenset[DeviceKey]:
    return frozenset(("gpu", "n1", name) for name in names)


SMALL, HALVES = keys(*(f"small-{n}" for n in range(7))), keys("half-0", "half-1")


@pytest.mark.parametrize(
    ("devices", "allocated", "most"),
    [
        (SMALL, keys(), 7),
        (HALVES, keys(), 2),
        (keys("whole"), keys(), 1),
        (SMALL, keys("half-0"), 4),
        (SMALL, keys("half-0", "half-1"), 0),
        (keys("whole"), keys("small-3"), 0),
        (HALVES, keys("small-0", "small-1"), 1),
        (HALVES | SMALL | keys("whole"), keys(), 7),
        (SMALL | keys("alone"), keys("whole"), 1),
        (HALVES, keys("half-0"), 1),
    ],
)
def test_what_is_allocated_makes_other_parts_impossible(
    devices: frozenset[DeviceKey], allocated: frozenset[DeviceKey], most: int
) -> None:
    assert a_gpu().most(devices, allocated) == most


def test_without_counters_each_device_counts() -> None:
    assert SharedCounters().most(SMALL, keys("small-0")) == 6


def test_a_counter_that_cannot_be_read_has_nothing() -> None:
    assert a_gpu(memory="lots").most(SMALL) == 0
