"""Requests for cycles in a while: the earliest counts, and a later one is another request."""

from __future__ import annotations

from support.controller_bench import TriggerLog, until

from fluxqueue.queue.scheduling.wakeups import Wakeup


async def test_of_several_requests_the_earliest_counts() -> None:
    log = TriggerLog()
    wakeup = Wakeup(log.trigger)
    for delay_s in (600.0, 0.01, 300.0):
        wakeup.soon(delay_s)
    await until(lambda: log.tasks)
    assert log.tasks == ["schedule"]


async def test_a_request_after_the_cycle_was_requested_leads_to_another_one() -> None:
    log = TriggerLog()
    wakeup = Wakeup(log.trigger)
    wakeup.soon(0)
    await until(lambda: log.tasks)
    wakeup.soon(0)
    await until(lambda: len(log.tasks) == 2)
