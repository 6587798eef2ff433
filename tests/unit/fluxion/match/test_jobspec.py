"""Jobspecs are read, and texts that are no jobspec are refused."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from support.fluxion_builders import jobspec, nodes, slot

from fluxqueue.fluxion.documents import MAX_TEXT
from fluxqueue.fluxion.match.jobspec import Count, InvalidJobspec, read_jobspec

TASKS = [{"command": ["app"], "slot": "w", "count": {"per_slot": 1}}]


def whole(**changes: Any) -> str:
    document = json.loads(jobspec(nodes(1, slot(1, core=1))))
    document.update(changes)
    return json.dumps({key: value for key, value in document.items() if value is not ...})


def system(**attributes: Any) -> dict[str, Any]:
    return {"attributes": {"system": attributes}}


def test_yaml_and_json_read_the_same() -> None:
    text = """
version: 9999
resources:
- type: node
  count: "2"
  with:
  - {type: slot, count: 1, label: w, with: [{type: core, count: {min: 2, max: 8, operator: "*", operand: 2}}]}
tasks: []
attributes: {system: {duration: 1.5}}
"""
    read = read_jobspec(text)
    same = jobspec(nodes(2, slot(1, core={"min": 2, "max": 8, "operator": "*", "operand": 2})), duration=1.5)
    assert read.resources == read_jobspec(same).resources
    assert read.duration_s == 2


@pytest.mark.parametrize(
    ("count", "available", "taken"),
    [
        (Count(3, 3), 5, 3),
        (Count(3, 3), 2, 0),
        (Count(0, 0), 9, 0),
        (Count(2, 7, "+", 2), 9, 6),
        (Count(2, 7, "+", 2), 5, 4),
        (Count(2, 20, "*", 3), 100, 18),
        (Count(2, 300, "^", 2), 256, 256),
        (Count(2, 300, "^", 2), 255, 16),
        (Count(1, (1 << 32) - 1), 1 << 40, (1 << 32) - 1),
    ],
)
def test_a_range_takes_the_largest_allowed_number_there_is(count: Count, available: int, taken: int) -> None:
    assert count.qualify(available) == taken


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (whole(version=10_000), "version: 10000"),
        (whole(tasks=...), "key tasks is missing"),
        (whole(extra=1), "unknown key 'extra'"),
        (whole(resources=[]), "resources: the list is empty"),
        (whole(resources={}), "resources: a list"),
        (whole(resources=[{"type": "node", "count": 1, "requires": 1}]), "unknown key 'requires'"),
        (whole(resources=[{"type": "slot", "count": 1}]), "a slot needs the key label"),
        (whole(resources=[{"type": "node", "count": 1.5}]), "resources[0].count: a whole number"),
        (whole(resources=[{"type": "node", "count": -1}]), "resources[0].count: -1"),
        (whole(resources=[{"type": "node", "count": "1-3"}]), "resources[0].count: a whole number"),
        (whole(resources=[{"type": "node", "count": 10**12}]), "resources[0].count: 1000000000000"),
        (
            whole(resources=[nodes({"min": 1, "max": 4, "operator": "+", "operand": 0})]),
            "operand: operator + needs at least 1",
        ),
        (
            whole(resources=[nodes({"min": 1, "max": 4, "operator": "^", "operand": 2})]),
            "min: operator ^ needs at least 2",
        ),
        (
            whole(resources=[nodes({"min": 3, "max": 2, "operator": "+", "operand": 1})]),
            "max: 2 is less than min 3",
        ),
        (whole(resources=[nodes({"max": 2})]), "key min is missing"),
        (whole(tasks=[{"command": ["a"], "slot": "w"}]), "tasks[0]: key count is missing"),
        (whole(attributes=[]), "attributes: a map"),
        (whole(**system(duration=-1)), "duration: -1"),
        (whole(**system(duration="1h")), "duration: a number of seconds"),
        (whole(**system(duration=None)), "duration: a number of seconds"),
        (whole(**system(duration=3_153_600_001)), "duration: 3153600001"),
        (whole(**system(duration=1)).replace('"duration": 1', '"duration": NaN'), "duration"),
        (whole(**system(constraints={"properties": "a"})), "constraints.properties: a list"),
        (whole(**system(constraints={"properties": [1]})), "constraints.properties: 1 is not quoted text"),
        (whole(**system(constraints={"and": [], "or": []})), "one operator"),
        (whole(**system(constraints={"near": []})), "'near' is no operator"),
        (whole(**system(constraints={"ranks": ["3-1"]})), "constraints.ranks"),
        ("", "a map"),
        ("{]", "neither JSON nor YAML"),
        ("a: &a [*a]", "alias 'a' is inside its own anchor"),
        ("--- 1\n--- 2", "several documents"),
    ],
)
def test_an_invalid_jobspec_is_refused_with_the_key(text: str, said: str) -> None:
    with pytest.raises(InvalidJobspec) as refusal:
        read_jobspec(text)
    assert said in str(refusal.value)


def bomb() -> str:
    inner = "{type: core, count: 1}"
    for level in range(25):
        inner = f"{{type: t{level}, count: 1, with: [&y{level} {inner}, *y{level}]}}"
    return f"{{version: 1, attributes: , tasks: [], resources: [{inner}]}}"


@pytest.mark.parametrize(
    "text",
    [
        "x" * 200_000_000,
        "[" * MAX_TEXT,
        '{"a":' * 100_000,
        "- " * 200_000,
        bomb(),
        whole(resources=[slot(1, **dict.fromkeys([f"t{number}" for number in range(20_000)], 1))]),
        whole(**system(constraints={"hostlist": ["n[0-999999]"]})),
        whole(version=1).replace('"version": 1', '"version": ' + "9" * 400_000),
    ],
    ids=["200 MB", "deep", "deep JSON", "deep YAML", "aliases", "wide", "hosts", "digits"],
)
def test_expensive_jobspecs_are_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidJobspec):
        read_jobspec(text)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "attributes", [None, {}, {"system": None}, {"system": {"queue": "q", "other": 1}}, {"user": {"a": 1}}]
)
def test_attributes_may_be_empty(attributes: Any) -> None:
    assert read_jobspec(whole(attributes=attributes)).duration_s == 0
