"""Whole leaves that together come to an amount, as sets of bits.

Every policy by id takes leaves from one end of a run. A bundle is the shortest stretch of free leaves from that end whose sizes come to
the amount, the next bundle follows behind it. Where all leaves have one size that is a count of bits; a last leaf of another size (the
remainder of a pool) is looked at for itself, any other mixture leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluxqueue.fluxion.runs import LeafRun, bits, highest, lowest

__all__ = ["bundles", "shares", "take"]


def bundles(run: LeafRun, free: int, each: int, *, descending: bool) -> Iterator[int]:
    """Disjoint bundles of free leaves, each of at least an amount, in the policy's order.

    Parameters
    ----------
    free
        Leaves that may be used, none of size 0.
    each
        Amount, at least 1.
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
        bundle = odd | ends_take(plain, rest)
        yield bundle
        plain &= ~bundle
    while plain.bit_count() >= per:
        bundle = ends_take(plain, per)
        yield bundle
        plain ^= bundle
    if odd and not descending and run.amount(plain | odd) >= each:
        yield plain | odd


def _one_by_one(run: LeafRun, free: int, each: int, *, descending: bool) -> Iterator[int]:
    bundle = size = 0
    order = list(bits(free))
    for index in reversed(order) if descending else order:
        bundle |= 1 << index
        size += run.size_of(index)
        if size >= each:
            yield bundle
            bundle = size = 0


def shares(run: LeafRun, free: int, each: int, *, descending: bool) -> int:
    """How many bundles there are."""
    per = -(-each // run.size)
    odd = _odd_end(run, free)
    if odd is None:
        return sum(1 for _ in bundles(run, free, each, descending=descending))
    leaves = free.bit_count()
    if odd < 0:
        return leaves // per
    plain, last = leaves - 1, run.size_of(odd)
    if descending:
        rest = -(-max(0, each - last) // run.size)
        return 0 if plain < rest else 1 + (plain - rest) // per
    return plain // per + (plain % per * run.size + last >= each)


def take(run: LeafRun, free: int, each: int, count: int, *, descending: bool) -> int:
    """Leaves of the first so many bundles."""
    per = -(-each // run.size)
    odd = _odd_end(run, free)
    if odd is None:
        mask = 0
        for number, bundle in enumerate(bundles(run, free, each, descending=descending)):
            if number == count:
                break
            mask |= bundle
        return mask
    if odd < 0:
        return highest(free, count * per) if descending else lowest(free, count * per)
    plain = free & ~(1 << odd)
    if descending:
        rest = -(-max(0, each - run.size_of(odd)) // run.size)
        return 1 << odd | highest(plain, rest + (count - 1) * per)
    return lowest(plain, count * per) if count * per <= plain.bit_count() else free


def _odd_end(run: LeafRun, free: int) -> int | None:
    """The one free leaf of another size, if it is the last; -1 if there is none, None if they are mixed."""
    found = -1
    for index in run.odd_sizes:
        if free >> index & 1:
            if found >= 0 or index != free.bit_length() - 1:
                return None
            found = index
    return found
