"""Rows of whole numbers that are added one by one and read as columns.

A cycle reads the kinds and the refusals of a hundred thousand workloads. Of a list of tuples, columns take
0.02 s to make; here a row that is added costs what it costs, and reading nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Column", "GrowingRows"]

Column = npt.NDArray[np.int64]
_FIRST_CAPACITY = 64


class GrowingRows:
    """A table that grows at its end.

    Parameters
    ----------
    width
        Numbers in a row.
    rows
        The first rows.
    """

    def __init__(self, width: int, rows: Iterable[Sequence[int]] = ()) -> None:
        self._table = np.zeros((width, _FIRST_CAPACITY), dtype=np.int64)
        self._size = 0
        for row in rows:
            self.append(row)

    def __len__(self) -> int:
        return self._size

    @property
    def columns(self) -> Column:
        """All rows, by column; they must not be written, and rows that come later are not among them."""
        return self._table[:, : self._size]

    def append(self, row: Sequence[int]) -> None:
        """Add a row."""
        if self._size == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.zeros_like(self._table)], axis=1)
        self._table[:, self._size] = row
        self._size += 1

    def clear(self) -> None:
        """Remove all rows."""
        self._size = 0
