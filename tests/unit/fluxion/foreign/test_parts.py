"""Which parts a request has for a foreign matcher, and how they are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.fluxion_builders import jobspec, nodes, slot

from fluxqueue.fluxion.foreign.parts import Part, foreign_jobspec, free_parts, node_parts, slot_parts
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.match.jobspec import read_jobspec
from fluxqueue.fluxion.messages import NodeShare


def parts(*levels: dict[str, Any], **more: Any) -> tuple[Part, ...]:
    return free_parts(read_jobspec(jobspec(*levels, **more)))


def test_equal_pods_are_one_part() -> None:
    assert parts(slot(4, "pod", cpu=500, pods=1)) == (Part("pod", 4, {"cpu": 500, "pods": 1}),)


def test_pods_of_several_sizes_are_a_part_each() -> None:
    assert [(part.label, part.slots) for part in parts(slot(1, "pod.0", cpu=1), slot(3, "pod.1", cpu=2))] == [
        ("pod.0", 1),
        ("pod.1", 3),
    ]


def test_one_pod_for_each_node_is_a_part_of_slots_apart() -> None:
    assert parts(nodes(3, slot(1, "pod", cpu=1))) == (Part("pod", 3, {"cpu": 1}, apart=True),)


@pytest.mark.parametrize(
    "levels",
    [
        ({"type": "rack", "count": 1, "label": "group", "with": [slot(2, cpu=1)]},),
        (nodes(2, slot(2, cpu=1)),),
        (nodes(2, slot(1, cpu=1)), nodes(1, slot(1, cpu=1))),
        (nodes(1, slot(1, cpu=1), exclusive=True),),
        (slot({"min": 1}, cpu=1),),
    ],
)
def test_what_the_three_calls_cannot_say_is_no_free_part(levels: tuple[dict[str, Any], ...]) -> None:
    assert parts(*levels) == ()


def test_a_reservation_is_no_free_part() -> None:
    assert parts(slot(1, cpu=1), reservation="maintenance") == ()


def test_a_placement_is_a_part_for_each_node() -> None:
    shares = (NodeShare("a", {"pod": 2}, {"cpu": 200}), NodeShare("b", {"pod": 1}, {"cpu": 100}))
    assert [(part.node, part.amounts) for part in node_parts(shares)] == [
        ("a", {"cpu": 200}),
        ("b", {"cpu": 100}),
    ]


def test_one_slot_of_each_kind_is_the_least() -> None:
    made = read_jobspec(
        jobspec({"type": "rack", "count": 1, "label": "group", "with": [slot(2, "pod", cpu=1)]})
    )
    assert slot_parts(made) == (Part("pod", 1, {"cpu": 1}),)


def written(part: Part, accepted: str = "abc", offered: str = "abc") -> dict[str, Any]:
    text = foreign_jobspec(part, ForeignUnits(), list(accepted), list(offered))
    read_jobspec(text)
    made: dict[str, Any] = json.loads(text)
    return made


def test_a_part_is_a_slot_in_the_units_of_the_foreign_graph() -> None:
    made = written(Part("pod", 2, {"cpu": 1_500, "pods": 1}))
    assert made["resources"] == [
        {"type": "slot", "count": 2, "label": "pod", "with": [{"type": "core", "count": 2}]}
    ]
    assert made["attributes"] == {"system": {"duration": 0}}


def test_slots_apart_are_nodes_with_a_slot() -> None:
    (level,) = written(Part("pod", 2, {"cpu": 1_000}, apart=True))["resources"]
    assert (level["type"], level["count"], level["with"][0]["count"]) == ("node", 2, 1)


@pytest.mark.parametrize(
    ("accepted", "constraints"),
    [
        ("a", {"hostlist": ["a"]}),
        ("ab", {"not": [{"hostlist": ["c"]}]}),
        ("abx", {"not": [{"hostlist": ["c"]}]}),
    ],
)
def test_nodes_are_named_by_the_shorter_list(accepted: str, constraints: dict[str, Any]) -> None:
    assert written(Part("pod", 1, {"cpu": 1}), accepted)["attributes"]["system"]["constraints"] == constraints
