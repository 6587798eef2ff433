"""Sets of whole leaves whose sizes add up to an amount, as sets of bits.

Every policy by id takes leaves from one end of a run. A leaf set is the shortest sequence of free leaves from
that end whose sizes add up to the amount; the next set follows it. If all leaves have one size, that is a
count of bits. A last leaf of another size (the remainder of a pool) is treated separately, any other mixture
leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluxqueue.fluxion.graph.pools import LeafRun, bits, highest, lowest

__all__ = ["count_leaf_sets", "leaf_sets", "take_leaf_sets"]


def leaf_sets(run: LeafRun, free: int, each: int, *, descending: bool) -> Iterator[int]:
    """Yield disjoint sets of free leaves, each of at least an amount, in the policy's order.

    Parameters
    ----------
    free
        Leaves that may be used, none of size 0.
    each
        Amount of each set, at least 1.
    """
    ends_take = highest if descending else lowest
    last = _odd_end(run, free)
    if last is None:
        yield from _one_by_one(run, free, each, descending=descending)
        return
    odd = 1 << last if last >= 0 else 0
    per = -(-each // run.size)
    plain = free & ~odd
    if descending and odd:
        rest = -(-max(0, each - run.size_of(odd.bit_length() - 1)) // run.size)
        if plain.bit_count() < rest:
            return
        leaves = odd | ends_take(plain, rest)
        yield leaves
        plain &= ~leaves
    while plain.bit_count() >= per:
        leaves = ends_take(plain, per)
        yield leaves
        plain ^= leaves
    if odd and not descending and run.amount(plain | odd) >= each:
        yield plain | odd


def _one_by_one(run: LeafRun, free: int, each: int, *, descending: bool) -> Iterator[int]:
    leaves = size = 0
    order = list(bits(free))
    for index in reversed(order) if descending else order:
        leaves |= 1 << index
        size += run.size_of(index)
        if size >= each:
            yield leaves
            leaves = size = 0


def count_leaf_sets(run: LeafRun, free: int, each: int, *, descending: bool) -> int:
    """Return the number of leaf sets."""
    per = -(-each // run.size)
    odd = _odd_end(run, free)
    if odd is None:
        return sum(1 for _ in leaf_sets(run, free, each, descending=descending))
    leaves = free.bit_count()
    if odd < 0:
        return leaves // per
    plain, last = leaves - 1, run.size_of(odd)
    if descending:
        rest = -(-max(0, each - last) // run.size)
        return 0 if plain < rest else 1 + (plain - rest) // per
    return plain // per + (plain % per * run.size + last >= each)


def take_leaf_sets(run: LeafRun, free: int, each: int, count: int, *, descending: bool) -> int:
    """Return the leaves of the first ``count`` sets."""
    per = -(-each // run.size)
    odd = _odd_end(run, free)
    if odd is None:
        mask = 0
        for number, leaves in enumerate(leaf_sets(run, free, each, descending=descending)):
            if number == count:
                break
            mask |= leaves
        return mask
    if odd < 0:
        return highest(free, count * per) if descending else lowest(free, count * per)
    plain = free & ~(1 << odd)
    if descending:
        rest = -(-max(0, each - run.size_of(odd)) // run.size)
        return 1 << odd | highest(plain, rest + (count - 1) * per)
    return lowest(plain, count * per) if count * per <= plain.bit_count() else free


def _odd_end(run: LeafRun, free: int) -> int | None:
    """Return the only free leaf of another size, if it is the last;
    -1 if there is none, None if the sizes are mixed.
    """
    odd = -1
    for index in run.odd_sizes:
        if free >> index & 1:
            if odd >= 0 or index != free.bit_length() - 1:
                return None
            odd = index
    return odd
