"""Which kinds of requests ask for at least as much as another: as columns and one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fluxqueue.queue.scheduling.policies.growing_rows import GrowingRows
from fluxqueue.queue.scheduling.policies.request_kinds import ALONE, Kind, RequestKinds, SlotSize

FAMILIES = 6
SMALL = st.integers(1, 3)


@given(
    st.sets(st.tuples(st.integers(0, FAMILIES - 1), SMALL, SMALL), max_size=30),
    st.dictionaries(st.integers(0, FAMILIES), st.tuples(st.integers(0, 1), st.tuples(SMALL, SMALL))),
    st.tuples(st.integers(0, FAMILIES), SMALL, SMALL),
)
def test_the_kinds_that_ask_for_at_least_as_much_are_found(
    found: set[Kind], sizes: dict[int, SlotSize], least: Kind
) -> None:
    kinds, (family, count, duration) = sorted(found), least
    rows = GrowingRows(4, [(*kind, sizes.get(kind[0], ALONE)[0]) for kind in kinds])
    columns = RequestKinds(rows.columns, sizes)

    def asks_for_more(kind: Kind) -> bool:
        size, other = sizes[family], sizes.get(kind[0])
        return (
            other is not None
            and other[0] == size[0]
            and all(a >= b for a, b in zip(other[1], size[1], strict=True))
        )

    larger = [number for number, each in enumerate(kinds) if each[1] >= count and each[2] >= duration]
    assert sorted(columns.of_family(*least)) == [number for number in larger if kinds[number][0] == family]
    assert (columns.group_of(family) is None) == (family not in sizes)
    if family in sizes:
        assert sorted(columns.of_group(*least)) == [
            number for number in larger if asks_for_more(kinds[number])
        ]
    families = Counter(each[0] for each in kinds)
    groups = Counter(sizes.get(each, ALONE)[0] for each in families)
    alone = {
        each[0]: number
        for number, each in enumerate(kinds)
        if families[each[0]] == 1 and (each[0] not in sizes or groups[sizes[each[0]][0]] == 1)
    }
    asked = range(FAMILIES + 1)
    assert columns.alone(np.array(asked)).tolist() == [alone.get(each, -1) for each in asked]
