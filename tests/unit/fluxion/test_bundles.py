"""Leaves as bits: the arithmetic agrees with taking them one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fluxqueue.fluxion.bundles import bundles, shares, take
from fluxqueue.fluxion.graph import Vertex
from fluxqueue.fluxion.runs import LeafRun, bits, highest, lowest


def run_of(count: int, size: int, odd: dict[int, int]) -> LeafRun:
    run = LeafRun("cpu", "cpu", Vertex("node", "n", "n", 0, 1), range(count), range(count), -1, size)
    run.odd_sizes = {index: amount for index, amount in odd.items() if index < count and amount != size}
    return run


def one_by_one(run: LeafRun, free: int, each: int, descending: bool) -> list[int]:
    found, bundle, size = [], 0, 0
    for index in sorted(bits(free), reverse=descending):
        bundle |= 1 << index
        size += run.size_of(index)
        if size >= each:
            found.append(bundle)
            bundle = size = 0
    return found


@settings(deadline=None, max_examples=300)
@given(
    st.integers(1, 24),
    st.integers(1, 5),
    st.dictionaries(st.integers(0, 23), st.integers(1, 7), max_size=2),
    st.integers(0, (1 << 24) - 1),
    st.integers(1, 12),
    st.booleans(),
)
def test_bundles_are_the_shortest_stretches_of_free_leaves(
    count: int, size: int, odd: dict[int, int], pattern: int, each: int, descending: bool
) -> None:
    run = run_of(count, size, odd)
    free = run.full & pattern
    expected = one_by_one(run, free, each, descending)
    assert list(bundles(run, free, each, descending=descending)) == expected
    assert shares(run, free, each, descending=descending) == len(expected)
    for number in range(1, len(expected) + 1):
        together = 0
        for bundle in expected[:number]:
            together |= bundle
        assert take(run, free, each, number, descending=descending) == together


@given(st.integers(0, 1 << 70), st.data())
def test_the_lowest_and_highest_bits_are_those(mask: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, mask.bit_count()))
    positions = list(bits(mask))
    assert list(bits(lowest(mask, count))) == positions[:count]
    assert list(bits(highest(mask, count))) == positions[len(positions) - count :]
