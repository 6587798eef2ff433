from __future__ import annotations

import asyncio

import pytest

from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.tasks import ControlTask, Trigger


class Database:
    """Counts what is deferred; each waits until it is let go."""

    def __init__(self) -> None:
        self.deferred: list[ControlTask] = []
        self.answer = asyncio.Event()
        self.answer.set()
        self.away = False

    async def defer(self, task: ControlTask) -> None:
        self.deferred.append(task)
        await self.answer.wait()
        if self.away:
            raise DatabaseUnavailable("away")


async def test_wishes_for_a_task_that_waits_stay_in_the_process() -> None:
    database = Database()
    trigger = Trigger(database.defer)
    for _ in range(5):
        await trigger.schedule()
    await trigger.release()
    assert database.deferred == [ControlTask.SCHEDULE, ControlTask.RELEASE]


async def test_a_wish_after_the_task_began_is_deferred() -> None:
    database = Database()
    trigger = Trigger(database.defer)
    await trigger.schedule()
    trigger.begun(ControlTask.SCHEDULE)
    await trigger.schedule()
    assert len(database.deferred) == 2


async def test_a_task_that_begins_before_its_deferral_is_answered_leaves_nothing_known() -> None:
    database = Database()
    trigger = Trigger(database.defer)
    database.answer.clear()
    first = asyncio.create_task(trigger.schedule())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(database.deferred) == 1
    trigger.begun(ControlTask.SCHEDULE)
    database.answer.set()
    await first
    await trigger.schedule()
    assert len(database.deferred) == 2


async def test_all_who_wait_for_one_deferral_learn_that_it_failed_and_the_next_tries_anew() -> None:
    database = Database()
    trigger = Trigger(database.defer)
    database.away = True
    database.answer.clear()
    waiting = [asyncio.create_task(trigger.schedule()) for _ in range(3)]
    await asyncio.sleep(0)
    database.answer.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [DatabaseUnavailable] * 3
    assert len(database.deferred) == 1
    database.away = False
    await trigger.schedule()
    assert len(database.deferred) == 2


async def test_a_wish_whose_caller_gave_up_is_still_deferred_for_the_others() -> None:
    database = Database()
    trigger = Trigger(database.defer)
    database.answer.clear()
    impatient = asyncio.create_task(trigger.schedule())
    patient = asyncio.create_task(trigger.schedule())
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    database.answer.set()
    await patient
    assert len(database.deferred) == 1


async def test_what_is_known_is_doubted_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database()
    trigger = Trigger(database.defer)
    now = 100.0
    monkeypatch.setattr("fluxqueue.queue.tasks.time.monotonic", lambda: now)
    await trigger.schedule()
    now = 100.9
    await trigger.schedule()
    assert len(database.deferred) == 1
    now = 101.1
    await trigger.schedule()
    assert len(database.deferred) == 2
