"""Flavors as jobspecs state them."""

from __future__ import annotations

from typing import Any

import pytest

from fluxqueue.fluxion.match.flavors import Flavor, InvalidFlavors, admitting_any, read_flavors

SPOT: dict[str, Any] = {"name": "spot", "wait": 600, "labels": ["type=spot"]}


def test_flavors_are_read_in_their_order() -> None:
    own: dict[str, Any] = {"name": "own", "wait": 0, "labels": ["type=own", "zone=a"]}
    assert read_flavors([own, SPOT]) == (
        Flavor("own", 0, ("type=own", "zone=a")),
        Flavor("spot", 600, ("type=spot",)),
    )
    assert read_flavors(None) == ()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "flavors: a list of at most 64"),
        ([{"name": "spot"}], r"flavors\[0\]: a map of name, wait and labels"),
        ([SPOT, {**SPOT, "name": 1}], r"flavors\[1\].name: text"),
        ([{**SPOT, "wait": -1}], r"flavors\[0\].wait: a whole number from 0"),
        ([{**SPOT, "wait": True}], r"flavors\[0\].wait: a whole number from 0"),
        ([{**SPOT, "labels": []}], r"flavors\[0\].labels: a list of 1 to 64"),
        ([{**SPOT, "labels": [1]}], r"flavors\[0\].labels: text"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_with_the_place(value: Any, problem: str) -> None:
    with pytest.raises(InvalidFlavors, match=problem):
        read_flavors(value)


def test_a_constraint_keeps_to_the_nodes_of_any_flavor() -> None:
    own, spot = Flavor("own", 0, ("type=own",)), Flavor("spot", 0, ("type=spot",))
    base: dict[str, Any] = {"properties": ["arch=amd64"]}
    either = {"or": [{"properties": ["type=own"]}, {"properties": ["type=spot"]}]}
    assert admitting_any(base, []) == base
    assert admitting_any(None, [own]) == {"properties": ["type=own"]}
    assert admitting_any(base, [own, spot]) == {"and": [base, either]}
