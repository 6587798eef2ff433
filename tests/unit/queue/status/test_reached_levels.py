"""How far work came in the topology, in words."""

from __future__ import annotations

import pytest

from fluxqueue.api.topology import DEFAULT_LEVELS, TopologyRequest
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of
from fluxqueue.queue.status.reached_levels import reached_levels

NODES = {
    "n1": {
        "topology.kubernetes.io/zone": "z",
        "topology.kubernetes.io/block": "b",
        "topology.kubernetes.io/rack": "r1",
    },
    "n2": {
        "topology.kubernetes.io/zone": "z",
        "topology.kubernetes.io/block": "b",
        "topology.kubernetes.io/rack": "r2",
    },
    "n3": {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/rack": "r1"},
    "n4": {},
}


@pytest.mark.parametrize(
    ("topology", "hosts", "words"),
    [
        (TopologyRequest(), ["n1"], ""),
        (TopologyRequest("rack"), ["n1", "n1"], "below rack r1"),
        (TopologyRequest(preferred="rack"), ["n1", "n2"], "in 2 parts of level rack, below block b"),
        (TopologyRequest(preferred="rack"), ["n1", "n3"], "in 2 parts of level rack, below zone z"),
        (TopologyRequest(preferred="rack"), ["n1", "n4", "none.invalid"], "in 2 parts of level rack"),
        (TopologyRequest(preferred="block"), ["n1", "n2"], "below block b"),
        (TopologyRequest("node"), ["n4"], ""),
        (TopologyRequest("row"), ["n1"], "below rack r1"),
        (TopologyRequest("rack"), ["gone"], ""),
    ],
)
def test_the_lowest_common_vertex_is_named(topology: TopologyRequest, hosts: list[str], words: str) -> None:
    jobspec = jobspec_of(
        "ns/n", [SizedPods({}, 2)], duration_s=60, placement=PlacementRules(topology=topology)
    )
    assert reached_levels(jobspec, hosts, lambda host: NODES.get(host, {}), DEFAULT_LEVELS) == words
