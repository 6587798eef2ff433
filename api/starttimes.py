"""Times at which a workload may begin or is to be done, as people write them.

``2026-12-24T18:00:00Z``, or ``+2h`` after the object was created.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fluxqueue.api.durations import MAX_DURATION_S, InvalidDuration, parse_duration

__all__ = ["InvalidStartTime", "parse_start_time", "read_start_time"]

_FORM = "write a time with its zone, such as 2026-12-24T18:00:00Z, or +2h after the creation of the object"
_LONGEST_TEXT = 64
_SHOWN = 40


class InvalidStartTime(ValueError):
    """The text is not a time."""


def read_start_time(text: str) -> datetime | timedelta:
    """Read a time, or a duration after the creation of the object.

    Parameters
    ----------
    text
        RFC 3339 with a zone, or ``+`` and a duration as `fluxqueue.api.durations.parse_duration` reads it.

    Returns
    -------
    datetime or timedelta
        A time in UTC.

    Raises
    ------
    InvalidStartTime
        With the text and the accepted forms.
    """
    shown = f"{text[:_SHOWN]!r}"
    if text.startswith("+"):
        try:
            return timedelta(seconds=parse_duration(text[1:]))
        except InvalidDuration as error:
            raise InvalidStartTime(f"{shown}: {error}") from None
    try:
        time = datetime.fromisoformat(text) if len(text) <= _LONGEST_TEXT and "T" in text else None
    except ValueError:
        time = None
    if time is None:
        raise InvalidStartTime(f"{shown} is not a time: {_FORM}")
    if time.tzinfo is None:
        raise InvalidStartTime(f"{shown} has no time zone: {_FORM}")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise InvalidStartTime(f"{shown} is not a time of this calendar: {_FORM}") from None


def parse_start_time(text: str, created: datetime) -> datetime:
    """Parse the annotation ``fluxqueue/begin`` or ``fluxqueue/deadline``.

    Parameters
    ----------
    text
        See `read_start_time`.
    created
        When the object was created, timezone-aware; a relative time counts from it.

    Returns
    -------
    datetime
        In UTC.

    Raises
    ------
    InvalidStartTime
        Also if it is more than ten years after the creation.
    """
    time = read_start_time(text)
    if isinstance(time, timedelta):
        return created.astimezone(UTC) + time
    if time - created > timedelta(seconds=MAX_DURATION_S):
        raise InvalidStartTime(f"{text[:_SHOWN]!r} is more than ten years ahead: correct the year")
    return time
