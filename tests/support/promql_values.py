"""Computes the alerts' queries over a few samples: selectors, aggregations, comparisons, ``and``, ``or`` and
arithmetic.

A function over a range is not computed: `Sample.over` says what it gives for a series.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import promql_parser

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
}
_COMPUTE: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_AGGREGATE: Mapping[str, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max, "min": min}


@dataclass(frozen=True)
class Sample:
    """A series and its value now; `over` has what functions over a range give for it, by their name."""

    name: str
    value: float = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    over: Mapping[str, float] = field(default_factory=dict)


def fires(query: str, samples: Sequence[Sample], now: float = 0) -> bool:
    """True if an alert with this query has a result."""
    found = _value(promql_parser.parse(query), samples, now)
    assert isinstance(found, dict), "an alert is a vector"
    return bool(found)


def _value(node: Any, samples: Sequence[Sample], now: float) -> Vector | float:
    match node:
        case promql_parser.NumberLiteral():
            return float(node.val)
        case promql_parser.ParenExpr():
            return _value(node.expr, samples, now)
        case promql_parser.VectorSelector():
            return {_labels(each): each.value for each in _selected(node, samples)}
        case promql_parser.AggregateExpr():
            return _aggregated(node, samples, now)
        case promql_parser.Call():
            return _called(node, samples, now)
        case promql_parser.BinaryExpr():
            return _combined(str(node.op), _value(node.lhs, samples, now), _value(node.rhs, samples, now))
    raise NotImplementedError(type(node).__name__)


def _selected(selector: Any, samples: Sequence[Sample]) -> list[Sample]:
    return [
        each
        for each in samples
        if each.name == selector.name and all(_matches(m, each) for m in selector.matchers.matchers)
    ]


def _matches(matcher: Any, sample: Sample) -> bool:
    value, wanted = sample.labels.get(str(matcher.name), ""), str(matcher.value)
    match str(matcher.op):
        case "MatchOp.Equal":
            return value == wanted
        case "MatchOp.NotEqual":
            return value != wanted
        case "MatchOp.Re":
            return re.fullmatch(wanted, value) is not None
    raise NotImplementedError(str(matcher.op))


def _labels(sample: Sample) -> Labels:
    return frozenset(sample.labels.items())


def _called(node: Any, samples: Sequence[Sample], now: float) -> Vector | float:
    name = node.func.name
    if name == "time":
        return now
    if name == "vector":
        scalar = _value(node.args[0], samples, now)
        assert isinstance(scalar, float)
        return {frozenset(): scalar}
    (ranged,) = node.args
    return {
        _labels(each): each.over[name]
        for each in _selected(ranged.vector_selector, samples)
        if name in each.over
    }


def _aggregated(node: Any, samples: Sequence[Sample], now: float) -> Vector:
    found = _value(node.expr, samples, now)
    assert isinstance(found, dict)
    kept = set(map(str, node.modifier.labels)) if node.modifier is not None else set()
    groups: dict[Labels, list[float]] = {}
    for labels, value in found.items():
        groups.setdefault(frozenset(pair for pair in labels if pair[0] in kept), []).append(value)
    return {labels: _AGGREGATE[str(node.op)](values) for labels, values in groups.items()}


def _combined(op: str, left: Vector | float, right: Vector | float) -> Vector | float:
    if op == "and":
        assert isinstance(left, dict)
        assert isinstance(right, dict)
        return {labels: value for labels, value in left.items() if labels in right}
    if op == "or":
        assert isinstance(left, dict)
        assert isinstance(right, dict)
        return {**right, **left}
    if isinstance(left, float) and isinstance(right, float):
        return _COMPUTE[op](left, right)
    pairs = _pairs(left, right)
    if op in _COMPARE:
        return {labels: one for labels, (one, other) in pairs.items() if _COMPARE[op](one, other)}
    return {labels: _COMPUTE[op](one, other) for labels, (one, other) in pairs.items()}


def _pairs(left: Vector | float, right: Vector | float) -> dict[Labels, tuple[float, float]]:
    if isinstance(left, dict) and isinstance(right, dict):
        return {labels: (value, right[labels]) for labels, value in left.items() if labels in right}
    if isinstance(left, dict):
        assert isinstance(right, float)
        return {labels: (value, right) for labels, value in left.items()}
    assert isinstance(right, dict)
    return {labels: (left, value) for labels, value in right.items()}
