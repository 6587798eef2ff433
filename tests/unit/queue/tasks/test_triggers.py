"""Requests before a run are one, and none is lost."""

from __future__ import annotations

import asyncio

from fluxqueue.queue.tasks.triggers import ControlTask, Trigger


async def _taken_at_once(trigger: Trigger, task: ControlTask) -> bool:
    """True if a request waits; it is taken."""
    taking = asyncio.create_task(trigger.take(task))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if not taking.done():
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        return False
    return True


async def test_requests_before_a_run_are_one() -> None:
    trigger = Trigger()
    for _ in range(5):
        trigger.schedule()
    assert await _taken_at_once(trigger, ControlTask.SCHEDULE)
    assert not await _taken_at_once(trigger, ControlTask.SCHEDULE)


async def test_each_kind_is_requested_by_itself() -> None:
    trigger = Trigger()
    trigger.release()
    assert not await _taken_at_once(trigger, ControlTask.SCHEDULE)
    assert await _taken_at_once(trigger, ControlTask.RELEASE)


async def test_a_request_after_a_run_began_needs_another_run() -> None:
    trigger = Trigger()
    trigger.schedule()
    await trigger.take(ControlTask.SCHEDULE)
    trigger.schedule()
    assert await _taken_at_once(trigger, ControlTask.SCHEDULE)


async def test_a_worker_that_waits_gets_the_next_request() -> None:
    trigger = Trigger()
    waiting = asyncio.create_task(trigger.take(ControlTask.RELEASE))
    await asyncio.sleep(0)
    assert not waiting.done()
    trigger.release()
    await asyncio.wait_for(waiting, 60)


async def test_each_request_is_reported() -> None:
    reported: list[ControlTask] = []
    trigger = Trigger(reported.append)
    trigger.schedule()
    trigger.schedule()
    assert reported == [ControlTask.SCHEDULE, ControlTask.SCHEDULE]


async def test_a_request_that_has_time_is_made_when_that_is_over() -> None:
    reported: list[ControlTask] = []
    trigger = Trigger(reported.append)
    trigger.schedule(within_s=0.02)
    trigger.schedule(within_s=600)
    assert reported == []
    await asyncio.wait_for(trigger.take(ControlTask.SCHEDULE), 60)
    assert reported == [ControlTask.SCHEDULE]


async def test_a_run_that_begins_before_serves_the_request_that_has_time() -> None:
    reported: list[ControlTask] = []
    trigger = Trigger(reported.append)
    trigger.schedule(within_s=0.02)
    trigger.schedule()
    await trigger.take(ControlTask.SCHEDULE)
    trigger.schedule(within_s=0.05)
    await asyncio.wait_for(trigger.take(ControlTask.SCHEDULE), 60)
    assert reported == [ControlTask.SCHEDULE, ControlTask.SCHEDULE]
