"""What a workload asks for, as far as two requests can be compared without the matcher.

Requests of one *family* differ only in the number of slots (or nodes) and the duration. Within a family
fitting is monotone: if a request does not fit, then no request for as many or more slots and as long or
longer fits. So one refusal of the matcher holds for a part of the queue, and a pass over a hundred thousand
workloads asks a few hundred questions.

Families of one *group* differ only in what a slot has of each resource. Fitting is monotone in these amounts
too. So is a queue of ten thousand different requests answered by some hundred questions.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import orjson

from fluxqueue.fluxion.match.jobspec import SLOT
from fluxqueue.fluxion.match.levels import GROUP, PREFERRED
from fluxqueue.queue.model.given_back import given_ranks
from fluxqueue.queue.model.jobspecs import MIN_PODS, slots_in
from fluxqueue.queue.model.moldable import is_moldable, started_pods
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.remembered import remembered

__all__ = ["FOREVER_S", "Demand", "amounts_of", "demand_of", "held_amounts", "interned", "known_amounts"]

_Amounts = TypeVar("_Amounts", bound=tuple[Any, ...])

FOREVER_S = 1 << 40
"""Duration of work without an end: longer than any other."""
_LARGEST = 1 << 62
"""Largest figure in a column."""
_GROUPED = frozenset({"constraints", "reservation", "flavors"})
"""Attributes that a request in a group may have."""
_DIGEST_BYTES = 16
"""Each waiting workload with other rules is a family, and a group, of its own: their texts are not kept."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A family and a number of slots.

    Attributes
    ----------
    family
        Digest of the request without its count and its duration.
    count
        Slots, or nodes.
    group
        The family without the amounts of a slot, likewise; empty for a family that is alone, since more may
        fit where less does not.
    amounts
        What a slot has of each resource, in the order of the group.
    """

    family: str
    count: int
    group: str = ""
    amounts: tuple[int, ...] = ()


def demand_of(jobspec: str) -> Demand:
    """Return the demand of a jobspec.

    Jobspecs whose only top-level resource has a plain count share a family if they differ in that count
    alone. Labelled levels with one vertex above that resource do not change that. Moldable work is a family
    of its own for each least number of pods: what is refused with all of them may fit with fewer. Any other
    jobspec is a family of its own.

    Families of plain slots, on any nodes or each on a node, share a group. Rules about nodes that slots
    share, levels, and rules about other pods keep a family alone: there, the matcher may find a place for
    more and not for less.

    Parameters
    ----------
    jobspec
        RFC 14 jobspec as JSON. Text that is not a JSON object is a family of its own; the matcher refuses it
        with a reason.
    """
    try:
        spec = orjson.loads(jobspec)
        resources = spec["resources"]
        system = dict(spec.get("attributes", {}).get("system", {}))
        system.pop("duration", None)
        least = spec.get("attributes", {}).get("user", {}).get(MIN_PODS)
        levels = []
        while (
            len(resources) == 1
            and resources[0].get("count") == 1
            and len(resources[0].get("with") or ()) == 1
            and _labelled(resources[0])
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
        return Demand(_digest(jobspec.encode()), 1)
    family = _text([resources, system])
    plain = None if levels or least or not _GROUPED.issuperset(system) else _without_amounts(resources)
    return (
        Demand(family, count)
        if plain is None
        else Demand(family, count, _text([plain[0], system]), interned(plain[1]))
    )


def _without_amounts(resources: Sequence[Any]) -> tuple[list[dict[str, Any]], tuple[int, ...]] | None:
    """Return the only slot of a request, and the node above it, without amounts, and the amounts;
    None if it has another form.
    """
    top = resources[0] if len(resources) == 1 and isinstance(resources[0], dict) else {}
    members = top.get("with")
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        return None
    if top.get("type") == "node":
        below = _without_amounts(members) if members and members[0].get("type") == SLOT else None
        return None if below is None else ([{**top, "with": below[0]}], below[1])
    amounts = [member.get("count") for member in members]
    plain = top.get("type") == SLOT and not any("with" in member for member in members)
    if (
        not plain
        or not amounts
        or not all(type(amount) is int and 0 < amount <= _LARGEST for amount in amounts)
    ):
        return None
    return [{**top, "with": [{**member, "count": 1} for member in members]}], tuple(amounts)


@lru_cache(maxsize=4_096)
def interned(amounts: _Amounts) -> _Amounts:
    """Return equal amounts as one value: a backlog has many shapes that request the same of other nodes or
    for another duration.
    """
    return amounts


def _text(parts: list[Any]) -> str:
    return _digest(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS))


def _digest(text: bytes) -> str:
    """Return the one copy of the digest of a text: all who keep a demand as long as its work waits share
    it.
    """
    return sys.intern(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest())


def _labelled(resource: Mapping[str, Any]) -> bool:
    """True if it is a level of the topology with one vertex: more below it is harder to fit."""
    return resource.get("label") in (GROUP, PREFERRED) and resource.get("type") != SLOT


def amounts_of(jobspec: str) -> Mapping[str, int]:
    """Return all that a jobspec requests, as requested and not rounded to vertices; nothing if it cannot be
    read.

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
    """Return what a workload requests with the pods that it was started with and did not give back,
    or with all of them while it waits.
    """
    amounts, pods = known_amounts(workload.jobspec), started_pods(workload)
    if pods == workload.pods or not amounts:
        return amounts
    if is_moldable(workload):  # its pods are alike
        return {kind: amount * pods // workload.pods for kind, amount in amounts.items()}
    left, first, given = Counter(amounts), 0, given_ranks(workload)
    for _, count, members in slots_in(workload.jobspec):
        gone = sum(first <= rank < first + count for rank in given)
        left.subtract({kind: amount * gone for kind, amount in members.items()})
        first += count
    return left


def _add(amounts: Counter[str], resource: Mapping[str, Any], times: int) -> None:
    """Add a resource that occurs this many times: its own count, or those of its members."""
    count = times * int(resource.get("count", 1))
    members = resource.get("with")
    if members:
        for member in members:
            _add(amounts, member, count)
    else:
        amounts[sys.intern(str(resource.get("type")))] += count
