"""What our matcher reads beyond RFC 31: numbers in labels, and tolerations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fluxqueue.api.graphnames import taint_property
from fluxqueue.api.nodes import Taint
from fluxqueue.api.taints import PRESSURES
from fluxqueue.fluxion.graph.constraints import Constraint, InvalidConstraint, NodeSubject, in_rfc31, read_constraint

DISK = PRESSURES["DiskPressure"]


def compiled(document: dict[str, Any]) -> Constraint:
    read = read_constraint(document)
    assert read is not None
    return read


def accepts(document: dict[str, Any], **properties: str) -> bool:
    return compiled(document).accepts(NodeSubject("n1", properties))


def tainted(*taints: Taint) -> NodeSubject:
    return NodeSubject("n1", {"disk": "ssd", **{taint_property(taint): "" for taint in taints}})


def a_taint(key: str, effect: str = "NoSchedule", value: str = "") -> Taint:
    return Taint(key=key, value=value, effect=effect)


@pytest.mark.parametrize(
    ("value", "more_than_four", "less_than_four"),
    [("5", True, False), ("4", False, False), ("3", False, True), ("-7", False, True), ("+5", True, False), ("05", True, False)]
    + [(text, False, False) for text in ("", "five", "4.5", " 5", "1_0", "\u0665", str(2**63), "0x10")],
)
def test_a_label_is_compared_as_the_whole_number_that_it_is(value: str, more_than_four: bool, less_than_four: bool) -> None:
    assert accepts({"greater": ["cores", "4"]}, cores=value) is more_than_four
    assert accepts({"less": ["cores", "4"]}, cores=value) is less_than_four


def test_a_node_without_the_label_is_neither_greater_nor_less() -> None:
    assert not accepts({"greater": ["cores", "-4"]}, disk="ssd")
    assert not accepts({"less": ["cores", "4"]}, disk="ssd")
    assert accepts({"not": [{"less": ["cores", "4"]}]}, disk="ssd")


@pytest.mark.parametrize("operands", [[], ["cores"], ["cores", "four"], ["cores", "4", "5"], ["", "4"], ["cores", str(-(2**63) - 1)]])
def test_a_comparison_needs_a_label_and_one_whole_number(operands: list[str]) -> None:
    with pytest.raises(InvalidConstraint, match=r"constraints\.greater: a label and one whole number"):
        read_constraint({"greater": [*operands]})


@pytest.mark.parametrize(
    ("tolerated", "taints", "admitted"),
    [
        ([], [], True),
        ([], [a_taint("gpu")], False),
        ([], [a_taint("busy", "PreferNoSchedule")], True),
        (["gpu:"], [a_taint("gpu", value="yes")], True),
        (["gpu=yes:"], [a_taint("gpu", value="no")], False),
        (["gpu:"], [a_taint("gpu"), a_taint("gpu", "NoExecute")], True),
        (["gpu:NoSchedule"], [a_taint("gpu"), a_taint("gpu", "NoExecute")], False),
        (["gpu:"], [a_taint("gpu"), a_taint("spot")], False),
        (["gpu:", ":NoSchedule"], [a_taint("gpu"), a_taint("spot")], True),
    ],
)
def test_a_node_is_admitted_if_each_hard_taint_is_tolerated(tolerated: list[str], taints: list[Taint], admitted: bool) -> None:
    assert compiled({"tolerates": [*tolerated]}).accepts(tainted(*taints)) is admitted


def test_a_text_that_is_no_toleration_is_refused() -> None:
    with pytest.raises(InvalidConstraint, match=r"constraints\.tolerates: 'gpu' is no toleration"):
        read_constraint({"tolerates": ["gpu"]})


def test_pressure_is_tolerated_where_it_is_asked_whether_a_request_could_ever_fit() -> None:
    asked = compiled({"and": [{"properties": ["disk"]}, {"not": [{"not": [{"tolerates": []}]}]}]})
    assert not asked.accepts(tainted(DISK))
    assert asked.lasting.accepts(tainted(DISK))
    assert not asked.lasting.accepts(tainted(DISK, a_taint("gpu")))
    plain = compiled({"properties": ["disk"]})
    assert plain.lasting is plain


def test_for_people_a_constraint_names_the_taints_that_are_not_tolerated() -> None:
    taints = [a_taint("spot"), a_taint("gpu", value="yes"), a_taint("busy", "PreferNoSchedule")]
    shunned = {"not": [{"properties": ["taint:spot=:NoSchedule"]}]}
    assert in_rfc31(compiled({"tolerates": ["gpu:"]}), taints) == shunned
    assert in_rfc31(compiled({"tolerates": ["gpu:"]}), taints[1:]) == {}
    both = {"and": [{"properties": ["disk"]}, {"tolerates": ["gpu:"]}]}
    assert in_rfc31(compiled(both), taints) == {"and": [{"properties": ["disk"]}, shunned]}
    assert in_rfc31(compiled(both), taints[1:]) == {"properties": ["disk"]}
    named = in_rfc31(compiled({"tolerates": []}), [a_taint(f"t{number}") for number in range(100)])
    assert len(json.dumps(named)) < 1_200


def test_a_property_has_one_of_several_values() -> None:
    either = {"in": ["zone", "a", "b"]}
    assert [accepts(either, zone=zone) for zone in ("a", "b", "c")] == [True, True, False]
    assert not accepts(either, disk="ssd")
    assert accepts({"not": [either]}, disk="ssd")
    for operands in ([], ["zone"], ["", "a"]):
        with pytest.raises(InvalidConstraint, match=r"constraints\.in: a label and at least one value"):
            read_constraint({"in": [*operands]})
