"""Times that people name on the command line: a date, a time of day, or how long ago.
Without a zone they are in that of this machine.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from fluxqueue.api.durations import SINCE_IN_THE_FUTURE, InvalidDuration, parse_duration
from fluxqueue.cli.api_client import ClusterError

__all__ = ["read_since", "read_until", "require_past"]


def read_since(text: str) -> datetime:
    """Read ``--since``: ``2026-11-23``, ``2026-11-23T08:00:00Z``, ``12h``."""
    return _read("--since", text)


def read_until(text: str) -> datetime:
    """Read ``--until``, written as `read_since` reads it."""
    return _read("--until", text)


def require_past(since: datetime | None) -> None:
    """Refuse a ``--since`` that has not passed, in the words of the queue, which refuses it for `history`,
    `report` and `stats`.

    Raises
    ------
    ClusterError
        It has not.
    """
    if since is not None and since > datetime.now(UTC):
        raise ClusterError(f"error: {SINCE_IN_THE_FUTURE}")


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
            f"{flag} is a time such as 2026-11-23T08:00:00Z, or how long ago, such as 12h: "
            f"{text[:60]!r} is none"
        ) from None
