"""Moldable requests: with how many of its slots a job can start now, if it may start with fewer.

A job of ``size`` slots that takes ``duration`` with all of them is planned for ``duration * size / slots``
with fewer: its work is the same, and divided among fewer. So a smaller start needs less room for longer, and
whether it fits is not monotone in its size. But a longer window never has more room. So with the room that
the window of one size has, the next size to try is known: sizes between the two need longer windows, in which
there is no more. The first size that has its own room is the largest that fits, and so the one that ends
first.

Moldable are requests of one kind of slot, or of nodes that are alike, without groups below levels of the
topology.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from fluxqueue.api.moldable import molded_duration
from fluxqueue.fluxion.graph.jobs import GraphPlacement
from fluxqueue.fluxion.graph.vertices import NODE
from fluxqueue.fluxion.match.jobspec import SLOT, Count, Jobspec, Resource

__all__ = ["Molded", "Molder"]

_MAX_VARIANTS = 256
_MOST_TRIES = 64

Place = Callable[[Jobspec, int], GraphPlacement | None]
"""Places a request for a duration in seconds, from now on."""


@dataclass(frozen=True, slots=True)
class Molded:
    """A start with some of the slots."""

    slots: int
    duration_s: int
    placement: GraphPlacement


class Molder:
    """Finds the largest start with fewer slots than requested."""

    def __init__(self) -> None:
        self._variants: WeakKeyDictionary[Jobspec, dict[Count, Jobspec]] = WeakKeyDictionary()

    def size(self, jobspec: Jobspec) -> int:
        """Return the number of slots, or of nodes, of a request that is moldable; 0 if it is not."""
        if any(need.groups > 1 for need in jobspec.level_needs):
            return 0
        parts = (jobspec.inner or jobspec).resources
        if (
            len(parts) != 1
            or parts[0].type not in (SLOT, NODE)
            or not all(level.count.fixed for level in parts[0].walk())
        ):
            return 0
        inside = parts[0].children
        return (
            0
            if parts[0].type == NODE and (len(inside) != 1 or inside[0].type != SLOT)
            else parts[0].count.low
        )

    def with_slots(self, jobspec: Jobspec, least: int, most: int) -> Jobspec:
        """Return the same request for another number of slots."""
        variants, count = self._variants.setdefault(jobspec, {}), Count(least, most)
        known = variants.get(count)
        if known is None:
            if len(variants) >= _MAX_VARIANTS:
                variants.clear()
            inner = jobspec.inner and _resized(jobspec.inner, count)
            known = variants[count] = replace(jobspec, inner=inner) if inner else _resized(jobspec, count)
        return known

    def start(self, jobspec: Jobspec, least: int, duration_s: int, place: Place) -> Molded | None:
        """Return the largest start with fewer slots than requested, and at least ``least``;
        None if there is none.
        """
        size = self.size(jobspec)
        slots = size - 1
        for _ in range(_MOST_TRIES):
            if not 0 < least <= slots:
                break
            length = molded_duration(duration_s, size, slots)
            found = self._most(jobspec, least, slots, length, place)
            if found is None:
                break
            slots, asked = found[0], slots
            if slots == asked:
                return Molded(slots, length, found[1])
        return None

    def _most(
        self, jobspec: Jobspec, least: int, most: int, length: int, place: Place
    ) -> tuple[int, GraphPlacement] | None:
        """Return the largest number of slots, in these bounds, that fits a window of this length,
        with its placement.
        """
        if not jobspec.level_needs and not jobspec.domains:
            placement = place(self.with_slots(jobspec, least, most), length)
            return None if placement is None else (_placed(jobspec, placement), placement)
        best: tuple[int, GraphPlacement] | None = None
        tried = most
        while least <= most:
            placement = place(self.with_slots(jobspec, tried, tried), length)
            if placement is None:
                most = tried - 1
            else:
                best, least = (tried, placement), tried + 1
            tried = (least + most) // 2
        return best


def _resized(jobspec: Jobspec, count: Count) -> Jobspec:
    return replace(jobspec, resources=(replace(jobspec.resources[0], count=count),))


def _placed(jobspec: Jobspec, placement: GraphPlacement) -> int:
    """Return how many slots, or nodes of slots, a placement has."""
    part: Resource = jobspec.resources[0]
    slots = sum(each.count for each in placement.slots)
    return slots if part.type == SLOT else slots // part.children[0].count.low
