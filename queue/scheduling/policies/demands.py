"""What a workload asks for, as far as two requests can be compared without the matcher.

Requests of one *family* differ only in the number of slots (or nodes) and the duration. Within a family fitting is monotone: if a request
does not fit, then no request for as many or more slots and as long or longer fits. So one refusal of the matcher holds for a part of the
queue, and a pass over a hundred thousand workloads asks a few hundred questions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from fluxqueue.fluxion.match.levels import GROUP, PREFERRED
from fluxqueue.queue.model.jobspecs import MIN_PODS
from fluxqueue.queue.model.moldable import started_pods
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.remembered import remembered

__all__ = ["FOREVER_S", "Demand", "amounts_of", "demand_of", "held_amounts", "known_amounts"]

FOREVER_S = 1 << 40
"""Duration of work without an end: longer than any other."""
_LARGEST = 1 << 62
"""Largest figure in a column."""
_LONGEST = 512
"""Of a family that is kept as it is: each waiting workload with other rules is a family of its own."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A family and a number of slots.

    Attributes
    ----------
    family
        The request without its count and its duration, as canonical JSON; a digest of it if that is long.
    count
        Slots, or nodes.
    """

    family: str
    count: int


def demand_of(jobspec: str) -> Demand:
    """Return the demand of a jobspec.

    Jobspecs whose only top-level resource has a plain count share a family if they differ in that count alone. Labelled levels with one
    vertex above that resource do not change that. Moldable work is a family of its own for each least number of pods: what
    is refused with all of them may fit with fewer. Any other jobspec is a family of its own.

    Parameters
    ----------
    jobspec
        RFC 14 jobspec as JSON. Text that is not a JSON object is a family of its own; the matcher refuses it with a reason.
    """
    try:
        spec = orjson.loads(jobspec)
        resources = spec["resources"]
        system = dict(spec.get("attributes", {}).get("system", {}))
        system.pop("duration", None)
        least = spec.get("attributes", {}).get("user", {}).get(MIN_PODS)
        levels = []
        while (
            len(resources) == 1 and resources[0].get("count") == 1 and len(resources[0].get("with") or ()) == 1 and _labelled(resources[0])
        ):
            levels.append([resources[0]["type"], resources[0]["label"]])
            resources = resources[0]["with"]
        count = 1
        if len(resources) == 1 and isinstance(resources[0].get("count"), int):
            count = min(resources[0]["count"], _LARGEST)
            resources = [{**resources[0], "count": 1}]
        if levels:
            resources = [levels, *resources]
        if least:
            system = {**system, MIN_PODS: least}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError):
        return Demand(_short(jobspec.encode()), 1)
    return Demand(_short(orjson.dumps([resources, system], option=orjson.OPT_SORT_KEYS)), count)


def _short(text: bytes) -> str:
    return text.decode() if len(text) <= _LONGEST else hashlib.sha256(text).hexdigest()


def _labelled(resource: Mapping[str, Any]) -> bool:
    """True if it is a level of the topology with one vertex: more below it is harder to fit."""
    return resource.get("label") in (GROUP, PREFERRED) and resource.get("type") != "slot"


def amounts_of(jobspec: str) -> Mapping[str, int]:
    """Return all that a jobspec requests, as requested and not rounded to vertices; nothing if it cannot be read.

    Returns
    -------
    Mapping
        Resource type of the graph -> millicores, MiB or pieces.
    """
    amounts: Counter[str] = Counter()
    try:
        for resource in orjson.loads(jobspec).get("resources") or ():
            _add(amounts, resource, 1)
    except (orjson.JSONDecodeError, TypeError, AttributeError, ValueError):
        return {}
    return {kind: min(amount, _LARGEST) for kind, amount in amounts.items()}


known_amounts = remembered(16_384)(amounts_of)
"""`amounts_of`, remembered."""


def held_amounts(workload: Workload) -> Mapping[str, int]:
    """Return what a workload requests with the pods that it was started with, or with all of them while it waits."""
    amounts, pods = known_amounts(workload.jobspec), started_pods(workload)
    return amounts if pods == workload.pods else {kind: amount * pods // workload.pods for kind, amount in amounts.items()}


def _add(amounts: Counter[str], resource: Mapping[str, Any], times: int) -> None:
    """Add a resource that occurs this many times: its own count, or those of its members."""
    count = times * int(resource.get("count", 1))
    members = resource.get("with")
    if members:
        for member in members:
            _add(amounts, member, count)
    else:
        amounts[str(resource.get("type"))] += count
