"""The times of a reservation: from its first time and its rule to a list of beginnings and ends.

A rule is followed on the clock of its time zone, so a reservation at 08:00 is at 08:00 in summer and in
winter, and each of its times lasts equally long. A beginning that the change to summer time skips is an hour
later; of a beginning that occurs twice, the first counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal

from dateutil.rrule import DAILY, MONTHLY, WEEKLY, YEARLY, rrule, weekday

from fluxqueue.api.repeatrules import RepeatRule
from fluxqueue.api.reservedtimes import ReservedTimes

__all__ = ["Occurrence", "merged", "occurrences"]

_FREQUENCIES: Mapping[str, Literal[0, 1, 2, 3]] = {
    "DAILY": DAILY,
    "WEEKLY": WEEKLY,
    "MONTHLY": MONTHLY,
    "YEARLY": YEARLY,
}
_CLOCK_CHANGE = timedelta(days=1)
"""More than the clock of any time zone is ever changed by."""


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """One time of a reservation, in Unix seconds; ``end`` is the first second after it."""

    start: int
    end: int


def occurrences(times: ReservedTimes, now: int, limit: int) -> tuple[Occurrence, ...]:
    """Return the times that are not over, the first ones first.

    Parameters
    ----------
    times
        When the reservation holds.
    now
        Unix seconds.
    limit
        Most times to return.
    """
    return tuple(islice((each for each in _all_from(times, now) if each.end > now), limit))


def _all_from(times: ReservedTimes, now: int) -> Iterator[Occurrence]:
    """Yield the times from a little before the present one on."""
    if times.rule is None:
        yield _occurrence(times, times.start.replace(tzinfo=None))
        return
    first = datetime.fromtimestamp(now, UTC) - timedelta(seconds=times.length_s) - _CLOCK_CHANGE
    rule = _rule(times.rule, times)
    for start in rule.xafter(first.astimezone(times.zone).replace(tzinfo=None), inc=True):
        yield _occurrence(times, start)


def _occurrence(times: ReservedTimes, start: datetime) -> Occurrence:
    at = int(start.replace(tzinfo=times.zone).timestamp())
    return Occurrence(at, at + times.length_s)


def _rule(rule: RepeatRule, times: ReservedTimes) -> rrule:
    until = rule.until
    if until is not None and until.tzinfo is not None:
        until = until.astimezone(times.zone).replace(tzinfo=None)
    return rrule(
        _FREQUENCIES[rule.frequency],
        dtstart=times.start.replace(tzinfo=None),
        interval=rule.interval,
        count=rule.count,
        until=until,
        byweekday=[weekday(day, number or None) for day, number in rule.by_day] or None,
        bymonthday=rule.by_month_day or None,
        bymonth=rule.by_month or None,
        wkst=rule.week_start,
    )


def merged(times: Iterable[Occurrence]) -> tuple[Occurrence, ...]:
    """Return times that are ascending and apart: those that overlap or touch become one."""
    out: list[Occurrence] = []
    for each in sorted(times):
        if out and each.start <= out[-1].end:
            out[-1] = Occurrence(out[-1].start, max(out[-1].end, each.end))
        else:
            out.append(each)
    return tuple(out)
