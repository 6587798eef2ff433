"""Placement of the slots of a request by domains (`fluxqueue.fluxion.match.domains`).

Slots are placed cell by cell. A cell is a set of nodes that are alike for all rules. Nested domains (hosts in
zones) are filled without loss, because each cell takes as many slots as it may have. Where domains cross, or
pods are of several sizes, a request may be answered as one that does not fit now although another order would
fit. A placement always keeps the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

from fluxqueue.fluxion.graph.jobs import GraphPlacement
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.domains import AtMost, DomainRule, Skew, Together
from fluxqueue.fluxion.match.jobspec import Count, Resource

__all__ = ["PlacePart", "domain_of", "place_by_domains"]

_TRIALS = 64
"""Distributions over the domains that are tried for one request."""
_ANY = 1 << 40

PlacePart = Callable[[Resource, Collection[Vertex], GraphPlacement], GraphPlacement | None]
"""Places as many of a part as its count allows on these nodes, in addition to what was placed already."""


def domain_of(node: Vertex, key: str) -> str | None:
    """Return the domain of a key that a node belongs to; None if it has no such property."""
    return node.properties.get(key) if key else node.name


def place_by_domains(
    rules: Sequence[DomainRule], parts: Sequence[Resource], nodes: Sequence[Vertex], place: PlacePart
) -> GraphPlacement | None:
    """Place all parts so that the rules are kept; None if no placement was found.

    Parameters
    ----------
    rules
        For all slots of the request together.
    parts
        Slots, or nodes with one slot each, of plain counts; the first are placed first.
    nodes
        Nodes that may be used, the preferred first.
    place
        Places one part.
    """
    keys = tuple(dict.fromkeys(key for rule in rules if isinstance(rule, Together) for key in rule.keys))
    limiting = [rule for rule in rules if isinstance(rule, AtMost | Skew)]
    wanted = sum(part.count.low for part in parts)
    for group in _cells(nodes, keys).items():
        if None in group[0]:
            continue
        ways = product(*(_limits(rule, wanted) for rule in limiting))
        for limits in islice(ways, _TRIALS):
            if (placement := _Filling(parts, limits, place).over(group[1])) is not None:
                return placement
    return None


def _cells(nodes: Sequence[Vertex], keys: Sequence[str]) -> Mapping[tuple[str | None, ...], list[Vertex]]:
    cells: dict[tuple[str | None, ...], list[Vertex]] = {}
    for node in nodes:
        cells.setdefault(tuple(domain_of(node, key) for key in keys), []).append(node)
    return cells


@dataclass(frozen=True, slots=True)
class _Limit:
    """Number of slots of a domain: at least, for the domains listed;
    at most, with a number for all others.
    """

    key: str
    others: int
    required: bool
    most: Mapping[str, int] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)


def _limits(rule: AtMost | Skew, wanted: int) -> Iterator[_Limit]:
    """Yield every way to keep a rule by limits alone:
    one for each level to which the least filled domain may rise.
    """
    if isinstance(rule, AtMost):
        yield _Limit(rule.key, rule.most, required=False)
        return
    counts = dict(rule.counts)
    start = 0 if rule.zero else min(counts.values(), default=0)
    for level in range(start, start + 1 if rule.zero else start + wanted + 1):
        least = {name: level - count for name, count in counts.items() if count < level}
        if sum(least.values()) > wanted:
            return
        most = {name: max(0, level + rule.skew - count) for name, count in counts.items()}
        if sum(most.values()) >= wanted:
            yield _Limit(rule.key, 0, required=True, most=most, least=least)


class _Filling:
    """One attempt to place everything within limits."""

    def __init__(self, parts: Sequence[Resource], limits: Sequence[_Limit], place: PlacePart) -> None:
        self._left = [(part, part.count.low) for part in parts]
        self._limits = limits
        self._place = place
        self._used: list[Counter[str | None]] = [Counter() for _ in limits]
        self._found = GraphPlacement()

    def over(self, nodes: Sequence[Vertex]) -> GraphPlacement | None:
        """Fill these nodes: first what each domain must have, then the rest."""
        cells = _cells(nodes, [limit.key for limit in self._limits])
        for number, limit in enumerate(self._limits):
            for value, least in limit.least.items():
                for domains, members in cells.items():
                    if domains[number] == value and (short := least - self._used[number][value]) > 0:
                        self._take(domains, members, short)
                if self._used[number][value] < least:
                    return None
        for domains, members in cells.items():
            if self._left:
                self._take(domains, members, sum(count for _, count in self._left))
        return None if self._left else self._found

    def _take(self, domains: tuple[str | None, ...], members: Collection[Vertex], wanted: int) -> None:
        wanted = min(wanted, self._room(domains))
        members = frozenset(members)
        left: list[tuple[Resource, int]] = []
        for part, count in self._left:
            taken = 0
            if wanted > 0:
                asked = replace(part, count=Count(1, min(wanted, count)))
                if (placed := self._place(asked, members, self._found)) is not None:
                    taken = sum(slot.count for slot in placed.slots)
                    self._found.join(placed)
            wanted -= taken
            if count > taken:
                left.append((part, count - taken))
            for used, value in zip(self._used, domains, strict=True):
                used[value] += taken
        self._left = left

    def _room(self, domains: tuple[str | None, ...]) -> int:
        rooms = []
        for limit, used, value in zip(self._limits, self._used, domains, strict=True):
            if value is not None:
                rooms.append(limit.most.get(value, limit.others) - used[value])
            elif limit.required:
                return 0
        return min(rooms, default=_ANY)
