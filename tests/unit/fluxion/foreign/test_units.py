"""What a foreign matcher counts, and in which units."""

from __future__ import annotations

import pytest

from fluxqueue.fluxion.foreign.units import ForeignUnits


def test_what_is_free_is_rounded_down_to_whole_vertices() -> None:
    free = {"cpu": 3_900, "memory": 2_500, "nvidia.com:gpu": 2}
    assert ForeignUnits().offered(free) == {"core": 3, "memory": 2, "nvidia.com:gpu": 2}


def test_what_is_asked_for_is_rounded_up() -> None:
    assert ForeignUnits().wanted({"cpu": 1_100, "memory": 1_025, "nvidia.com:gpu": 1}) == {
        "core": 2,
        "memory": 2,
        "nvidia.com:gpu": 1,
    }


def test_a_pod_that_requests_nothing_takes_a_core() -> None:
    assert ForeignUnits().wanted({"pods": 1}) == {"core": 1}


@pytest.mark.parametrize("kind", ["pods", "ephemeral-storage", "hugepages-2Mi"])
def test_what_only_the_queue_counts_is_not_sent(kind: str) -> None:
    assert ForeignUnits().offered({kind: 10}) == {}
    assert ForeignUnits().wanted({kind: 10}) == {"core": 1}


def test_a_pool_of_thousands_of_pieces_is_no_pool_of_devices() -> None:
    assert ForeignUnits().offered({"example.com:tokens": 100_000}) == {}


def test_units_may_be_finer() -> None:
    assert ForeignUnits(cpu_m=100, memory_mib=256).offered({"cpu": 950, "memory": 1_000}) == {
        "core": 9,
        "memory": 3,
    }
