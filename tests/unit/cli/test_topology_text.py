"""What was asked of the topology, in words."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from fluxqueue.api.topology import TopologyRequest
from fluxqueue.cli.topology_text import topology_text
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of


@pytest.mark.parametrize(
    ("topology", "one_per_node", "words"),
    [
        (TopologyRequest(), False, ""),
        (TopologyRequest("rack"), False, "all below one rack"),
        (TopologyRequest(preferred="block"), True, "as low as possible, from one block up"),
        (
            TopologyRequest("zone", "", "rack", 4),
            False,
            "all below one zone; 2 groups of 4, each below one rack",
        ),
        (
            TopologyRequest(exclusive=True, pods_per_node=2),
            False,
            "no other work on its nodes; at most 2 pods on a node",
        ),
    ],
)
def test_levels_and_rules_about_nodes_are_said_in_words(
    topology: TopologyRequest, one_per_node: bool, words: str
) -> None:
    placement = PlacementRules(topology=topology, one_per_node=one_per_node)
    spec = json.loads(
        jobspec_of("ns/n", [SizedPods({"cpu": Decimal(1)}, 8)], duration_s=60, placement=placement)
    )
    assert topology_text(spec["resources"], spec["attributes"]["system"].get("domains", [])) == words
