"""The plan as lanes of a Gantt chart: running work, reservations and estimates, and what people set aside.

A bar begins and ends as the queue plans it: running work from its allocation to the end of its duration, waiting work at its reserved or
estimated start. Work that runs longer than it stated ends now, marked. What has no end is drawn to the edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fluxqueue.api.fluxjobs import LIVE, State
from fluxqueue.api.fluxreservations import FluxReservation, ReservationState
from fluxqueue.cli.tables import age, instant
from fluxqueue.dashboard.job_rows import JobRow, planned_end
from fluxqueue.dashboard.pages.shared import planned_start

__all__ = ["MOST_LANES", "Bar", "Lane", "Plan", "Tick", "plan_of"]

MOST_LANES: Final = 150
WIDTH: Final = 1_000.0
"""Of the chart without its labels."""
_SHORTEST: Final = timedelta(hours=1)
_LONGEST: Final = timedelta(days=7)
_DAY: Final = timedelta(days=1)
_STEPS_S: Final = (300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800)
_TICKS: Final = 10


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: its kind (``running``, ``over``, ``reserved``, ``estimate``, ``setaside``), place, colour and words."""

    kind: str
    x: float
    width: float
    words: str
    row: JobRow | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """A line of the chart: its label, and its bar."""

    label: str
    bar: Bar
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis."""

    x: float
    at: datetime


@dataclass(frozen=True, slots=True)
class Plan:
    """The chart: its times, its lanes, and how many lanes are left out and how many waiting jobs have no planned start."""

    begin: datetime
    end: datetime
    now_x: float
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    hidden: int
    unplanned: int

    @property
    def scale(self) -> str:
        """``day`` if times of the day alone would not say which day is meant; else ``hour``."""
        return "day" if self.end - self.begin > _DAY else "hour"


@dataclass(frozen=True, slots=True)
class _Span:
    kind: str
    begin: datetime
    end: datetime | None
    label: str
    row: JobRow | None = None
    nodes: str = ""


def plan_of(rows: Iterable[JobRow], reservations: Sequence[FluxReservation], now: datetime, hours: int = 0) -> Plan:
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
        How far it looks ahead; 0: to the last planned end, at least an hour and at most a week.
    """
    spans: list[_Span] = [span for each in reservations if (span := _set_aside(each)) is not None]
    unplanned = 0
    for row in rows:
        span = _span(row, now)
        if span is not None:
            spans.append(span)
        elif row.state == State.PENDING:
            unplanned += 1
    end = now + timedelta(hours=hours) if hours else _horizon(spans, now)
    begin = now - max((end - now) / 8, timedelta(minutes=5))
    inside = [span for span in spans if span.begin < end and (span.end is None or span.end > begin)]
    inside.sort(key=lambda span: (_ORDER[span.kind], span.begin, span.label))
    scale = WIDTH / (end - begin).total_seconds()
    lanes = tuple(_lane(span, begin, end, scale) for span in inside[:MOST_LANES])
    now_x = round((now - begin).total_seconds() * scale, 1)
    return Plan(begin, end, now_x, lanes, _ticks(begin, end, scale), max(0, len(inside) - MOST_LANES), unplanned)


_ORDER: Final = {"setaside": 0, "over": 1, "running": 1, "reserved": 2, "estimate": 3}


def _span(row: JobRow, now: datetime) -> _Span | None:
    job = row.job
    if row.state in LIVE:
        begin = instant(job.status.started_at) or instant(job.status.allocated_at)
        if begin is None:
            return None
        end = planned_end(job, begin)
        over = end is not None and end < now
        return _Span("over" if over else "running", begin, now if over else end, row.title, row, row.nodes)
    start = planned_start(job) if row.state == State.PENDING else None
    if start is None:
        return None
    start = max(start, now)
    return _Span("reserved" if job.status.reserved_at else "estimate", start, planned_end(job, start), row.title, row)


def _set_aside(reservation: FluxReservation) -> _Span | None:
    status = reservation.status
    begin, end = instant(status.start), instant(status.end)
    if begin is None or status.state in (None, ReservationState.OVER, ReservationState.INVALID):
        return None
    return _Span("setaside", begin, end, f"FluxReservation {reservation.metadata.name}", nodes=status.nodes[:100])


def _horizon(spans: Sequence[_Span], now: datetime) -> datetime:
    ends = [span.end or span.begin for span in spans if span.kind != "setaside"]
    return min(max([now + _SHORTEST, *ends]), now + _LONGEST)


def _lane(span: _Span, begin: datetime, end: datetime, scale: float) -> Lane:
    left = max(0.0, (span.begin - begin).total_seconds() * scale)
    right = min(WIDTH, ((span.end or end) - begin).total_seconds() * scale)
    bar = Bar(span.kind, round(left, 1), round(max(right - left, 1.5), 1), _words(span), span.row)
    return Lane(span.label, bar, span.row.namespace if span.row is not None else "")


def _words(span: _Span) -> str:
    kinds = {
        "running": "runs",
        "over": "runs longer than it stated",
        "reserved": "nodes are reserved",
        "estimate": "is estimated to start",
        "setaside": "nodes are set aside",
    }
    lasts = f", for {age((span.end - span.begin).total_seconds())}" if span.end is not None else ", without an end"
    where = f", on {span.nodes}" if span.nodes else ""
    namespace = f" ({span.row.namespace})" if span.row is not None else ""
    return f"{span.label}{namespace}: {kinds[span.kind]}, from {span.begin:%Y-%m-%d %H:%M} UTC{lasts}{where}"


def _ticks(begin: datetime, end: datetime, scale: float) -> tuple[Tick, ...]:
    wanted = (end - begin).total_seconds() / _TICKS
    step = next((each for each in _STEPS_S if each >= wanted), _STEPS_S[-1])
    first = -(-int(begin.timestamp()) // step) * step
    times = range(first, int(end.timestamp()), step)
    return tuple(Tick(round((at - begin.timestamp()) * scale, 1), datetime.fromtimestamp(at, begin.tzinfo)) for at in times)
