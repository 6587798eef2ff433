"""When a FluxReservation holds: its first time, how long each time lasts, and how it repeats, as its spec
says it.

Admission and the queue read the spec with the same code. To list the times is the queue's
(`fluxqueue.queue.model.occurrences`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from fluxqueue.api.durations import MAX_DURATION_S, InvalidDuration, parse_duration
from fluxqueue.api.fluxreservations import FluxReservationSpec
from fluxqueue.api.repeatrules import InvalidRepeat, RepeatRule, parse_repeat

__all__ = ["InvalidTimes", "ReservedTimes", "read_times"]

_FORM = "write a time such as 2026-12-01T08:00:00, of spec.timeZone, or with an offset: 2026-12-01T08:00:00Z"
_YEARS = range(2000, 2201)
_LONGEST_TEXT = 64
_SHOWN = 40


class InvalidTimes(ValueError):
    """The spec does not say when the reservation holds; the message names the field and the remedy."""


@dataclass(frozen=True, slots=True)
class ReservedTimes:
    """When a reservation holds.

    Attributes
    ----------
    start
        Beginning of the first time, in the time zone.
    length_s
        Of each time, in seconds.
    zone
        In which the reservation repeats.
    rule
        How it repeats; None: it does not.
    """

    start: datetime
    length_s: int
    zone: ZoneInfo
    rule: RepeatRule | None = None


def read_times(spec: FluxReservationSpec) -> ReservedTimes:
    """Read when a reservation holds.

    Raises
    ------
    InvalidTimes
        The first mistake.
    """
    zone = _zone(spec.time_zone)
    start = _time("spec.start", spec.start, zone)
    if (spec.end is None) == (spec.duration is None):
        raise InvalidTimes("spec: write either end or duration, and not both")
    if spec.duration is not None:
        try:
            length_s = parse_duration(spec.duration)
        except InvalidDuration as error:
            raise InvalidTimes(f"spec.duration: {error}") from None
    else:
        length_s = int(
            (_time("spec.end", spec.end or "", zone).astimezone(UTC) - start.astimezone(UTC))
            / timedelta(seconds=1)
        )
        if length_s < 1:
            raise InvalidTimes(
                f"spec.end: {(spec.end or '')[:_SHOWN]!r} is not after spec.start: correct one of them"
            )
        if length_s > MAX_DURATION_S:
            raise InvalidTimes("spec.end is more than ten years after spec.start: correct the year")
    try:
        rule = parse_repeat(spec.repeat) if spec.repeat else None
    except InvalidRepeat as error:
        raise InvalidTimes(f"spec.repeat: {error}") from None
    return ReservedTimes(start, length_s, zone, rule)


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        # a folder of zones is an OSError, a path that leads out of them a ValueError
        raise InvalidTimes(
            f"spec.timeZone: {name[:_SHOWN]!r} is no time zone: write one such as Europe/Berlin or UTC"
        ) from None


def _time(field: str, text: str, zone: ZoneInfo) -> datetime:
    try:
        time = datetime.fromisoformat(text) if len(text) <= _LONGEST_TEXT and "T" in text else None
    except ValueError:
        time = None
    if time is None or time.year not in _YEARS:
        raise InvalidTimes(
            f"{field}: {text[:_SHOWN]!r} is not a time from {_YEARS[0]} to {_YEARS[-1]}: {_FORM}"
        )
    time = time.replace(microsecond=0)
    return time.replace(tzinfo=zone) if time.tzinfo is None else time.astimezone(zone)
