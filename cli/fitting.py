"""Tables that fit a terminal: empty columns vanish, and long cells are cut until no line wraps.

Only a terminal has a width. What is piped to another program is complete, unless ``COLUMNS`` is set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

__all__ = ["Narrowing", "fitted", "line_width", "without_empty"]

_GAP = 3
_CUT = "+"
Table = tuple[list[str], list[list[str]]]
"""Titles, and cells."""


@dataclass(frozen=True)
class Narrowing:
    """How a table is made narrower, step by step until it fits:
    a column is cut to a width, or dropped (0).
    """

    steps: tuple[tuple[str, int], ...]


def line_width(stream: TextIO, environ: Mapping[str, str] | None = None) -> int | None:
    """Return how wide a line may be; None if the stream is no terminal and ``COLUMNS`` is not set."""
    env = os.environ if environ is None else environ
    if (columns := env.get("COLUMNS", "")).isdigit() and int(columns) > 0:
        return int(columns)
    return shutil.get_terminal_size().columns if stream.isatty() else None


def without_empty(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without the columns that have no text."""
    kept = [at for at in range(len(headers)) if not rows or any(row[at] for row in rows)]
    return [headers[at] for at in kept], [[row[at] for at in kept] for row in rows]


def fitted(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, narrowing: Narrowing
) -> Table:
    """Return a table that is at most so wide.

    Parameters
    ----------
    headers, rows
        Titles and cells.
    width
        Of a line; None: the table is returned as it is.
    narrowing
        What becomes narrower first. If all of it is not enough, the last column is cut further.
    """
    table = list(headers), [list(row) for row in rows]
    if width is None:
        return table
    for title, least in narrowing.steps:
        over = _width(table) - width
        if over <= 0:
            return table
        if title in table[0]:
            table = _narrower(table, table[0].index(title), over, least)
    over = _width(table) - width
    return _narrower(table, len(table[0]) - 1, over, 1) if over > 0 and table[0] else table


def _width(table: Table) -> int:
    return sum(_widths(table)) + _GAP * (len(table[0]) - 1)


def _widths(table: Table) -> list[int]:
    headers, rows = table
    return [
        max(len(headers[at]), *(len(row[at]) for row in rows), 1) if rows else len(headers[at])
        for at in range(len(headers))
    ]


def _narrower(table: Table, at: int, over: int, least: int) -> Table:
    headers, rows = table
    if not least:
        return headers[:at] + headers[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]
    limit = max(_widths(table)[at] - over, least)
    cut = [text if len(text) <= limit else f"{text[: limit - 1]}{_CUT}" for text in (row[at] for row in rows)]
    titles = [*headers[:at], headers[at][:limit], *headers[at + 1 :]]
    return titles, [[*row[:at], text, *row[at + 1 :]] for row, text in zip(rows, cut, strict=True)]
