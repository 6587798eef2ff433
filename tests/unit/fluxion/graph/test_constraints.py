"""What our matcher reads beyond RFC 31: numbers in labels."""

from __future__ import annotations

from typing import Any

import pytest

from fluxqueue.fluxion.graph.constraints import InvalidConstraint, NodeSubject, read_constraint


def accepts(constraint: dict[str, Any], **properties: str) -> bool:
    read = read_constraint(constraint)
    assert read is not None
    return read.accepts(NodeSubject("n1", properties))


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
