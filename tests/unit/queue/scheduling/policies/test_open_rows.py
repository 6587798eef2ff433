"""Open rows, closed by class, equal a plain mask of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fluxqueue.queue.scheduling.policies.open_rows import OpenRows

CLASSES = 4
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("close"), st.sets(st.integers(0, CLASSES - 1)), st.integers(0, 300)),
        st.tuples(st.just("close_row"), st.integers(0, 299), st.none()),
        st.tuples(st.just("keep"), st.integers(2, 7), st.none()),
        st.tuples(st.just("next"), st.integers(0, 310), st.none()),
        st.tuples(st.just("copy"), st.none(), st.none()),
    ),
    max_size=30,
)


@given(st.lists(st.integers(0, CLASSES - 1), max_size=300), STEPS)
def test_open_rows_equal_a_mask_with_a_value_for_each_row(
    classes: list[int], steps: list[tuple[str, Any, Any]]
) -> None:
    column = np.array(classes, dtype=np.int64)
    rows, mask = OpenRows(column, CLASSES), np.ones(len(classes), dtype=np.bool_)
    for what, which, first in steps:
        if what == "close":
            rows.close(np.array(sorted(which), dtype=np.int64), first)
            mask[first:] &= ~np.isin(column[first:], list(which))
        elif what == "close_row" and which < len(classes):
            rows.close_row(which)
            mask[which] = False
        elif what == "keep":
            kept = np.arange(len(classes)) % which != 0
            rows.keep(kept)
            mask &= kept
        elif what == "next":
            assert rows.next(which) == next((row for row in range(which, len(classes)) if mask[row]), None)
        elif what == "copy":
            former, rows = rows, rows.copy()
            former.close(np.arange(CLASSES), 0)
    assert [rows[row] for row in range(len(classes))] == mask.tolist()
    for position in range(len(classes) + 2):
        assert rows.next(position) == next((row for row in range(position, len(classes)) if mask[row]), None)
