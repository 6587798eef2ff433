"""Times that people name on the command line: a date, a time of day, or how long ago. Without a zone they are in that of this machine."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from fluxqueue.api.durations import InvalidDuration, parse_duration

__all__ = ["read_since", "read_until"]


def read_since(text: str) -> datetime:
    """Read ``--since``, which has passed: ``2026-11-23``, ``2026-11-23T08:00:00Z``, ``12h``."""
    time = _read("--since", text)
    if time > datetime.now(UTC):
        raise argparse.ArgumentTypeError(f"--since {text} lies in the future: name a time that has passed, or how long ago, such as 12h")
    return time


def read_until(text: str) -> datetime:
    """Read ``--until``, written as `read_since` reads it; it may lie in the future."""
    return _read("--until", text)


def _read(flag: str, text: str) -> datetime:
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
    except InvalidDuration:
        pass
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC if time.tzinfo else None)
    except (ValueError, OverflowError):  # also a time that the zone moves out of the calendar
        raise argparse.ArgumentTypeError(
            f"{flag} is a time such as 2026-11-23T08:00:00Z, or how long ago, such as 12h: {text[:60]!r} is none"
        ) from None
