"""What starts together of a tree of PodGroups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.builders import Json
from support.gang_builders import read_object

from fluxqueue.api.bounds import max_pods
from fluxqueue.queue.model.sources.composite_groups import (
    COMPOSITE_POD_GROUPS,
    MOST_GROUPS,
    NodeKey,
    Survey,
    survey,
)
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS

COMPOSITE, LEAF = "CompositePodGroup", "PodGroup"
TOP = (COMPOSITE, "top")


def composite(parent: str = "", *, gang: int | None = None, key: str = "", **metadata: str) -> Any:
    policy: Json = {"gang": {"minGroupCount": gang}} if gang is not None else {"basic": {}}
    return read_object(COMPOSITE_POD_GROUPS, _spec(policy, parent, key), **metadata)


def leaf(parent: str = "", *, gang: int | None = 2, key: str = "", **metadata: str) -> Any:
    policy: Json = {"gang": {"minCount": gang}} if gang is not None else {"basic": {}}
    return read_object(NATIVE_POD_GROUPS, _spec(policy, parent, key), **metadata)


def _spec(policy: Json, parent: str, key: str) -> Json:
    return {
        "schedulingPolicy": policy,
        **({"parentCompositePodGroupName": parent} if parent else {}),
        **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}),
    }


def read(tree: Mapping[NodeKey, Any], top: NodeKey = TOP) -> Survey:
    """Read a tree of objects by kind and name."""

    def children(name: str) -> list[NodeKey]:
        return [key for key, each in tree.items() if each.spec.parent_composite_pod_group_name == name]

    return survey(top, tree.get, children)


def named(**groups: Any) -> dict[NodeKey, Any]:
    """Return groups by kind and name."""
    kinds = {NATIVE_POD_GROUPS.resource: LEAF, COMPOSITE_POD_GROUPS.resource: COMPOSITE}
    by_struct = {resource.struct: kind for resource, kind in kinds.items() if resource is not None}
    return {(by_struct[type(each)], name): each for name, each in groups.items()}


def test_all_groups_that_the_minimum_needs_are_one_unit() -> None:
    found = read(named(top=composite(gang=2), a=leaf("top"), b=leaf("top", gang=3)))
    unit = found.unit_of("a")
    assert found.unit_of("b") is unit
    assert (unit.key, unit.leaves, unit.waits_for) == (TOP, {"a": 2, "b": 3}, "")
    assert COMPOSITE_POD_GROUPS.read((), unit).pods == 5


def test_a_tree_of_which_groups_are_missing_waits_for_them() -> None:
    found = read(named(top=composite(gang=3), a=leaf("top"), b=leaf("top")))
    assert found.unit_of("a").waits_for == "CompositePodGroup top has 2 of 3 groups"


def test_groups_beyond_the_minimum_start_after_the_oldest() -> None:
    old, young = ({"creationTimestamp": f"2026-01-0{day}T00:00:00Z"} for day in (1, 2))
    found = read(named(top=composite(gang=1), a=leaf("top", **young), b=leaf("top", **old)))
    assert (found.unit_of("b").key, found.unit_of("b").leaves) == (TOP, {"b": 2})
    assert (found.unit_of("a").key, found.unit_of("a").awaits) == ((LEAF, "a"), TOP)


def test_groups_of_a_basic_root_are_independent() -> None:
    found = read(named(top=composite(), a=leaf("top"), inner=composite("top", gang=1), b=leaf("inner")))
    assert [(found.unit_of(name).key, found.unit_of(name).awaits) for name in "ab"] == [
        ((LEAF, "a"), None),
        ((COMPOSITE, "inner"), None),
    ]


def test_a_basic_composite_that_others_need_begins_with_one_group() -> None:
    found = read(
        named(top=composite(gang=1), inner=composite("top"), a=leaf("inner", gang=None), b=leaf("inner"))
    )
    assert found.units[TOP].leaves == {"a": 1}
    assert found.unit_of("b").awaits == TOP


def test_one_label_above_all_groups_is_that_of_the_unit() -> None:
    found = read(
        named(top=composite(gang=2, key="zone"), a=leaf("top"), b=leaf("top", key="zone"), c=leaf("top"))
    )
    unit = found.unit_of("a")
    assert (unit.domain, unit.problem, unit.inherited) == ("zone", "", False)
    later = found.unit_of("c")
    assert (later.domain, later.inherited, later.awaits) == ("zone", True, TOP)


def test_a_basic_root_with_a_topology_begins_with_one_group() -> None:
    found = read(named(top=composite(key="zone"), a=leaf("top"), b=leaf("top")))
    assert found.unit_of("a").key == TOP
    assert (found.unit_of("b").awaits, found.unit_of("b").inherited) == (TOP, True)


@pytest.mark.parametrize(
    ("top", "first"), [("zone", "rack"), ("", "rack")], ids=["two labels", "of one group only"]
)
def test_other_labels_within_a_unit_are_one_sentence(top: str, first: str) -> None:
    unit = read(named(top=composite(gang=2, key=top), a=leaf("top", key=first), b=leaf("top"))).unit_of("a")
    with pytest.raises(InvalidGang, match=r"spec\.schedulingConstraints\.topology of its groups.*rack"):
        COMPOSITE_POD_GROUPS.read((), unit)


def test_a_root_that_does_not_exist_keeps_all_its_groups_together() -> None:
    found = read(named(a=leaf("top"), b=leaf("top")))
    assert (found.unit_of("a").leaves, found.unit_of("a").metadata) == ({"a": 2, "b": 2}, None)


def test_a_circle_of_parents_is_one_sentence() -> None:
    found = read(named(top=composite("other", gang=1), other=composite("top", gang=1), a=leaf("other")))
    assert "back to it: create one of them without a parent" in found.unit_of("a").problem


def test_more_levels_than_the_scheduler_reads_are_one_sentence() -> None:
    levels = {"top": composite(gang=1), "b": composite("top", gang=1), "c": composite("b", gang=1)}
    assert read(named(**levels, leaf=leaf("c"))).unit_of("leaf").problem == ""
    found = read(named(**levels, d=composite("c", gang=1), leaf=leaf("d")))
    assert "CompositePodGroup d: it is below 3 others" in found.unit_of("leaf").problem


def test_a_tree_of_very_many_groups_is_one_sentence() -> None:
    groups = {f"g{number}": leaf("top") for number in range(MOST_GROUPS + 1)}
    found = read(named(top=composite(gang=1), **groups))
    assert found.unit_of("g7").problem == "its tree has more than 1000 groups: make several of it"


def test_a_number_that_is_missing_names_its_group() -> None:
    broken = read_object(COMPOSITE_POD_GROUPS, {"schedulingPolicy": {"gang": {}}})
    assert "spec.schedulingPolicy.gang.minGroupCount is missing" in read({TOP: broken}).units[TOP].problem
    gang = read_object(
        NATIVE_POD_GROUPS, {"schedulingPolicy": {"gang": {}}, "parentCompositePodGroupName": "top"}
    )
    found = read({**named(top=composite(gang=1)), (LEAF, "a"): gang})
    assert found.unit_of("a").problem.startswith("PodGroup a: spec.schedulingPolicy.gang.minCount is missing")


def test_a_unit_of_too_many_pods_is_one_sentence() -> None:
    found = read(named(top=composite(gang=2), a=leaf("top", gang=max_pods()), b=leaf("top", gang=max_pods())))
    with pytest.raises(InvalidGang, match="it asks for .* pods: at most"):
        COMPOSITE_POD_GROUPS.read((), found.unit_of("a"))
