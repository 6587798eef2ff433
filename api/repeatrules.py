"""How a reservation repeats: the part of RFC 5545's recurrence rules (RRULE) that has at most one time a day.

``FREQ=WEEKLY;BYDAY=TU``, ``FREQ=MONTHLY;BYDAY=1MO``, ``FREQ=DAILY;INTERVAL=2;COUNT=5``. What is left out
would make a rule dear to follow or hard to read: rules of seconds to hours, ``BYSETPOS``, ``BYYEARDAY``,
``BYWEEKNO``. Each combination that is accepted either has a time soon or is found to have none within a
fraction of a second (`fluxqueue.queue.model.occurrences`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

__all__ = ["FIRST_YEAR", "LAST_TIME", "WEEKDAYS", "InvalidRepeat", "RepeatRule", "parse_repeat"]

WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_KEYS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "BYMONTH", "WKST")
_ALLOWED: Mapping[str, frozenset[str]] = {
    "DAILY": frozenset(),
    "WEEKLY": frozenset({"BYDAY", "WKST"}),
    "MONTHLY": frozenset({"BYDAY", "BYMONTHDAY"}),
    "YEARLY": frozenset({"BYDAY", "BYMONTHDAY", "BYMONTH"}),
}
_EVERYWHERE = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL"})
_LONGEST = 200
_MOST = 1_000
_DAY = re.compile(r"([+-]?[1-5])?(MO|TU|WE|TH|FR|SA|SU)")
FIRST_YEAR = 2000
LAST_TIME = datetime(2200, 12, 31, 23, 59, 59)  # noqa: DTZ001  # of the clock of any zone
"""No reservation is repeated before the first of these or after the last."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,4}")
_FORM = "write an RRULE such as FREQ=WEEKLY;BYDAY=TU"


class InvalidRepeat(ValueError):
    """The text is not a rule, or not one that is supported."""


@dataclass(frozen=True, slots=True)
class RepeatRule:
    """A rule.

    Attributes
    ----------
    frequency
        ``DAILY``, ``WEEKLY``, ``MONTHLY`` or ``YEARLY``.
    interval
        Every so many days, weeks, months or years.
    count
        Number of times in all; None: no limit.
    until
        The last time begins at this one at the latest; naive if it is meant in the time zone of the
        reservation.
    by_day
        Weekdays from 0 (Monday), each with the number of the weekday in its month or year (0: every one).
    by_month_day, by_month
        Days of a month, from its end if negative; months.
    week_start
        First day of the week, for an interval of weeks.
    """

    frequency: str
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    by_day: tuple[tuple[int, int], ...] = ()
    by_month_day: tuple[int, ...] = ()
    by_month: tuple[int, ...] = ()
    week_start: int = 0


def parse_repeat(text: str) -> RepeatRule:
    """Parse a rule.

    Raises
    ------
    InvalidRepeat
        With the part that is wrong, and what to write.
    """
    parts = _split(text)
    frequency = parts.get("FREQ", "")
    if frequency not in _FREQUENCIES:
        raise InvalidRepeat(f"{text[:80]!r}: FREQ is one of {', '.join(_FREQUENCIES)}: {_FORM}")
    if wrong := sorted(parts.keys() - _ALLOWED[frequency] - _EVERYWHERE):
        raise InvalidRepeat(f"{wrong[0]} cannot be combined with FREQ={frequency}: {_remedy(wrong[0])}")
    if "COUNT" in parts and "UNTIL" in parts:
        raise InvalidRepeat("COUNT and UNTIL exclude each other (RFC 5545): remove one of them")
    if "BYDAY" in parts and "BYMONTHDAY" in parts:
        raise InvalidRepeat("BYDAY and BYMONTHDAY together are not supported: remove one of them")
    by_day = _days(parts.get("BYDAY", ""))
    if frequency == "WEEKLY" and any(number for _, number in by_day):
        raise InvalidRepeat("BYDAY of FREQ=WEEKLY has no numbers: write BYDAY=MO, or FREQ=MONTHLY;BYDAY=1MO")
    return RepeatRule(
        frequency,
        _number("INTERVAL", parts.get("INTERVAL", "1"), 1, _MOST),
        _number("COUNT", parts["COUNT"], 1, _MOST) if "COUNT" in parts else None,
        _until(parts["UNTIL"]) if "UNTIL" in parts else None,
        by_day,
        _numbers("BYMONTHDAY", parts.get("BYMONTHDAY", ""), -31, 31),
        _numbers("BYMONTH", parts.get("BYMONTH", ""), 1, 12),
        _week_start(parts.get("WKST", "MO")),
    )


def _split(text: str) -> dict[str, str]:
    if len(text) > _LONGEST:
        raise InvalidRepeat(f"a rule has at most {_LONGEST} characters: {_FORM}")
    parts: dict[str, str] = {}
    for part in text.removeprefix("RRULE:").split(";"):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise InvalidRepeat(f"{part[:80]!r} is not NAME=VALUE: {_FORM}")
        if key not in _KEYS:
            raise InvalidRepeat(f"{key[:80]!r} is not supported: use {', '.join(_KEYS)}")
        if key in parts:
            raise InvalidRepeat(f"{key} occurs twice: remove one of them")
        parts[key] = value
    return parts


def _remedy(key: str) -> str:
    if key == "BYMONTH":
        return "use FREQ=YEARLY"
    return "use FREQ=WEEKLY" if key == "WKST" else "use FREQ=WEEKLY or FREQ=MONTHLY"


def _number(key: str, text: str, least: int, most: int) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if not least <= number <= most or not number:
        raise InvalidRepeat(
            f"{key}={text[:40]}: write a number from {least} to {most}{', but not 0' if least < 0 else ''}"
        )
    return number


def _numbers(key: str, text: str, least: int, most: int) -> tuple[int, ...]:
    return tuple(_number(key, each, least, most) for each in text.split(",")) if text else ()


def _days(text: str) -> tuple[tuple[int, int], ...]:
    days = []
    for each in text.split(",") if text else ():
        day = _DAY.fullmatch(each)
        if day is None:
            raise InvalidRepeat(
                f"BYDAY={each[:40]}: write weekdays such as MO,TU, "
                "or 1MO and -1FR for the first and last of a month"
            )
        days.append((WEEKDAYS.index(day[2]), int(day[1] or 0)))
    return tuple(days)


def _week_start(text: str) -> int:
    if text not in WEEKDAYS:
        raise InvalidRepeat(f"WKST={text[:40]}: write one of {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(text)


def _until(text: str) -> datetime:
    time = _read_until(text)
    if time.year < FIRST_YEAR:
        raise InvalidRepeat(f"UNTIL={text[:40]}: it is before the year {FIRST_YEAR}: correct it")
    return min(
        time, LAST_TIME.replace(tzinfo=time.tzinfo)
    )  # 9999 is written for "without an end", and no zone's clock shows that everywhere


def _read_until(text: str) -> datetime:
    for form in ("%Y%m%dT%H%M%SZ", "%Y%m%dT%H%M%S", "%Y%m%d"):
        try:
            time = datetime.strptime(text, form)  # noqa: DTZ007  # naive: the zone of the reservation is added later
        except ValueError:
            continue
        if form.endswith("Z"):
            return datetime.fromisoformat(f"{time.isoformat()}+00:00")
        return time if "T" in form else time.replace(hour=23, minute=59, second=59)
    raise InvalidRepeat(f"UNTIL={text[:40]}: write a time such as 20271231T235959Z or a day such as 20271231")
