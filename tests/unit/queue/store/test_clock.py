"""The leader's clock and answers of the tables that come late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from support.queue_builders import EPOCH

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store.clock import LeaderClock


async def test_a_call_that_waited_for_postgres_puts_the_clock_at_most_a_little_ahead() -> None:
    seconds = 0.0

    class Tables:
        async def keep_clock(self, _epoch: Epoch, _time: object) -> object:
            nonlocal seconds
            seconds += 6  # there was no connection for so long
            return EPOCH + timedelta(seconds=seconds)

    clock = LeaderClock(cast("Any", Tables()), Epoch(1), lambda: seconds)
    await clock.keep()
    assert clock() - (EPOCH + timedelta(seconds=seconds)) <= timedelta(seconds=0.05)
