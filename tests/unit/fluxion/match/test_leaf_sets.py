"""Leaf sets: the arithmetic on bits agrees with taking leaves one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fluxqueue.fluxion.graph.pools import LeafRun, bits, highest, lowest
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.leaf_sets import count_leaf_sets, leaf_sets, take_leaf_sets


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
def test_leaf_sets_are_the_shortest_sequences_of_free_leaves(
    count: int, size: int, odd: dict[int, int], pattern: int, each: int, descending: bool
) -> None:
    run = run_of(count, size, odd)
    free = run.full & pattern
    expected = one_by_one(run, free, each, descending)
    assert list(leaf_sets(run, free, each, descending=descending)) == expected
    assert count_leaf_sets(run, free, each, descending=descending) == len(expected)
    for number in range(1, len(expected) + 1):
        together = 0
        for bundle in expected[:number]:
            together |= bundle
        assert take_leaf_sets(run, free, each, number, descending=descending) == together


@given(st.integers(0, 1 << 70), st.data())
def test_lowest_and_highest_return_the_outermost_bits(mask: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, mask.bit_count()))
    positions = list(bits(mask))
    assert list(bits(lowest(mask, count))) == positions[:count]
    assert list(bits(highest(mask, count))) == positions[len(positions) - count :]
