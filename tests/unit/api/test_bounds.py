"""How many pods one workload may have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fluxqueue.api.bounds import DEFAULT_MAX_PODS, limit_pods, max_pods, too_many_pods
from fluxqueue.api.groupsizes import InvalidGroupSize, parse_group_size


@pytest.fixture
def small() -> Iterator[None]:
    """An installation whose workloads have at most 8 pods."""
    limit_pods(8)
    yield
    limit_pods(DEFAULT_MAX_PODS)


@pytest.mark.usefixtures("small")
def test_an_installation_says_how_many_pods_a_workload_may_have() -> None:
    assert max_pods() == 8
    assert too_many_pods(8) == ""
    assert "the most of one workload is 8 (queue.config.maxPods of the installation)" in too_many_pods(9)
    assert parse_group_size("8") == 8
    with pytest.raises(InvalidGroupSize, match="from 1 to 8"):
        parse_group_size("9")


def test_a_workload_has_20000_pods_at_most_by_default() -> None:
    assert too_many_pods(20_000) == ""
    assert "it wants 20001 pods at once" in too_many_pods(20_001)
