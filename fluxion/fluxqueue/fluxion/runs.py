"""Leaves of one type below one parent, as a pool.

A node may have a thousand cores, pod slots and pieces of memory. None of them is an object: a leaf is a bit of a `LeafRun`, what is
free, taken or down is an integer used as a set, and what a leaf is called or how big it is follows from its position. Leaves stand by
ascending id, so that "the lowest free ones" are the lowest bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fluxqueue.fluxion.graph import Vertex
    from fluxqueue.fluxion.jobs import Job

__all__ = ["LeafRun", "bits", "highest", "lowest"]


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lowest(mask: int, count: int) -> int:
    """The lowest ``count`` set bits of a mask that has that many; neighbours are taken together."""
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
    """The highest ``count`` set bits of a mask that has that many; neighbours are taken together."""
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
        Only those that do not follow from basename and id, from the parent's path and the name.
    regular, monotone
        Whether ids, and unique ids, are strictly ascending.
    order, position
        Leaves in the order of their edges (None: by id), and the position of the run among the parent's entries (-1: scattered).
    full, down, void
        Sets of leaves: all there are, those marked down, those of size 0, which can never be taken.
    busy
        Union of ``allocated``; ``reserved`` are the sets of reservations, kept apart because they lie in the future.
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
        self, type_: str, basename: str, parent: Vertex, ids: Sequence[int], uniq_ids: Sequence[int], rank: int | Sequence[int], size: int
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
        self.allocated: dict[Job, int] = {}
        self.reserved: dict[Job, int] = {}
        self.shared: dict[Job, int] = {}

    def __len__(self) -> int:
        return self.full.bit_count()

    @property
    def total(self) -> int:
        """Sum of all sizes."""
        return self.amount(self.full)

    def amount(self, mask: int) -> int:
        """Sum of the sizes of these leaves."""
        total = mask.bit_count() * self.size
        for index, size in self.odd_sizes.items():
            if mask >> index & 1:
                total += size - self.size
        return total

    def size_of(self, index: int) -> int:
        """Size of one leaf."""
        return self.odd_sizes.get(index, self.size)

    def name_of(self, index: int) -> str:
        """Name of one leaf."""
        return self.names.get(index) or f"{self.basename}{self.ids[index]}"

    def path_of(self, index: int) -> str:
        """Containment path of one leaf."""
        return self.paths.get(index) or f"{self.parent.path}/{self.name_of(index)}"

    def rank_of(self, index: int) -> int:
        """Rank of one leaf."""
        return self.ranks if isinstance(self.ranks, int) else self.ranks[index]

    def in_order(self, mask: int) -> Iterator[int]:
        """These leaves in the order of their edges."""
        if self.order is None:
            return bits(mask)
        return (index for index in self.order if mask >> index & 1)

    def taken(self, start: int, end: int, now: int) -> int:
        """Leaves that some job holds exclusively at any moment of [start, end).

        An allocation that nobody has cancelled holds its leaves beyond its end, until now at least.
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
        """Leaves that some job shares at any moment of [start, end)."""
        mask = 0
        for job, leaves in self.shared.items():
            if job.overlaps(start, end, now):
                mask |= leaves
        return mask

    def held(self) -> int:
        """Leaves that any job has, now or later."""
        mask = self.busy
        for holders in (self.reserved, self.shared):
            for leaves in holders.values():
                mask |= leaves
        return mask

    def book(self, job: Job, mask: int, *, shared: bool = False) -> None:
        """Give leaves to a job, on top of what it has."""
        if shared:
            self.shared[job] = self.shared.get(job, 0) | mask
        elif job.reserved:
            self.reserved[job] = self.reserved.get(job, 0) | mask
        else:
            self.allocated[job] = self.allocated.get(job, 0) | mask
            self.busy |= mask

    def free(self, job: Job, mask: int) -> None:
        """Take leaves from a job."""
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
