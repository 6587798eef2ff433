"""The report's charts as small SVG files, written without a drawing library as those of the simulator."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape
from math import fsum

from cluster.contenders import SERVERS
from cluster.summary import Summary

__all__ = ["bars", "pictures", "stacks_of_bars", "waits"]

_COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#8d6a9f", "#c77d0a", "#5c8a8a", "#7a7a7a", "#b08968", "#4a4e69")
_WIDTH, _HEIGHT = 720, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 170, 34, 34
_BURSTS = ("burst-300", "burst-600", "burst-2000", "burst-10000", "gangs-100x8")
_CPU = ("burst-600", "steady-10")

Series = Mapping[str, Mapping[str, float]]
"""Values by group and then by name."""


def pictures(summary: Summary) -> dict[str, str]:
    """Return the charts by file name; those without data are left out."""
    rates = _figures(summary, _BURSTS, "jobs_per_s")
    found = {"cluster-rates.svg": bars("Jobs started in a second", rates)} if rates else {}
    lines = {
        contender: [statistics.median(each) for each in zip(*runs, strict=True)]
        for contender in summary.contenders("burst-600")
        if (runs := [outcome["wait_quantiles_s"] for outcome in summary.outcomes("burst-600", contender)])
    }
    if lines:
        found["cluster-waits.svg"] = waits(
            "Jobs of a burst of 600 that are bound after so many seconds", lines
        )
    cpu = {
        f"{scenario}: {contender}": parts
        for scenario in _CPU
        for contender in summary.contenders(scenario)
        if (parts := _cpu_parts(summary, scenario, contender))
    }
    if cpu:
        found["cluster-cpu.svg"] = stacks_of_bars("CPU time of one Job, ms", cpu)
    return found


def bars(title: str, series: Series) -> str:
    """Return a chart of groups of bars, with one colour for each name."""
    names = list(dict.fromkeys(name for values in series.values() for name in values))
    most = max([value for values in series.values() for value in values.values()], default=1.0) or 1.0
    parts = [_frame(title), *_marks(most)]
    width = 0.8 / len(series) / max(len(names), 1)
    for index, (group, values) in enumerate(series.items()):
        parts.append(_text(_x((index + 0.5) / len(series)), _HEIGHT - _BOTTOM + 14, group, "middle"))
        for number, name in enumerate(names):
            if name in values:
                left = (index + 0.1) / len(series) + number * width
                parts += [_bar(left, width, 0, values[name] / most, number)]
                parts.append(
                    _text(_x(left + width / 2), _y(values[name] / most) - 3, f"{values[name]:.3g}", "middle")
                )
    return _svg([*parts, *_legend(names)])


def stacks_of_bars(title: str, series: Series) -> str:
    """Return a chart of one bar for each group, made of its values one upon the other."""
    names = list(dict.fromkeys(name for values in series.values() for name in values))
    most = max((fsum(values.values()) for values in series.values()), default=1.0) or 1.0
    parts = [_frame(title), *_marks(most)]
    for index, (group, values) in enumerate(series.items()):
        left, width, low = (index + 0.15) / len(series), 0.7 / len(series), 0.0
        for number, name in enumerate(names):
            high = low + values.get(name, 0.0) / most
            parts.append(_bar(left, width, low, high, number))
            low = high
        scenario, _, contender = group.partition(": ")
        parts.append(_text(_x(left + width / 2), _HEIGHT - _BOTTOM + 13, contender or group, "middle"))
        parts.append(
            _text(_x(left + width / 2), _HEIGHT - _BOTTOM + 26, scenario if contender else "", "middle")
        )
        parts.append(_text(_x(left + width / 2), _y(low) - 3, f"{fsum(values.values()):.3g}", "middle"))
    return _svg([*parts, *_legend(names)])


def waits(title: str, lines: Mapping[str, Sequence[float]]) -> str:
    """Return a chart of the part of the Jobs that is bound after a time,
    from the percentiles of their waits.
    """
    most = max((values[-1] for values in lines.values()), default=1.0) or 1.0
    parts = [_frame(title), *(_mark(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1.0))]
    parts += [
        _text(_x(share), _HEIGHT - _BOTTOM + 14, f"{most * share:.3g} s", "middle")
        for share in (0, 0.25, 0.5, 0.75, 1.0)
    ]
    for number, values in enumerate(lines.values()):
        points = " ".join(
            f"{_x(value / most):.1f},{_y(index / (len(values) - 1)):.1f}"
            for index, value in enumerate(values)
        )
        parts.append(
            f'<polyline fill="none" stroke="{_COLOURS[number % len(_COLOURS)]}" stroke-width="1.6" '
            f'points="{points}"/>'
        )
    return _svg([*parts, *_legend(list(lines))])


def _figures(summary: Summary, scenarios: Sequence[str], name: str) -> dict[str, dict[str, float]]:
    found = {
        scenario: {
            contender: value
            for contender in summary.contenders(scenario)
            if (value := summary.median(scenario, contender, name)) is not None
        }
        for scenario in scenarios
    }
    return {scenario: values for scenario, values in found.items() if values}


def _cpu_parts(summary: Summary, scenario: str, contender: str) -> dict[str, float]:
    """Return the milliseconds of each server of Kubernetes, and of each added program."""
    names = [
        name for name in summary.names(scenario) if name.startswith("cpu_ms ") and name != "cpu_ms added"
    ]
    values = {name.removeprefix("cpu_ms "): summary.median(scenario, contender, name) for name in names}
    ordered = [*SERVERS, *(name for name in values if name not in SERVERS)]
    return {name: value for name in ordered if (value := values.get(name)) is not None}


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM) * 0.94


def _bar(left: float, width: float, low: float, high: float, colour: int) -> str:
    return (
        f'<rect x="{_x(left):.1f}" y="{_y(high):.1f}" width="{_x(width) - _x(0):.1f}" '
        f'height="{_y(low) - _y(high):.1f}" fill="{_COLOURS[colour % len(_COLOURS)]}"/>'
    )


def _marks(most: float) -> list[str]:
    return [_mark(share, f"{most * share:.3g}") for share in (0, 0.25, 0.5, 0.75, 1.0)]


def _mark(share: float, text: str) -> str:
    line = (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_y(share):.1f}" y2="{_y(share):.1f}" '
        'stroke="#e3e3e3"/>'
    )
    return line + _text(_LEFT - 5, _y(share) + 4, text, "end")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _frame(title: str) -> str:
    box = (
        f'<rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}" fill="none" stroke="#999"/>'
    )
    return box + _text(_LEFT, 18, title, "start")


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for index, name in enumerate(names):
        y = _TOP + 6 + 18 * index
        parts.append(
            f'<rect x="{_WIDTH - _RIGHT + 12}" y="{y}" width="10" height="10" '
            f'fill="{_COLOURS[index % len(_COLOURS)]}"/>'
        )
        parts.append(_text(_WIDTH - _RIGHT + 27, y + 9, name, "start"))
    return parts


def _svg(parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="10" fill="#222">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>', *parts, "</svg>", ""])
