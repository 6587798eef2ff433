"""The metrics and labels that a PromQL query reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import promql_parser

_FOR_A_TIME = {"$__rate_interval": "5m", "$__interval": "1m"}
_BRANCHES = ("lhs", "rhs", "expr", "param", "args", "vector_selector")


@dataclass
class Query:
    """What a query reads: metrics with the values it asks for by label, and the labels that it groups by,
    with the metrics below.
    """

    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    grouped: list[tuple[frozenset[str], frozenset[str]]] = field(default_factory=list)


def read_query(text: str) -> Query:
    """Parse a query; Grafana's variables stand for a duration or a text.

    Raises
    ------
    ValueError
        It is no PromQL.
    """
    for variable, value in _FOR_A_TIME.items():
        text = text.replace(variable, value)
    query = Query()
    for node in _nodes(promql_parser.parse(re.sub(r"\$\w+", "x", text))):
        if isinstance(node, promql_parser.VectorSelector):
            query.asked.append(
                (str(node.name), {str(each.name): str(each.value) for each in node.matchers.matchers})
            )
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            below = frozenset(
                str(each.name) for each in _nodes(node) if isinstance(each, promql_parser.VectorSelector)
            )
            query.grouped.append((frozenset(map(str, node.modifier.labels)), below))
    return query


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for name in _BRANCHES:
        found = getattr(node, name, None)
        for each in found if isinstance(found, list) else [found]:
            if each is not None:
                yield from _nodes(each)
