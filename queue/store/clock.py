"""The leader's two clocks: the time of day, for what people write, and the time of the queue, for what the
queue writes.

**The time of day** decides when a maintenance, a reservation or a deadline is due, and the matcher plans by
it. It is not read from one clock, because any one may be wrong: that of Postgres after a failover, or that of
the leader's machine. It is the median of three, those of the leader's machine, of Postgres and of the API
server. Between two looks it goes on by the monotonic clock. If the median steps, it is followed only after it
has stayed there for half a minute, so a step that is put right at once has no effect at all.

**The time of the queue** is in every row: submitted, granted, claimed until, tried again from. It never goes
back, and within the life of a leader it never steps ahead: otherwise a claim or a pause would last an hour
too long or too short, and a workload would run before it was submitted. When it differs from the time of day,
it approaches it: it runs a fifth faster or slower until the two agree. A new leader begins at the time of
day, or at the last time that was written if that is later.

For example, the time of day was an hour ahead when a leader began, and then steps back. Maintenances go by
the right time within two minutes, a pause of 20 s lasts 25 s for the next five hours, and then nothing is
left of it. Statements carry the time of the queue as a parameter (`fluxqueue.queue.store.transactions`), so
no row has the time of a clock that stepped.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from fluxqueue.queue.metrics import CLOCK_OFFSET_SECONDS
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store.store import Store

__all__ = ["NOTABLE_S", "SLEW", "LeaderClock"]

log = structlog.get_logger(__name__)

NOTABLE_S: Final = 5.0
"""Clocks that differ by less agree: an API server tells its time in whole seconds,
and answers take their time."""
_STEP_S: Final = 1.0
"""The time of day is not corrected by less: the monotonic clock is as good."""
_SURE_S: Final = 30.0
"""A step that was seen for so long is believed."""
SLEW: Final = 0.2
"""By which part of it the time of the queue runs faster or slower until it is the time of day."""
_ANSWER_S: Final = 0.05
"""No answer of Postgres is taken for older than this when it arrives:
a call that waited for a connection was answered at its end."""


async def _no_answer() -> datetime | None:
    return None


@dataclass(frozen=True, slots=True)
class _Look:
    """The time by each clock, the last time that a leader wrote, and when that was by the monotonic clock."""

    times: Mapping[str, datetime]
    written: datetime | None
    at: float


class LeaderClock:
    """The time of the queue, after `keep` was called for the first time; `wall` is the time of day.

    Parameters
    ----------
    store, epoch
        The tables and the leader whose time it is.
    ask_api_server
        Returns the API server's time; None if it does not say.
    machine
        The clock of this machine.
    pace
        A clock that counts seconds evenly.

    Attributes
    ----------
    stepped
        Called after the time of day was corrected.
    """

    def __init__(
        self,
        store: Store,
        epoch: Epoch,
        ask_api_server: Callable[[], Awaitable[datetime | None]] = _no_answer,
        *,
        machine: Callable[[], datetime] = lambda: datetime.now(UTC),
        pace: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stepped: Callable[[], None] = lambda: None
        self._store = store
        self._epoch = epoch
        self._ask_api_server = ask_api_server
        self._machine = machine
        self._pace = pace
        self._anchor: tuple[datetime, float] | None = None
        self._ahead_s = 0.0
        """How far the time of the queue was ahead of the time of day at the anchor."""
        self._doubted: tuple[float, float] | None = None
        """A step that is not believed yet, and when it was seen first."""

    def __call__(self) -> datetime:
        """Return the time of the queue."""
        at = self._pace()
        return self._wall(at) + timedelta(seconds=self._lead_s(at))

    def wall(self) -> datetime:
        """Return the time of day."""
        return self._wall(self._pace())

    async def keep(self) -> None:
        """Compare the clocks, correct the time of day, and tell the tables the time of the queue."""
        seen = await self._look()
        if self._anchor is None:
            # of two the earlier: nothing that people planned begins too early
            true = statistics.median_low(seen.times.values())
            self._anchor = true, seen.at
            self._ahead_s = (
                max((seen.written - true).total_seconds(), 0.0) if seen.written is not None else 0.0
            )
        for name, offset_s in self._offsets_s(seen).items():
            CLOCK_OFFSET_SECONDS.labels(name).set(offset_s)
            if abs(offset_s) >= NOTABLE_S:
                log.warning("clock.differs", clock=name, by_s=round(offset_s, 3))
        self._correct(seen)
        await self._store.keep_clock(self._epoch, self())

    async def compare(self) -> Mapping[str, float]:
        """Return by how many seconds each clock, and the time of the queue, is ahead of the time of day."""
        return self._offsets_s(await self._look())

    async def _look(self) -> _Look:
        api_server = await self._ask_api_server()
        began = self._pace()
        postgres, written = await self._store.read_clocks()
        at = self._pace()
        times = {
            "machine": self._machine(),
            "postgres": postgres + timedelta(seconds=min((at - began) / 2, _ANSWER_S)),
        }
        if api_server is not None:
            times["api-server"] = api_server + timedelta(seconds=at - began)
        return _Look(times, written, at)

    def _correct(self, seen: _Look) -> None:
        """Follow a step of the time of day, once it has lasted."""
        known = [self._wall(seen.at)] if len(seen.times) < 3 else []
        true = statistics.median_low([*seen.times.values(), *known])
        step_s = (true - self._wall(seen.at)).total_seconds()
        if abs(step_s) < _STEP_S:
            self._doubted = None
            return
        if self._doubted is None or abs(step_s - self._doubted[0]) >= _STEP_S:
            self._doubted = step_s, seen.at
        if seen.at - self._doubted[1] < _SURE_S:
            return
        self._ahead_s = self._lead_s(seen.at) - step_s
        self._anchor, self._doubted = (true, seen.at), None
        log.warning("clock.stepped", by_s=round(step_s, 3), queue_ahead_s=round(self._ahead_s, 3))
        self.stepped()

    def _offsets_s(self, seen: _Look) -> Mapping[str, float]:
        wall = self._wall(seen.at)
        return {name: (time - wall).total_seconds() for name, time in seen.times.items()} | {
            "queue": self._lead_s(seen.at)
        }

    def _wall(self, at: float) -> datetime:
        if self._anchor is None:
            raise RuntimeError("LeaderClock.keep was never called")
        time_then, then = self._anchor
        return time_then + timedelta(seconds=at - then)

    def _lead_s(self, at: float) -> float:
        """By how much the time of the queue is still ahead; negative if it is behind."""
        assert self._anchor is not None
        made_up_s = SLEW * (at - self._anchor[1])
        return (
            max(self._ahead_s - made_up_s, 0.0) if self._ahead_s > 0 else min(self._ahead_s + made_up_s, 0.0)
        )
