"""Times as people of Slurm and Flux type them: a number alone is minutes.

``sbatch -t 30`` and ``flux submit -t 30`` are both half an hour, while ``fluxqueue/duration: "30"`` is half a
minute. So what is typed becomes a text with its unit, and no manifest has a bare number. Slurm's other forms
are ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM`` and ``D-HH:MM:SS``; Flux's are ``90s``, ``30m``, ``1.5h``
and ``2d``.
"""

from __future__ import annotations

import argparse
import re

from fluxqueue.api.durations import InvalidDuration, parse_duration

__all__ = ["FORMS", "read_time_limit", "time_limit_seconds"]

FORMS = "30 (minutes), 90s, 1.5h, 1:30:00 or 1-12:00:00"
_ENDLESS = ("unlimited", "infinite", "infinity", "inf")
_MINUTES = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12}")
_MINUTES_SECONDS = re.compile(r"(?P<minutes>[0-9]{1,9}):(?P<seconds>[0-5]?[0-9])")
_CLOCK = re.compile(r"[0-9]{1,9}:[0-5][0-9]:[0-5][0-9]")
_DAYS = re.compile(
    r"(?P<days>[0-9]{1,6})-(?P<hours>[0-9]{1,6})(?::(?P<minutes>[0-5]?[0-9]))?(?::(?P<seconds>[0-5]?[0-9]))?"
)


def read_time_limit(text: str) -> str:
    """Return a typed time as a duration with its unit, as `fluxqueue.api.durations.parse_duration` reads it.

    Raises
    ------
    argparse.ArgumentTypeError
        It is no time; the message has the forms.
    """
    duration = _with_unit(text)
    if text.lower() in _ENDLESS:
        raise argparse.ArgumentTypeError(f"{text!r}: work without an end has no -t: leave it out")
    if duration is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a duration: write {FORMS}")
    try:
        parse_duration(duration)
    except InvalidDuration as error:
        message = str(error).replace(repr(duration), repr(text[:40]), 1)
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a duration: write {FORMS}" if " is not a duration" in message else message
        ) from None
    return duration


def time_limit_seconds(text: str) -> int:
    """Return a typed time in seconds; errors as `read_time_limit`."""
    return parse_duration(read_time_limit(text))


def _with_unit(text: str) -> str | None:
    """Return a text with its unit; None if it can be no time."""
    if _MINUTES.fullmatch(text):
        return f"{text}m"
    if short := _MINUTES_SECONDS.fullmatch(text):
        return f"{int(short['minutes']) * 60 + int(short['seconds'])}s"
    if days := _DAYS.fullmatch(text):
        day, hour, minute, second = (int(part or 0) for part in days.groups())
        return f"{day * 86_400 + hour * 3_600 + minute * 60 + second}s"
    return text if ":" not in text or _CLOCK.fullmatch(text) else None
