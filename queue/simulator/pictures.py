"""Charts of simulations as small SVG files, written without a drawing library.

There are three: utilisation of the machine over time, jobs on nodes over time, and waits by size of job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import numpy as np

from fluxqueue.queue.simulator.metrics import SIZE_CLASSES, size_class, utilisation_over_time
from fluxqueue.queue.simulator.simulated_work import SimulatedJob

__all__ = ["occupancy_chart", "utilisation_chart", "waits_chart"]

_COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#8d6a9f", "#c77d0a")
_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 34, 34
_DAY_S = 86_400
_POINTS = 240


def utilisation_chart(results: Mapping[str, Sequence[SimulatedJob]], nodes: int) -> str:
    """Return a chart of the part of the machine in use over time, one line for each policy."""
    last = max(max(each.end_s for each in ran) for ran in results.values())
    parts = [
        _frame("Utilisation", "days", "%"),
        *_ticks_y([(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1.0)]),
    ]
    parts += _ticks_x(last / _DAY_S)
    for index, ran in enumerate(results.values()):
        own_last = max(each.end_s for each in ran)
        shares = utilisation_over_time(ran, nodes, _POINTS)
        step = own_last / last / _POINTS
        points = " ".join(
            f"{_x((number + 0.5) * step):.1f},{_y(share):.1f}" for number, share in enumerate(shares.tolist())
        )
        parts.append(
            f'<polyline fill="none" stroke="{_COLOURS[index % len(_COLOURS)]}" stroke-width="1.3" '
            f'points="{points}"/>'
        )
    return _svg([*parts, *_legend(list(results))])


def occupancy_chart(ran: Sequence[SimulatedJob], nodes: int, until_s: int, title: str) -> str:
    """Return a chart of nodes (from bottom to top) and time, with a block for each job.
    Jobs that had a reservation are framed.
    """
    parts = [
        _frame(title, "hours", "nodes"),
        *_ticks_y([(share, str(round(share * nodes))) for share in (0, 0.5, 1.0)]),
    ]
    parts += _ticks_x(until_s / 3600)
    for each in ran:
        if each.start_s >= until_s:
            continue
        left, right = _x(each.start_s / until_s), _x(min(each.end_s, until_s) / until_s)
        frame = ' stroke="#222" stroke-width="0.8"' if each.first_reserved_start_s is not None else ""
        colour = _COLOURS[each.job.number % len(_COLOURS)]
        for low, high in _stretches(each.hosts):
            top, bottom = _y((high + 1) / nodes), _y(low / nodes)
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.3):.1f}" '
                f'height="{bottom - top:.1f}" fill="{colour}" fill-opacity="0.75"{frame}/>'
            )
    return _svg(parts)


def waits_chart(results: Mapping[str, Sequence[SimulatedJob]]) -> str:
    """Return a chart of median waits by size of job, one bar for each policy,
    on a logarithmic scale from a minute to a month or more.
    """
    classes = len(SIZE_CLASSES) + 1
    medians = {
        name: [
            float(np.median(waits))
            if (waits := [each.wait_s for each in ran if size_class(each.job.nodes) == index])
            else 0.0
            for index in range(classes)
        ]
        for name, ran in results.items()
    }
    most = max([60.0, *(value for values in medians.values() for value in values)])
    low, high = np.log10(10.0), np.log10(most * 1.3)
    marks = [
        (seconds, text)
        for seconds, text in ((60, "1 min"), (3600, "1 h"), (_DAY_S, "1 d"), (30 * _DAY_S, "30 d"))
        if seconds < most
    ]
    parts = [
        _frame("Median wait by size", "nodes", ""),
        *_ticks_y([((np.log10(s) - low) / (high - low), text) for s, text in marks]),
    ]
    names = ["1", *(f"{a + 1}-{b}" for a, b in pairwise(SIZE_CLASSES)), f"> {SIZE_CLASSES[-1]}"]
    width = 0.7 / classes / max(len(results), 1)
    for index in range(classes):
        parts.append(_text(_x((index + 0.5) / classes), _HEIGHT - _BOTTOM + 14, names[index], "middle"))
        for number, values in enumerate(medians.values()):
            share = max(0.0, (np.log10(max(values[index], 10.0)) - low) / (high - low))
            left = _x((index + 0.15) / classes + number * width)
            parts.append(
                f'<rect x="{left:.1f}" y="{_y(share):.1f}" width="{_x(width) - _x(0):.1f}" '
                f'height="{_y(0) - _y(share):.1f}" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
            )
    return _svg([*parts, *_legend(list(results))])


def _stretches(hosts: Sequence[int]) -> list[tuple[int, int]]:
    """Adjacent nodes as (first, last)."""
    stretches: list[tuple[int, int]] = []
    for host in sorted(hosts):
        if stretches and stretches[-1][1] == host - 1:
            stretches[-1] = stretches[-1][0], host
        else:
            stretches.append((host, host))
    return stretches


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _frame(title: str, x_unit: str, y_unit: str) -> str:
    box = (
        f'<rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}" fill="none" stroke="#999"/>'
    )
    return (
        box
        + _text(_LEFT, 16, title, "start")
        + _text(_WIDTH - _RIGHT, _HEIGHT - 4, x_unit, "end")
        + _text(8, 16, y_unit, "start")
    )


def _ticks_y(marks: Sequence[tuple[float, str]]) -> list[str]:
    lines = [
        (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_y(share):.1f}" y2="{_y(share):.1f}" '
            'stroke="#e3e3e3"/>'
        )
        for share, _ in marks
    ]
    return lines + [_text(_LEFT - 5, _y(share) + 4, text, "end") for share, text in marks]


def _ticks_x(most: float) -> list[str]:
    return [
        _text(_x(share), _HEIGHT - _BOTTOM + 14, f"{most * share:.0f}", "middle")
        for share in (0, 0.25, 0.5, 0.75, 1.0)
    ]


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for index, name in enumerate(names):
        x = _WIDTH - _RIGHT - 130 * (len(names) - index)
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{_COLOURS[index % len(_COLOURS)]}"/>')
        parts.append(_text(x + 14, 17, name, "start"))
    return parts


def _svg(parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="11" fill="#222">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>', *parts, "</svg>", ""])
