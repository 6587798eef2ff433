"""The kinds of requests in a backlog, as columns, and which of them ask for at least as much as a refused
one.

A kind is a family, a number of slots and a duration. A refusal holds for those kinds of its family, and of
its group (`fluxqueue.queue.scheduling.policies.demands`), that ask for as much or more of everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fluxqueue.queue.scheduling.policies.growing_rows import Column

__all__ = ["ALONE", "Kind", "RequestKinds", "SlotSize"]

Kind = tuple[int, int, int]
"""Family, number of slots, and duration (`FOREVER_S` if there is none)."""
SlotSize = tuple[int, tuple[int, ...]]
"""Number of a group, and what a slot has of each resource, in the order of the group."""
ALONE: SlotSize = (-1, ())
"""Of a family that is in no group."""


@dataclass(frozen=True, slots=True)
class _Members:
    """Kinds, with their figures; of a group also what a slot has, one row for each resource."""

    numbers: Column
    counts: Column
    durations: Column
    amounts: Column


class RequestKinds:
    """All kinds of a backlog.

    Parameters
    ----------
    columns
        Family, number of slots, duration, and group of the family (that of `ALONE` if it is in none) of all
        kinds; a kind is named by its place here.
    sizes
        Slots of the families that are in a group.

    Attributes
    ----------
    families, counts, durations
        By kind.
    """

    def __init__(self, columns: Column, sizes: Mapping[int, SlotSize]) -> None:
        self.families, self.counts, self.durations, self._groups = columns
        self._sizes = sizes
        self._of_family = _ByValue(self.families)
        self._of_group: _ByValue | None = None
        self._members: dict[int, _Members] = {}

    def of_family(self, family: int, count: int, duration: int) -> Column:
        """Return the kinds of a family that ask for at least so many slots for at least so long."""
        numbers = self._of_family.places(family)
        larger: Column = numbers[(self.counts[numbers] >= count) & (self.durations[numbers] >= duration)]
        return larger

    def alone(self, families: Column) -> Column:
        """Return the only kind of each of these families, if it has one only, and is the only family of its
        group, if it is in one: a refusal of it holds for no other kind. It is -1 for all others.
        """
        known, kinds = self._alone
        if not len(known):
            return np.full_like(families, -1)
        places = np.minimum(np.searchsorted(known, families), len(known) - 1)
        found: Column = np.where(known[places] == families, kinds[places], -1)
        return found

    @cached_property
    def _alone(self) -> tuple[Column, Column]:
        """Those families, ascending, and their kinds."""
        families, firsts, kinds = np.unique(self.families, return_index=True, return_counts=True)
        _, places, members = np.unique(self._groups[firsts], return_inverse=True, return_counts=True)
        single = (kinds == 1) & ((self._groups[firsts] == ALONE[0]) | (members[places] == 1))
        return families[single], firsts[single]

    def group_of(self, family: int) -> int | None:
        """Return the group of a family; None if it is alone."""
        size = self._sizes.get(family)
        return None if size is None else size[0]

    def of_group(self, family: int, count: int, duration: int) -> Column:
        """Return the kinds of the group of a family that do, and that ask for as much or more of everything
        in a slot.
        """
        group, least = self._sizes[family]
        members = self._of(group, len(least))
        wanted = (members.counts >= count) & (members.durations >= duration)
        for amount, amounts in zip(least, members.amounts, strict=True):
            wanted &= amounts >= amount
        return members.numbers[wanted]

    def _of(self, group: int, resources: int) -> _Members:
        members = self._members.get(group)
        if members is None:
            if self._of_group is None:
                self._of_group = _ByValue(self._groups)
            numbers = self._of_group.places(group)
            sizes = [self._sizes[family][1] for family in self.families[numbers].tolist()]
            amounts: Column = np.array(sizes, dtype=np.int64).reshape(len(numbers), resources).T.copy()
            members = _Members(numbers, self.counts[numbers], self.durations[numbers], amounts)
            if len(numbers) > _FEW:
                self._members[group] = members
        return members


_FEW = 8
"""Members of a group that are not kept: of very many small groups, the columns would take half a kilobyte
each."""


class _ByValue:
    """The places of each value in a column."""

    def __init__(self, column: Column) -> None:
        self._order: Column = np.argsort(column, kind="stable")
        self._values, firsts = np.unique(column[self._order], return_index=True)
        self._firsts = np.append(firsts, len(column))

    def places(self, value: int) -> Column:
        """Return the places of a value, ascending."""
        at = int(np.searchsorted(self._values, value))
        known = at < len(self._values) and self._values[at] == value
        found: Column = self._order[self._firsts[at] : self._firsts[at + 1]] if known else self._order[:0]
        return found
