"""Rows of a backlog that are not refused yet, found in order.

A refusal closes all later rows of whole classes: those with the same family, count and duration. There are
some hundred classes and a hundred thousand rows. So a refusal is stored by class, as the row from which on
the class is closed, and a row is checked only when a pass reaches it. A pass moves forward, so it reads each
row about once, whatever the number of refusals.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fluxqueue.queue.scheduling.policies.growing_rows import Column

__all__ = ["Mask", "OpenRows"]

Mask = npt.NDArray[np.bool_]

_FIRST_PIECE = 64
_LARGEST_PIECE = 8_192


class OpenRows:
    """The open rows of a backlog. All are open at first, and none opens again.

    Parameters
    ----------
    classes
        Class of each row; must not change.
    class_total
        Number of classes. Every class is below it.
    """

    def __init__(self, classes: Column, class_total: int) -> None:
        self._classes = classes
        self._closed_from: Column = np.full(class_total, len(classes), dtype=np.int64)
        self._kept: Mask | None = None
        self._answer: tuple[int, int | None] | None = None

    def copy(self) -> OpenRows:
        """Return the same rows, to be closed independently."""
        other = OpenRows(self._classes, 0)
        other._closed_from = self._closed_from.copy()
        other._kept = None if self._kept is None else self._kept.copy()
        return other

    def __getitem__(self, row: int) -> bool:
        return row < int(self._closed_from[self._classes[row]]) and (
            self._kept is None or bool(self._kept[row])
        )

    def close(self, classes: Column, first: int) -> None:
        """Close all rows of these classes from a row on."""
        self._closed_from[classes] = np.minimum(self._closed_from[classes], first)

    def close_each(self, classes: Column, firsts: Column) -> None:
        """Close all rows of each of these classes, which may be named several times,
        from a row of its own on.
        """
        np.minimum.at(self._closed_from, classes, firsts)

    def close_row(self, row: int) -> None:
        """Close one row."""
        self._mask()[row] = False

    def keep(self, kept: Mask) -> None:
        """Close all rows but these."""
        mask = self._mask()
        mask &= kept

    def next(self, position: int) -> int | None:
        """Return the first open row from a position on; None if there is none."""
        asked = position
        if self._answer is not None and self._answer[0] <= position:
            asked, known = self._answer
            if known is None:
                return None
            if position > known:
                asked = position
            position = max(position, known)  # rows before the known one are closed, and none opens again
        row = self._search(position)
        self._answer = asked, row
        return row

    def _search(self, position: int) -> int | None:
        size, piece = len(self._classes), _FIRST_PIECE
        while position < size:
            behind = min(position + piece, size)
            open_ = self._closed_from[self._classes[position:behind]] > np.arange(position, behind)
            if self._kept is not None:
                open_ &= self._kept[position:behind]
            at = int(np.argmax(open_))
            if open_[at]:
                return position + at
            position, piece = behind, min(2 * piece, _LARGEST_PIECE)
        return None

    def _mask(self) -> Mask:
        if self._kept is None:
            self._kept = np.ones(len(self._classes), dtype=np.bool_)
        return self._kept
