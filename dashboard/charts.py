"""Charts as values: what a chart shows, written for the script that draws it (`static/charts.js`) and,
in words, for who cannot see it.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from fluxqueue.cli.tables import age

__all__ = ["Bars", "Chart", "Series", "histogram", "series"]

_EVERY: Final = 24
"""Of a curve with parts of five minutes the list of values has one for each two hours."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name, its values, and their unit."""

    name: str
    values: Sequence[float]
    unit: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over time; ``most``: the end of the vertical axis, None if it follows from the values."""

    name: str
    title: str
    times: Sequence[int]
    series: tuple[Series, ...]
    most: float | None = None

    @property
    def data(self) -> str:
        """What the script draws."""
        lines = [{"name": each.name, "unit": each.unit, "values": list(each.values)} for each in self.series]
        return _json({"kind": "curve", "times": list(self.times), "series": lines, "most": self.most})

    @property
    def words(self) -> str:
        """The chart in one line."""
        parts = [_said(each) for each in self.series if each.values]
        return f"{self.title} over the last day: {'; '.join(parts)}"

    @property
    def samples(self) -> list[tuple[int, list[str]]]:
        """Times and values for a table, one for each two hours."""
        places = range(len(self.times) - 1, -1, -_EVERY)
        return [
            (self.times[at], [f"{each.values[at]:.4g} {each.unit}" for each in self.series]) for at in places
        ]


def _said(each: Series) -> str:
    low, high = min(each.values), max(each.values)
    return f"{each.name} now {each.values[-1]:.4g} {each.unit}, lowest {low:.4g}, highest {high:.4g}"


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar for each label, with its value in words; bars of ``late`` have the colour of what is late."""

    name: str
    title: str
    labels: tuple[str, ...]
    values: tuple[float, ...]
    words_of: tuple[str, ...]
    late: tuple[bool, ...]
    unit: str = ""
    note: str = ""

    @property
    def data(self) -> str:
        """What the script draws."""
        labels = [label.replace(" and more", "+").replace(" to ", "..") for label in self.labels]
        return _json(
            {"kind": "bars", "labels": labels, "values": self.values, "late": self.late, "unit": self.unit}
        )

    @property
    def words(self) -> str:
        """All values in one line, for who cannot see the chart."""
        return f"{self.title}: {'; '.join(f'{label}: {value}' for label, value in self.rows)}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Labels and values in words."""
        return list(zip(self.labels, self.words_of, strict=True))


def histogram(
    name: str, title: str, values: Sequence[float], edges: Sequence[float], *, signed: bool = False
) -> Bars:
    """Count durations between edges.

    Parameters
    ----------
    name, title
        Of the chart.
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
    labels = [
        f"< {_edge(edges[0])}",
        *(f"{_edge(low)} to {_edge(high)}" for low, high in itertools.pairwise(edges)),
    ]
    labels.append(f"{_edge(edges[-1])} and more")
    late = tuple(signed and (index > 0 and edges[index - 1] >= 0) for index in range(len(counts)))
    middle = f"median {_edge(sorted(values)[len(values) // 2])}" if values else "nothing to count"
    words = tuple(f"{count} {'job' if count == 1 else 'jobs'}" for count in counts)
    return Bars(name, title, tuple(labels), tuple(map(float, counts)), words, late, "jobs", middle)


def series(name: str, title: str, points: Sequence[tuple[str, float]], unit: str, note: str = "") -> Bars:
    """Return one value for each label, such as a day."""
    words = tuple(f"{value:{',.0f' if value >= 1_000 else '.4g'}} {unit}" for _, value in points)
    labels, values = tuple(label for label, _ in points), tuple(value for _, value in points)
    return Bars(name, title, labels, values, words, (False,) * len(points), unit, note)


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value).decode()


def _edge(seconds: float) -> str:
    return f"-{age(-seconds)}" if seconds < 0 else age(seconds)
