"""Levels of the topology in jobspecs: how they are written,
and that all readers of jobspecs read through them.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from fluxqueue.api.requests import InvalidRequest
from fluxqueue.api.topology import TopologyRequest
from fluxqueue.fluxion.match.jobspec import read_jobspec
from fluxqueue.queue.model.jobspecs import (
    PlacementRules,
    ServicesPod,
    SizedPods,
    jobspec_of,
    sizes_in,
    slots_in,
    takes_whole_nodes,
)
from fluxqueue.queue.model.topology_levels import required_level
from fluxqueue.queue.noderules.jobspec_rules import rule_pods
from fluxqueue.queue.scheduling.policies.demands import amounts_of, demand_of

ONE = {"cpu": Decimal(1)}


def written(
    topology: TopologyRequest,
    pods: int = 8,
    *,
    one_per_node: bool = False,
    services: ServicesPod | None = None,
) -> str:
    rules = PlacementRules(topology=topology, one_per_node=one_per_node)
    return jobspec_of("ns/name", [SizedPods(ONE, pods)], duration_s=60, placement=rules, services=services)


def shape(jobspec: str) -> list[tuple[str, int, str]]:
    """Type, count and label of the levels from the top down to the slots."""
    levels, found = json.loads(jobspec)["resources"], []
    while levels and levels[0]["type"] != "cpu":
        found.append((levels[0]["type"], levels[0]["count"], levels[0].get("label", "")))
        levels = levels[0].get("with", [])
    return found


@pytest.mark.parametrize(
    ("topology", "levels"),
    [
        (TopologyRequest(), [("slot", 8, "pod")]),
        (TopologyRequest(required="rack"), [("rack", 1, "group"), ("slot", 8, "pod")]),
        (TopologyRequest(preferred="rack"), [("rack", 1, "preferred"), ("slot", 8, "pod")]),
        (TopologyRequest(slice_level="rack", slice_size=4), [("rack", 2, "group"), ("slot", 4, "pod")]),
        (
            TopologyRequest("zone", "block", "rack", 2),
            [("zone", 1, "group"), ("block", 1, "preferred"), ("rack", 4, "group"), ("slot", 2, "pod")],
        ),
    ],
)
def test_levels_stand_above_the_slots_and_readers_read_through_them(
    topology: TopologyRequest, levels: Any
) -> None:
    jobspec = written(topology)
    assert shape(jobspec) == levels
    assert slots_in(jobspec) == [("pod", 8, {"cpu": 1_000, "pods": 1})]
    assert sizes_in(jobspec) == {"pod": {"cpu": 1_000, "pods": 1}}
    assert (amounts_of(jobspec), rule_pods(jobspec)) == ({"cpu": 8_000, "pods": 8}, (8, False))
    assert len(read_jobspec(jobspec).level_needs) == len(levels) - 1


@pytest.mark.parametrize("services", [None, ServicesPod(ONE)])
def test_what_cannot_be_divided_prefers_the_level_of_optional_slices(services: ServicesPod | None) -> None:
    optional = TopologyRequest(slice_level="rack", slice_size=3, optional_slices=True)
    assert shape(written(optional, 8, services=services))[0] == ("rack", 1, "preferred")
    below_a_block = TopologyRequest("zone", "block", "rack", 3, optional_slices=True)
    assert shape(written(below_a_block, 8, services=services))[:2] == [
        ("zone", 1, "group"),
        ("block", 1, "preferred"),
    ]
    assert shape(written(optional, 9)) == [("rack", 3, "group"), ("slot", 3, "pod")]


def test_one_pod_on_each_node_below_a_level() -> None:
    jobspec = written(TopologyRequest(required="rack", slice_level="rack", slice_size=2), one_per_node=True)
    assert shape(jobspec)[:3] == [("rack", 1, "group"), ("rack", 4, "group"), ("node", 2, "")]
    assert (slots_in(jobspec)[0][1], rule_pods(jobspec)) == (8, (8, True))


def test_how_pods_share_nodes_are_rules_by_nodes() -> None:
    jobspec = written(TopologyRequest(exclusive=True, pods_per_node=2))
    assert json.loads(jobspec)["attributes"]["system"]["domains"] == [{"whole": True}, {"key": "", "most": 2}]
    assert takes_whole_nodes(jobspec)
    assert not takes_whole_nodes(written(TopologyRequest(pods_per_node=2)))


@pytest.mark.parametrize(
    ("pods", "services", "sentence"),
    [
        (
            9,
            None,
            (
                "slices of 4 pods below one rack, and 9 pods are no multiple of 4: "
                "change the size of the slices, or its pods"
            ),
        ),
        (8, ServicesPod(ONE), "slices of 4 pods below one rack, and its services pod belongs to none"),
    ],
)
def test_pods_that_form_no_whole_slices_are_refused(
    pods: int, services: ServicesPod | None, sentence: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        written(TopologyRequest(slice_level="rack", slice_size=4), pods, services=services)
    assert sentence in str(refused.value)


def test_requests_below_one_vertex_that_differ_in_slots_are_one_family() -> None:
    demands = [demand_of(written(TopologyRequest(required="rack"), pods)) for pods in (2, 5)]
    assert ([each.count for each in demands], len({each.family for each in demands})) == ([2, 5], 1)
    families = Counter(
        demand_of(written(topology)).family
        for topology in (
            TopologyRequest(),
            TopologyRequest(required="rack"),
            TopologyRequest(preferred="rack"),
            TopologyRequest("zone"),
        )
    )
    assert set(families.values()) == {1}, "another level is another family"


def test_only_a_level_with_one_vertex_is_required() -> None:
    found = [
        required_level(json.loads(written(each))["resources"])
        for each in (
            TopologyRequest("rack"),
            TopologyRequest(preferred="rack"),
            TopologyRequest(slice_level="rack", slice_size=4),
            TopologyRequest(),
        )
    ]
    assert found == ["rack", "", "", ""]
