"""What a workload asks for, so far as the order of two requests can be told without the matcher.

Requests of one *family* differ only in how many slots (or nodes) they want and for how long. Within a family asking is monotone: if so
many do not fit for so long, then neither do as many or more for as long or longer. One refusal of the matcher therefore answers for a
part of the queue, and a pass over a hundred thousand workloads asks a few hundred questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

__all__ = ["FOREVER_S", "Demand", "demand_of", "millicores_of"]

FOREVER_S = 1 << 40
"""Stands for the duration of work without an end: longer than any other."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A family and how many of it.

    Attributes
    ----------
    family
        The request without its count and its duration, as canonical JSON.
    count
        Slots, or nodes, wanted.
    """

    family: str
    count: int


def demand_of(jobspec: str) -> Demand:
    """Read the demand out of a jobspec.

    A jobspec whose only top-level resource has a plain count is of a family with all that differ in it; any other is a family of its own.

    Parameters
    ----------
    jobspec
        RFC 14 jobspec as JSON. What is no JSON object is a family of its own: the matcher will refuse it with a reason.
    """
    try:
        spec = orjson.loads(jobspec)
        resources = spec["resources"]
        system = dict(spec.get("attributes", {}).get("system", {}))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError):
        return Demand(jobspec, 1)
    system.pop("duration", None)
    count = 1
    if len(resources) == 1 and isinstance(resources[0].get("count"), int):
        count = resources[0]["count"]
        resources = [{**resources[0], "count": 1}]
    return Demand(orjson.dumps([resources, system], option=orjson.OPT_SORT_KEYS).decode(), count)


def millicores_of(jobspec: str) -> int:
    """All cpu a jobspec asks for, in millicores, as requested (not rounded to vertices); 0 where it cannot be read."""
    try:
        return sum(_millicores(resource) for resource in orjson.loads(jobspec).get("resources") or ())
    except (orjson.JSONDecodeError, TypeError, AttributeError, ValueError):
        return 0


def _millicores(resource: Mapping[str, Any]) -> int:
    count = int(resource.get("count", 1))
    if resource.get("type") == "cpu":
        return count
    return count * sum(_millicores(member) for member in resource.get("with") or ())
