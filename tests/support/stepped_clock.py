"""Clocks that a test sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fluxqueue.queue.store import Database, Store

__all__ = ["SteppedClock", "SteppedPostgres"]


class SteppedClock:
    """A clock that stands at a number of minutes after noon of a day."""

    def __init__(self) -> None:
        self._minutes = 0.0

    def set(self, minutes: float) -> None:
        """Set it."""
        self._minutes = minutes

    def __call__(self) -> datetime:
        """Return the time."""
        return datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(minutes=self._minutes)


class SteppedPostgres(Store):
    """A store in a Postgres whose own clock is ahead."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.ahead = timedelta()

    async def read_clocks(self) -> tuple[datetime, datetime | None]:
        """Return its time, and the last time that a leader wrote."""
        own, written = await super().read_clocks()
        return own + self.ahead, written
