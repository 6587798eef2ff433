"""Leaves of one type below one parent, as a pool.

A node may have a thousand cores, pod slots and pieces of memory. None of them is an object. A leaf is a bit
of a `LeafRun`. What is free, taken or down is an integer used as a set of bits. Name and size of a leaf
follow from its position. Leaves are ordered by ascending id, so the lowest free leaves are the lowest bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fluxqueue.fluxion.graph.jobs import GraphJob
    from fluxqueue.fluxion.graph.vertices import Vertex

__all__ = ["LeafRun", "bits", "highest", "lowest"]


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lowest(mask: int, count: int) -> int:
    """Return the lowest ``count`` set bits of a mask that has that many;
    neighbouring bits are taken together.
    """
    if count == mask.bit_count():
        return mask
    taken = 0
    while count:
        block = mask & ~(mask + (mask & -mask))
        if (length := block.bit_count()) > count:
            start = (block & -block).bit_length() - 1
            return taken | ((1 << count) - 1) << start
        taken |= block
        mask ^= block
        count -= length
    return taken


def highest(mask: int, count: int) -> int:
    """Return the highest ``count`` set bits of a mask that has that many;
    neighbouring bits are taken together.
    """
    if count == mask.bit_count():
        return mask
    taken = 0
    while count:
        top = mask.bit_length()
        gap = (((1 << top) - 1) ^ mask).bit_length()
        if (length := top - gap) > count:
            return taken | ((1 << count) - 1) << (top - count)
        block = ((1 << length) - 1) << gap
        taken |= block
        mask ^= block
        count -= length
    return taken


def _ascending(numbers: Sequence[int]) -> bool:
    return isinstance(numbers, range) or all(a < b for a, b in pairwise(numbers))


class LeafRun:
    """All leaves of one type below one parent, by ascending id.

    Attributes
    ----------
    ids, uniq_ids, ranks
        One entry per leaf; ranges where they are consecutive.
    size
        Size of every leaf but those in ``odd_sizes``.
    names, paths
        Names that do not follow from basename and id, and paths that do not follow from the parent's path and
        the name.
    regular, monotone
        True if ids, and unique ids, are strictly ascending.
    order, position
        Leaves in the order of their edges (None: by id), and the position of the run among the parent's
        entries (-1: scattered).
    full, down, void
        Sets of leaves: all leaves, those marked down, and those of size 0, which can never be taken.
    busy
        Union of ``allocated``. The sets of reservations are separate (``reserved``), because they lie in the
        future.
    """

    __slots__ = (
        "allocated",
        "basename",
        "basenames",
        "busy",
        "down",
        "full",
        "ids",
        "monotone",
        "names",
        "odd_sizes",
        "order",
        "parent",
        "paths",
        "position",
        "properties",
        "ranks",
        "regular",
        "reserved",
        "shared",
        "size",
        "type",
        "uniq_ids",
        "void",
    )

    def __init__(
        self,
        type_: str,
        basename: str,
        parent: Vertex,
        ids: Sequence[int],
        uniq_ids: Sequence[int],
        rank: int | Sequence[int],
        size: int,
    ) -> None:
        self.type = type_
        self.basename = basename
        self.parent = parent
        self.ids = ids
        self.uniq_ids = uniq_ids
        self.ranks = rank
        self.size = size
        self.odd_sizes: dict[int, int] = {}
        self.basenames: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.paths: dict[int, str] = {}
        self.properties: dict[int, Mapping[str, str]] = {}
        self.order: Sequence[int] | None = None
        self.position = 0
        self.regular = _ascending(ids)
        self.monotone = _ascending(uniq_ids)
        self.full = (1 << len(ids)) - 1
        self.down = 0
        self.void = 0
        self.busy = 0
        self.allocated: dict[GraphJob, int] = {}
        self.reserved: dict[GraphJob, int] = {}
        self.shared: dict[GraphJob, int] = {}

    def __len__(self) -> int:
        return self.full.bit_count()

    @property
    def total(self) -> int:
        """Sum of the sizes of all leaves."""
        return self.amount(self.full)

    def amount(self, mask: int) -> int:
        """Return the sum of the sizes of these leaves."""
        total = mask.bit_count() * self.size
        for index, size in self.odd_sizes.items():
            if mask >> index & 1:
                total += size - self.size
        return total

    def size_of(self, index: int) -> int:
        """Return the size of one leaf."""
        return self.odd_sizes.get(index, self.size)

    def name_of(self, index: int) -> str:
        """Return the name of one leaf."""
        return self.names.get(index) or f"{self.basename}{self.ids[index]}"

    def path_of(self, index: int) -> str:
        """Return the containment path of one leaf."""
        return self.paths.get(index) or f"{self.parent.path}/{self.name_of(index)}"

    def rank_of(self, index: int) -> int:
        """Return the rank of one leaf."""
        return self.ranks if isinstance(self.ranks, int) else self.ranks[index]

    def in_order(self, mask: int) -> Iterator[int]:
        """Yield these leaves in the order of their edges."""
        if self.order is None:
            return bits(mask)
        return (index for index in self.order if mask >> index & 1)

    def taken(self, start: int, end: int, now: int) -> int:
        """Return the leaves that some job holds exclusively at any time of [start, end).

        An allocation that nobody has cancelled holds its leaves beyond its end, at least until now.
        """
        if start <= now:
            mask = self.busy
        else:
            mask = 0
            for job, leaves in self.allocated.items():
                if job.end > start:
                    mask |= leaves
        for job, leaves in self.reserved.items():
            if job.start < end and job.end > start:
                mask |= leaves
        return mask

    def visited(self, start: int, end: int, now: int) -> int:
        """Return the leaves that some job shares at any time of [start, end)."""
        mask = 0
        for job, leaves in self.shared.items():
            if job.overlaps(start, end, now):
                mask |= leaves
        return mask

    def held(self) -> int:
        """Return the leaves that any job holds, now or later."""
        mask = self.busy
        for holders in (self.reserved, self.shared):
            for leaves in holders.values():
                mask |= leaves
        return mask

    def book(self, job: GraphJob, mask: int, *, shared: bool = False) -> None:
        """Add leaves to what a job holds."""
        if shared:
            self.shared[job] = self.shared.get(job, 0) | mask
        elif job.reserved:
            self.reserved[job] = self.reserved.get(job, 0) | mask
        else:
            self.allocated[job] = self.allocated.get(job, 0) | mask
            self.busy |= mask

    def free(self, job: GraphJob, mask: int) -> None:
        """Remove leaves from what a job holds."""
        for holders in (self.allocated, self.reserved, self.shared):
            held = holders.get(job)
            if held is None:
                continue
            if left := held & ~mask:
                holders[job] = left
            else:
                del holders[job]
            if holders is self.allocated:
                self.busy &= ~(held & mask)
