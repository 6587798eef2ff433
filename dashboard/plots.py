"""Plots as values: bars with their places, which a template draws. No plot needs a script."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fluxqueue.cli.tables import age

__all__ = ["Column", "Plot", "histogram", "series"]

WIDTH: Final = 520.0
HEIGHT: Final = 160.0
_GAP: Final = 0.15
_TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Column:
    """A bar with its label below, and its value in words."""

    x: float
    y: float
    width: float
    height: float
    label: str
    value: str
    late: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with its title, its bars, and the values of its vertical axis with their heights."""

    title: str
    columns: tuple[Column, ...]
    axis: tuple[tuple[float, str], ...]
    note: str = ""

    @property
    def words(self) -> str:
        """All values in one line, for who cannot see the plot."""
        return f"{self.title}: {'; '.join(f'{column.label}: {column.value}' for column in self.columns)}"


def histogram(title: str, values: Sequence[float], edges: Sequence[float], *, signed: bool = False) -> Plot:
    """Count durations between edges.

    Parameters
    ----------
    title
        Of the plot.
    values
        Seconds.
    edges
        In ascending order; values below the first and from the last on have bars of their own.
    signed
        True if values below zero are earlier, and values from zero on later, than something.
    """
    counts = [0] * (len(edges) + 1)
    for value in values:
        counts[bisect.bisect_right(edges, value)] += 1
    labels = [f"< {_edge(edges[0])}", *(f"{_edge(low)} to {_edge(high)}" for low, high in itertools.pairwise(edges))]
    labels.append(f"{_edge(edges[-1])} and more")
    late = [signed and (index > 0 and edges[index - 1] >= 0) for index in range(len(counts))]
    middle = f"median {_edge(sorted(values)[len(values) // 2])}" if values else "nothing to count"
    return _plot(title, labels, [float(count) for count in counts], [str(count) for count in counts], late, middle)


def series(title: str, points: Sequence[tuple[str, float]], unit: str, note: str = "") -> Plot:
    """Draw one value for each label, such as a day."""
    words = [f"{value:.4g} {unit}" for _, value in points]
    return _plot(title, [label for label, _ in points], [value for _, value in points], words, [False] * len(points), note)


def _plot(title: str, labels: Sequence[str], values: Sequence[float], words: Sequence[str], late: Sequence[bool], note: str) -> Plot:
    top = _top(max(values, default=0.0))
    step = WIDTH / max(len(values), 1)
    columns = []
    for index, value in enumerate(values):
        height = HEIGHT * max(value, 0.0) / top
        x, width = step * (index + _GAP / 2), step * (1 - _GAP)
        columns.append(
            Column(round(x, 1), round(HEIGHT - height, 1), round(width, 1), round(height, 1), labels[index], words[index], late[index])
        )
    axis = tuple((round(HEIGHT - HEIGHT * number / _TICKS, 1), f"{top * number / _TICKS:.4g}") for number in range(_TICKS + 1))
    return Plot(title, tuple(columns), axis, note)


def _top(largest: float) -> float:
    """Return a round number that is not less than the largest value."""
    if not math.isfinite(largest) or largest <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(largest))
    return next(size * factor for factor in (1, 2, 4, 5, 8, 10, 20) if size * factor >= largest)


def _edge(seconds: float) -> str:
    return f"-{age(-seconds)}" if seconds < 0 else age(seconds)
