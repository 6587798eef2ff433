"""`kubectl fluxqueue reservations --gantt`: what nodes are set aside for, reserved for and used by, over
time.

A line is a FluxReservation with its times, a workload that waits with a reservation or an estimate, or a
workload that runs until its planned end. The picture is as wide as the terminal. All functions are pure
functions of the objects and the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import LIVE, FluxJob, State
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.reservedtimes import InvalidTimes, read_times
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.tables import instant

__all__ = ["Bar", "Chart", "chart", "job_bars", "reservation_bars"]

_MOST_TIMES = 64
_LONGEST_LABEL = 32
_LEAST_WIDTH = 20
_TICKS = 6
_MARKS = {
    "aside": ("▓", "R"),
    "maintenance": ("▒", "M"),
    "reserved": ("░", "="),
    "planned": ("·", "."),
    "runs": ("█", "#"),
}
_LEGEND = {
    "aside": "set aside for people",
    "maintenance": "maintenance",
    "runs": "runs",
    "reserved": "nodes are reserved",
    "planned": "estimated",
}


@dataclass(frozen=True)
class Bar:
    """A line: its label, the kind of its marks, and its times."""

    label: str
    kind: str
    times: tuple[tuple[datetime, datetime], ...]


@dataclass(frozen=True)
class Chart:
    """What is drawn: from when, how long, how wide, and with which characters."""

    start: datetime
    length: timedelta
    width: int = 80
    ascii_only: bool = False


def reservation_bars(reservations: Iterable[FluxReservation], view: Chart) -> list[Bar]:
    """Return the lines of FluxReservations that hold within the time."""
    from fluxqueue.queue.model.occurrences import occurrences

    bars = []
    for each in reservations:
        try:
            times = occurrences(read_times(each.spec), int(view.start.timestamp()), _MOST_TIMES)
        except InvalidTimes:
            continue  # it is Invalid, and holds nothing
        zone = view.start.tzinfo
        spans = tuple(
            (datetime.fromtimestamp(time.start, zone), datetime.fromtimestamp(time.end, zone))
            for time in times
        )
        label = f"{each.metadata.name} ({_nodes(each.status.node_count)})"
        bars.append(Bar(label, "maintenance" if each.spec.maintenance else "aside", spans))
    return sorted((bar for bar in bars if _visible(bar, view)), key=lambda bar: bar.times[0])


def job_bars(jobs: Iterable[FluxJob], view: Chart, *, namespaces: bool = False) -> list[Bar]:
    """Return the lines of work that runs, and of work with a planned start;
    work without an end lasts to the right edge.
    """
    bars = []
    for job in jobs:
        status = job.status
        state = state_of(job)
        if state == State.PENDING:
            start, kind = (
                instant(status.reserved_at or status.eta),
                "reserved" if status.reserved_at else "planned",
            )
        elif state in LIVE:
            start, kind = instant(status.started_at or status.allocated_at), "runs"
        else:
            continue
        if start is None:
            continue
        end = (
            start + timedelta(seconds=job.spec.duration_seconds)
            if job.spec.duration_seconds
            else view.start + view.length
        )
        if kind == "runs":
            end = max(end, view.start + view.length / 200)  # what runs too long runs now
        nodes = f" ({_nodes(_count(status.nodes))})" if status.nodes else ""
        title = object_name(job) or job.metadata.name
        bars.append(
            Bar(
                f"{job.metadata.namespace}/{title}{nodes}" if namespaces else f"{title}{nodes}",
                kind,
                ((start, end),),
            )
        )
    order = ("runs", "reserved", "planned")
    return sorted(
        (bar for bar in bars if _visible(bar, view)),
        key=lambda bar: (order.index(bar.kind), bar.times[0], bar.label),
    )


def chart(bars: Sequence[Bar], view: Chart) -> str:
    """Return the picture as lines, with a scale above and a legend below."""
    labels = [_cut(bar.label) for bar in bars]
    gutter = max((len(label) for label in labels), default=0) + 2
    width = max(view.width - gutter, _LEAST_WIDTH)
    lines = [" " * gutter + _scale(view, width)]
    for label, bar in zip(labels, bars, strict=True):
        lines.append(f"{label.ljust(gutter)}{_drawn(bar, view, width)}".rstrip())
    kinds = list(dict.fromkeys(bar.kind for bar in bars))
    lines.append(", ".join(f"{_mark(kind, view)} {_LEGEND[kind]}" for kind in kinds))
    return "\n".join(lines) + "\n"


def _drawn(bar: Bar, view: Chart, width: int) -> str:
    cells = [" "] * width
    for start, end in bar.times:
        first = int((start - view.start) / view.length * width)
        last = -int(-((end - view.start) / view.length * width) // 1)
        for at in range(max(first, 0), min(max(last, first + 1), width)):
            cells[at] = _mark(bar.kind, view)
    return "".join(cells)


def _scale(view: Chart, width: int) -> str:
    """Return times of day at equal distances; dates where the picture is longer than two days."""
    form = (
        "%H:%M"
        if view.length <= timedelta(days=2)
        else "%m-%d %H:%M"
        if view.length <= timedelta(days=14)
        else "%Y-%m-%d"
    )
    text = ""
    size = len(view.start.strftime(form)) + 3
    ticks = max(min(_TICKS, width // size), 1)
    for tick in range(ticks):
        at = tick * width // ticks
        text = text.ljust(at) + "|" + (view.start + view.length * at / width).strftime(form)
    return text[:width]


def _visible(bar: Bar, view: Chart) -> bool:
    return any(start < view.start + view.length and end > view.start for start, end in bar.times)


def _mark(kind: str, view: Chart) -> str:
    return _MARKS[kind][view.ascii_only]


def _cut(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}+"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _count(nodes: str) -> int:
    try:
        return len(set(hostlists.parse(nodes)))
    except hostlists.InvalidHostlist:
        return 0
