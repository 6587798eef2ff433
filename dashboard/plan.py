"""The plan as lanes of a Gantt chart: running work, reservations and estimates, and what people set aside; by
node, or by work.

A bar begins and ends as the queue plans it: running work from its allocation to the end of its duration,
waiting work at its reserved or estimated start. Work that runs longer than it stated ends now, marked. What
has no end is drawn to the edge. A planned start is where other work ends, so waiting work waits for what ends
there; where nothing does, for what ends last before. Which nodes waiting work will get is decided when it
starts, so it has lanes of its own below those of the nodes.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import LIVE, State
from fluxqueue.api.fluxreservations import FluxReservation, ReservationState
from fluxqueue.api.formatting import natural_order
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.job_rows import JobRow, planned_end
from fluxqueue.dashboard.pages.shared import planned_start
from fluxqueue.dashboard.rendering import how_long

__all__ = ["MOST_LANES", "MOST_TRACKS", "Bar", "Lane", "Plan", "Tick", "plan_of"]

MOST_LANES: Final = 150
MOST_TRACKS: Final = 8
"""Bars of a node that are drawn beside each other at one time."""
MOST_TRACKS_OF_RACKS: Final = 32
_PERCENT: Final = 100.0
_SHORTEST: Final = timedelta(hours=1)
_LONGEST: Final = timedelta(days=7)
_DAY: Final = timedelta(days=1)
_STEPS_S: Final = (60, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800)
_TICKS: Final = 10
_EDGE: Final = 3.0
"""A tick nearer to an edge than this has no room for its label."""
_AT_ONCE: Final = timedelta(seconds=60)
"""What ends so soon before a planned start is what it waits for."""
_MOST_WAITED_FOR: Final = 50
_NAMED: Final = 3
_MOST_ENDS: Final = 0.8
"""The part of all bars that decides how far the chart looks ahead:
a few long ones, or waiting work that has no lane, do not make all others short."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: its kind (``running``, ``over``, ``reserved``, ``estimate``, ``setaside``), place in percent,
    track from above, and words.

    ``again`` is true if the job has a bar in a lane above, so that the keyboard need not stop here. ``key``
    is the uid of what it stands for, and ``waits`` has those of what it waits for.
    """

    kind: str
    x: float
    width: float
    label: str
    words: str
    row: JobRow | None = None
    track: int = 0
    again: bool = False
    key: str = ""
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lane:
    """A line of the chart: its label, its bars, and how many tracks they need;
    ``row`` is that of the one bar of a lane of work.
    """

    label: str
    bars: tuple[Bar, ...]
    tracks: int = 1
    row: JobRow | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis."""

    x: float
    at: datetime


@dataclass(frozen=True, slots=True)
class Plan:
    """The chart: its times, its lanes, and what is left out: lanes, waiting jobs without a planned start, and
    jobs that found no track.

    ``nodes`` is empty by work; ``lanes`` has all work then, and waiting work alone by node. ``endless`` has
    the lanes of running work without an end.
    """

    begin: datetime
    end: datetime
    now_x: float
    nodes: tuple[Lane, ...]
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    hidden: int
    unplanned: int
    undrawn: int = 0
    endless: tuple[Lane, ...] = ()

    @property
    def scale(self) -> str:
        """``day`` if times of the day alone would not say which day is meant; else ``hour``."""
        far = not -_PERCENT <= self.now_x <= 2 * _PERCENT
        return "day" if far or self.end - self.begin > _DAY else "hour"

    @property
    def bars(self) -> int:
        """How many bars are drawn."""
        return sum(len(lane.bars) for lane in (*self.nodes, *self.lanes, *self.endless))


@dataclass(frozen=True, slots=True)
class _Span:
    kind: str
    begin: datetime
    end: datetime | None
    label: str
    key: str
    row: JobRow | None = None
    nodes: str = ""


def plan_of(
    rows: Iterable[JobRow],
    reservations: Sequence[FluxReservation],
    now: datetime,
    hours: int = 0,
    *,
    nodes: Sequence[str] | None = None,
    racks: Mapping[str, str] | None = None,
    window: tuple[datetime, datetime] | None = None,
) -> Plan:
    """Return the chart.

    Parameters
    ----------
    rows
        The work that the person sees.
    reservations
        The FluxReservations that he sees.
    now
        The present time.
    hours
        How far it looks ahead; 0: until most running work has ended and most waiting work has begun, at least
        an hour and at most a week.
    nodes
        The names of nodes that have lanes, those with work first if they are too many; None: lanes are by
        work.
    racks
        By the name of a node what has its lane, such as its rack; None: each has its own.
    window
        From when to when it goes; None: around the present time.
    """
    spans, unplanned = _spans(rows, reservations, now)
    if window is None:
        until = now + timedelta(hours=hours) if hours else _horizon(spans, now)
        window = now - max((until - now) / 8, timedelta(minutes=5)), until
    axis = _Axis(*window)
    end = axis.end
    inside = [span for span in spans if span.begin < end and (span.end is None or span.end > axis.begin)]
    inside.sort(key=lambda span: (_ORDER[span.kind], span.begin, span.label))
    busy = {host for span in inside for host in _hosts(span)} if nodes else set()
    lane_of = {name: (racks or {}).get(name, name) for name in nodes or ()}
    idle = dict.fromkeys(lane_of.values(), True) | {lane_of[name]: False for name in busy & {*lane_of}}
    shown = sorted(sorted(idle, key=lambda lane: idle[lane])[:MOST_LANES], key=natural_order)
    most = MOST_TRACKS if racks is None else MOST_TRACKS_OF_RACKS
    by_node, undrawn = _by_node(inside, shown, lane_of, axis, most) if nodes is not None else ((), 0)
    alone_in_lanes = [span for span in inside if nodes is None or span.kind in _WAITS]
    folded = [span for span in alone_in_lanes if span.kind == "running" and span.end is None]
    work = [span for span in alone_in_lanes if span.kind != "running" or span.end is not None]
    hidden = sum(max(0, len(part) - MOST_LANES) for part in (work, folded)) + len(idle) - len(shown)
    waits = _Waits(spans)

    def alone(spans: Sequence[_Span]) -> tuple[Lane, ...]:
        bars = ((span, waits.told(axis.bar(span), span)) for span in spans[:MOST_LANES])
        return tuple(Lane(span.label, (bar,), row=span.row) for span, bar in bars)

    now_x, ticks = axis.at(now), axis.ticks()
    return Plan(
        axis.begin, end, now_x, by_node, alone(work), ticks, hidden, unplanned, undrawn, alone(folded)
    )


def _spans(
    rows: Iterable[JobRow], reservations: Sequence[FluxReservation], now: datetime
) -> tuple[list[_Span], int]:
    """Return what has times, and how many waiting jobs have none."""
    spans: list[_Span] = [span for each in reservations if (span := _set_aside(each)) is not None]
    unplanned = 0
    for row in rows:
        span = _span(row, now)
        if span is not None:
            spans.append(span)
        elif row.state == State.PENDING:
            unplanned += 1
    return spans, unplanned


_ORDER: Final = {"setaside": 0, "over": 1, "running": 1, "reserved": 2, "estimate": 3}
_WAITS: Final = ("reserved", "estimate")


@dataclass(frozen=True, slots=True)
class _Axis:
    """From where to where the chart goes."""

    begin: datetime
    end: datetime

    def at(self, moment: datetime) -> float:
        """Return the place of a time, in percent."""
        return round(
            _PERCENT * (moment - self.begin).total_seconds() / (self.end - self.begin).total_seconds(), 3
        )

    def bar(self, span: _Span) -> Bar:
        left, right = max(0.0, self.at(span.begin)), min(_PERCENT, self.at(span.end or self.end))
        width = round(max(right - left, 0.15), 3)
        return Bar(span.kind, left, width, span.label, _words(span), span.row, key=span.key)

    def ticks(self) -> tuple[Tick, ...]:
        wanted = (self.end - self.begin).total_seconds() / _TICKS
        step = next((each for each in _STEPS_S if each >= wanted), _STEPS_S[-1])
        first = -(-int(self.begin.timestamp()) // step) * step
        times = (
            datetime.fromtimestamp(each, self.begin.tzinfo)
            for each in range(first, int(self.end.timestamp()), step)
        )
        return tuple(
            Tick(self.at(each), each) for each in times if _EDGE <= self.at(each) <= _PERCENT - _EDGE
        )


class _Waits:
    """What ends when."""

    def __init__(self, spans: Iterable[_Span]) -> None:
        self._spans = sorted(
            ((span.end, span) for span in spans if span.end is not None), key=lambda each: each[0]
        )
        self._ends = [end for end, _ in self._spans]

    def told(self, bar: Bar, span: _Span) -> Bar:
        """Return the bar of waiting work with what it waits for."""
        if span.kind not in _WAITS:
            return bar
        last = bisect.bisect_right(self._ends, span.begin)
        if not last:
            return bar
        since = min(span.begin - _AT_ONCE, self._ends[last - 1])
        first = bisect.bisect_left(self._ends, since)
        found = [each for _, each in self._spans[first:last][-_MOST_WAITED_FOR:] if each is not span]
        if not found:
            return bar
        names = [each.label for each in found[:_NAMED]]
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        verb = "ends" if len(found) == 1 else "end"
        when = "when" if span.begin - self._ends[last - 1] <= _AT_ONCE else "after"
        words = f"{bar.words}, {when} {', '.join(names)}{more} {verb}"
        return replace(bar, words=words, waits=tuple(each.key for each in found))


def _by_node(
    spans: Sequence[_Span], lanes: Sequence[str], lane_of: Mapping[str, str], axis: _Axis, most: int
) -> tuple[tuple[Lane, ...], int]:
    """Return lanes of nodes or racks, with the work that they have, and how many jobs found no track in some.

    Work that overlaps is in tracks, one below the other.
    """
    bars: dict[str, list[Bar]] = {name: [] for name in lanes}
    ends: dict[str, list[float]] = {name: [] for name in lanes}
    undrawn = 0
    for span in spans:
        bar = axis.bar(span)
        seen = False
        crowded = False
        for lane in dict.fromkeys(lane_of.get(host, "") for host in _hosts(span)):
            if lane not in bars:
                continue
            track = _track(ends[lane], bar) if span.row is not None else 0
            if track < most:
                bars[lane].append(replace(bar, track=track, again=seen))
                seen = True
            else:
                crowded = True
        undrawn += crowded
    return tuple(Lane(name, tuple(bars[name]), min(max(1, len(ends[name])), most)) for name in lanes), undrawn


def _hosts(span: _Span) -> Iterable[str]:
    """Return the nodes of a span, each once, in a natural order; waiting work has none."""
    if span.row is not None:
        shares: Mapping[str, object] = span.row.shares if span.kind not in _WAITS else {}
        return sorted(shares, key=natural_order)
    try:
        return sorted(set(hostlists.decode(span.nodes)), key=natural_order)
    except hostlists.InvalidHostlist:
        return ()


def _track(ends: list[float], bar: Bar) -> int:
    """Return the first track that is free where a bar begins, and take it."""
    number = next((number for number, end in enumerate(ends) if end <= bar.x), len(ends))
    ends[number : number + 1] = [bar.x + bar.width]
    return number


def _span(row: JobRow, now: datetime) -> _Span | None:
    job = row.job
    if row.state in LIVE:
        if (begin := row.began) is None:
            return None
        end = row.ends
        over = end is not None and end < now
        kind = "over" if over else "running"
        return _Span(kind, begin, now if over else end, row.title, row.uid, row, row.nodes)
    start = planned_start(job) if row.state == State.PENDING else None
    if start is None:
        return None
    start = max(start, now)
    kind = "reserved" if job.status.reserved_at else "estimate"
    return _Span(kind, start, planned_end(job, start), row.title, row.uid, row)


def _set_aside(reservation: FluxReservation) -> _Span | None:
    status = reservation.status
    begin, end = instant(status.start), instant(status.end)
    if begin is None or status.state in (None, ReservationState.OVER, ReservationState.INVALID):
        return None
    name, uid = reservation.metadata.name, reservation.metadata.uid
    return _Span("setaside", begin, end, f"FluxReservation {name}", uid, nodes=status.nodes)


def _horizon(spans: Sequence[_Span], now: datetime) -> datetime:
    starts = sorted(span.begin for span in spans if span.kind in _WAITS)[:MOST_LANES]
    running = (span for span in spans if span.kind in ("running", "over"))
    ends = sorted([*starts, *(span.end or span.begin for span in running)])
    most = ends[int(_MOST_ENDS * (len(ends) - 1))] if ends else now
    return min(max(now + _SHORTEST, most), now + _LONGEST)


def _words(span: _Span) -> str:
    kinds = {
        "running": "runs",
        "over": "runs longer than it stated",
        "reserved": "nodes are reserved",
        "estimate": "is estimated to start",
        "setaside": "nodes are set aside",
    }
    lasts = (
        f", for {how_long((span.end - span.begin).total_seconds())}"
        if span.end is not None
        else ", without an end"
    )
    where = f", on {span.nodes[:100]}" if span.nodes else ""
    namespace = f" ({span.row.namespace})" if span.row is not None else ""
    return f"{span.label}{namespace}: {kinds[span.kind]}, from {span.begin:%Y-%m-%d %H:%M} UTC{lasts}{where}"
