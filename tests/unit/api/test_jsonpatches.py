"""Differences as JSON Patches: applied by another implementation, they make the new value of the old."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.json_patches import apply_patch

from fluxqueue.api.jsonpatches import difference

keys = st.sampled_from(["name", "a/b", "c~d", "e"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(values, values)
def test_any_value_becomes_any_other(old: Any, new: Any) -> None:
    operations = json.loads(msgspec.json.encode(difference("/spec", old, new)))
    assert apply_patch({"spec": old}, operations) == {"spec": new}


def test_equal_values_differ_in_nothing() -> None:
    assert difference("/spec", {"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) == []


def test_what_grew_is_added_and_nothing_else_is_named() -> None:
    old = {"containers": [{"name": "app", "new": 1}], "volumes": [{"name": "a"}]}
    new = {
        "containers": [{"name": "init"}, {"name": "app", "new": 1, "probe": {}}],
        "volumes": [{"name": "a"}, {"name": "b"}],
    }
    assert [(each.op, each.path) for each in difference("/spec", old, new)] == [
        ("add", "/spec/containers/0"),
        ("add", "/spec/containers/1/probe"),
        ("add", "/spec/volumes/-"),
    ]
