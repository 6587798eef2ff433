"""Requests are compared by family."""

from __future__ import annotations

import json

from fluxqueue.queue.scheduling.policies.demands import demand_of


def request(count: int, nodes: int, first: str = "node-0") -> str:
    constraint = {"in": ["kubernetes.io/hostname", first, *(f"node-{number}" for number in range(1, nodes))]}
    slot = {"type": "slot", "count": count, "label": "pod", "with": [{"type": "cpu", "count": 100}]}
    return json.dumps({"version": 1, "resources": [slot], "tasks": [], "attributes": {"system": {"constraints": constraint}}})


def test_long_requests_are_of_one_family_if_they_differ_in_their_count_alone() -> None:
    one, two, other = demand_of(request(1, 500)), demand_of(request(2, 500)), demand_of(request(1, 500, "node-x"))
    assert (one.count, two.count) == (1, 2)
    assert one.family == two.family != other.family


def test_a_family_takes_little_memory_however_long_the_request_is() -> None:
    assert len(demand_of(request(1, 500)).family) == 64
    assert len(demand_of("[" * 5_000).family) == 64
    assert "node-2" in demand_of(request(1, 3)).family
