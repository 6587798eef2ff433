"""Charts as values: what a chart shows, written for the script that draws it (`static/charts.js`) and,
in words, for who cannot see it.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from fluxqueue.dashboard.rendering import how_long

__all__ = ["Bars", "Chart", "Series", "Stack", "histogram", "histograms", "stacked"]

_MOST_PARTS: Final = 5
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
        return _json(
            {
                "kind": "bars",
                "labels": _short(self.labels, signed=True in self.late),
                "values": self.values,
                "late": self.late,
                "unit": self.unit,
            }
        )

    @property
    def words(self) -> str:
        """All values in one line, for who cannot see the chart."""
        return f"{self.title}: {'; '.join(f'{label}: {value}' for label, value in self.rows)}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Labels and values in words."""
        return list(zip(self.labels, self.words_of, strict=True))


@dataclass(frozen=True, slots=True)
class Stack:
    """Parts of a whole for each label, as areas or as bars on each other."""

    name: str
    title: str
    labels: tuple[str, ...]
    parts: tuple[Series, ...]
    areas: bool
    note: str = ""

    @property
    def data(self) -> str:
        """What the script draws."""
        parts = [{"name": each.name, "unit": each.unit, "values": list(each.values)} for each in self.parts]
        kind = "areas" if self.areas and len(self.labels) > 2 else "stacks"
        return _json({"kind": kind, "labels": _short(self.labels), "series": parts})

    @property
    def values(self) -> tuple[float, ...]:
        """The whole of each label."""
        return tuple(map(sum, zip(*(each.values for each in self.parts), strict=True)))

    @property
    def words(self) -> str:
        """All values in one line, for who cannot see the chart."""
        return f"{self.title}: {'; '.join(f'{label}: {value}' for label, value in self.rows)}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Labels and values in words: the whole, and its parts if there are some."""
        rows = []
        for at, (label, whole) in enumerate(zip(self.labels, self.values, strict=True)):
            parts = [f"{each.name} {_amount(each.values[at])}" for each in self.parts if each.values[at]]
            of = f": {', '.join(parts)}" if len(self.parts) > 1 and parts else ""
            rows.append((label, f"{_amount(whole)} {self.parts[0].unit}{of}"))
        return rows


def stacked(
    name: str,
    title: str,
    labels: Sequence[str],
    amounts: Mapping[str, Sequence[float]],
    unit: str,
    note: str = "",
    *,
    areas: bool = False,
) -> Stack:
    """Return the parts of each label, those that are most in all first, and the rest as one."""
    ordered = sorted(amounts.items(), key=lambda each: (-sum(each[1]), each[0]))
    first, rest = ordered[:_MOST_PARTS], [values for _, values in ordered[_MOST_PARTS:]]
    parts = [Series(key, values, unit) for key, values in first]
    if rest:
        parts.append(Series("others", tuple(map(sum, zip(*rest, strict=True))), unit))
    return Stack(name, title, tuple(labels) if parts else (), tuple(parts), areas, note)


def histograms(
    name: str, title: str, values: Mapping[str, Sequence[float]], edges: Sequence[float], unit: str = "jobs"
) -> Stack:
    """Count durations of several kinds between edges; parameters as `histogram`."""
    counts = {key: list(map(float, _counts(each, edges))) for key, each in values.items()}
    note = _median([value for each in values.values() for value in each])
    return stacked(name, title, _labels(edges), counts, unit, note)


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
    counts, labels = _counts(values, edges), _labels(edges)
    late = tuple(signed and (index > 0 and edges[index - 1] >= 0) for index in range(len(counts)))
    words = tuple(f"{count} {'job' if count == 1 else 'jobs'}" for count in counts)
    return Bars(
        name,
        title,
        tuple(labels),
        tuple(map(float, counts)),
        words,
        late,
        "jobs",
        _median(values, signed=signed),
    )


def _counts(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    counts = [0] * (len(edges) + 1)
    for value in values:
        counts[bisect.bisect_right(edges, value)] += 1
    return counts


def _labels(edges: Sequence[float]) -> list[str]:
    between = (f"{_edge(low)} to {_edge(high)}" for low, high in itertools.pairwise(edges))
    return [f"< {_edge(edges[0])}", *between, f"{_edge(edges[-1])} and more"]


def _median(values: Sequence[float], *, signed: bool = False) -> str:
    if not values:
        return "nothing to count"
    middle = sorted(values)[len(values) // 2]
    side = (" earlier" if middle < 0 else " later") if signed else ""
    return f"median {how_long(abs(middle))}{side}"


def _short(labels: Sequence[str], *, signed: bool = False) -> list[str]:
    """Return labels as short as an axis needs them; of signed ones colours say what is earlier and later."""
    plain = [label.replace("< -", "> ").replace("-", "") for label in labels] if signed else labels
    return [label.replace(" and more", "+").replace(" to ", "-") for label in plain]


def _amount(value: float) -> str:
    return f"{value:{',.0f' if value >= 1_000 else '.4g'}}"


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value).decode()


def _edge(seconds: float) -> str:
    return f"-{how_long(-seconds)}" if seconds < 0 else how_long(seconds)
