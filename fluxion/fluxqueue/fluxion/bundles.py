"""Whole leaves that together come to an amount, as sets of bits.

Every policy by id takes leaves from one end of a run. A bundle is the shortest stretch of free leaves from that end whose sizes come to
the amount, the next bundle follows behind it. Where all leaves have one size that is a count of bits; a last leaf of another size (the
remainder of a pool) is looked at for itself, any other mixture leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluxqueue.fluxion.graph import LeafRun, bits, highest, lowest

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
    odd = 0
    for index in run.odd_sizes:
        odd |= 1 << index
    odd &= free
    if odd and (odd.bit_count() > 1 or odd.bit_length() != free.bit_length()):
        yield from _one_by_one(run, free, each, descending=descending)
        return
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
    if not run.odd_sizes:
        return free.bit_count() // -(-each // run.size)
    return sum(1 for _ in bundles(run, free, each, descending=descending))


def take(run: LeafRun, free: int, each: int, count: int, *, descending: bool) -> int:
    """Leaves of the first so many bundles."""
    if not run.odd_sizes:
        leaves = count * -(-each // run.size)
        return highest(free, leaves) if descending else lowest(free, leaves)
    mask = 0
    for number, bundle in enumerate(bundles(run, free, each, descending=descending)):
        if number == count:
            break
        mask |= bundle
    return mask
