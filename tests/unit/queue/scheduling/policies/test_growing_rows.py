"""Rows that are added one by one are read as columns, also while more come."""

from __future__ import annotations

from fluxqueue.queue.scheduling.policies.growing_rows import GrowingRows


def test_rows_that_were_added_are_read_as_columns() -> None:
    rows = GrowingRows(2, [(0, 0)])
    before = rows.columns
    for number in range(1, 1_000):
        rows.append((number, -number))
    assert len(rows) == 1_000
    assert rows.columns.tolist() == [[*range(1_000)], [-number for number in range(1_000)]]
    assert before.tolist() == [[0], [0]]


def test_after_they_are_removed_there_are_none() -> None:
    rows = GrowingRows(3, [(1, 2, 3)])
    rows.clear()
    assert not rows
    rows.append((4, 5, 6))
    assert rows.columns.tolist() == [[4], [5], [6]]
