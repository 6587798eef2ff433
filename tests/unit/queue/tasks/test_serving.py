"""One task serves every request that comes while it works, and ends when none comes, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fluxqueue.queue.tasks import serving as module
from fluxqueue.queue.tasks.serving import Serving
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

SCHEDULE, RELEASE = ControlTask.SCHEDULE, ControlTask.RELEASE


class Work:
    """Handlers that note what they did."""

    def __init__(self, trigger: Trigger) -> None:
        self.done: list[ControlTask] = []
        self.trigger = trigger
        self.bodies: dict[ControlTask, Callable[[], Awaitable[float | None]]] = {}

    async def handle(self, kind: ControlTask) -> float | None:
        self.done.append(kind)
        return await self.bodies[kind]() if kind in self.bodies else None


@pytest.fixture
async def work() -> Work:
    return Work(Trigger())


async def serve(work: Work) -> None:
    await asyncio.wait_for(Serving(work.trigger, work.handle).run(), 60)


async def test_it_serves_what_is_requested_and_nothing_else(work: Work) -> None:
    work.trigger.release()
    await serve(work)
    assert work.done == [RELEASE]
    assert not work.trigger.waiting


async def test_a_task_without_a_known_request_carries_out_both(work: Work) -> None:
    await serve(work)
    assert sorted(work.done) == sorted([SCHEDULE, RELEASE])


async def test_requests_while_it_works_are_served_by_the_same_task(work: Work) -> None:
    async def grant() -> float | None:
        work.trigger.release()
        if len(work.done) < 6:
            work.trigger.schedule()
        return None

    work.bodies[SCHEDULE] = grant
    work.trigger.schedule()
    await serve(work)
    assert work.done.count(SCHEDULE) >= 3
    assert RELEASE in work.done
    assert not work.trigger.waiting


async def test_a_long_cycle_does_not_keep_releases_waiting(work: Work) -> None:
    released = asyncio.Event()

    async def grant() -> float | None:
        work.trigger.release()
        await released.wait()
        return None

    async def release() -> float | None:
        released.set()
        return None

    work.bodies = {SCHEDULE: grant, RELEASE: release}
    work.trigger.schedule()
    await serve(work)
    assert work.done == [SCHEDULE, RELEASE]


async def test_what_failed_is_tried_again_by_the_same_task(work: Work) -> None:
    async def fail_twice() -> float | None:
        return 0.001 if work.done.count(RELEASE) <= 2 else None

    work.bodies[RELEASE] = fail_twice
    work.trigger.release()
    await serve(work)
    assert work.done == [RELEASE] * 3


async def test_a_request_ends_the_pause_after_a_failure(work: Work) -> None:
    async def fail_once() -> float | None:
        if len(work.done) > 1:
            return None
        asyncio.get_running_loop().call_soon(work.trigger.schedule)
        return 600

    work.bodies[SCHEDULE] = fail_once
    work.trigger.schedule()
    await serve(work)
    assert work.done == [SCHEDULE] * 2


async def test_an_old_task_ends_when_nothing_is_under_way_and_leaves_requests(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG_S", 0.0)

    async def ask_again() -> float | None:
        work.trigger.schedule()
        return None

    work.bodies[SCHEDULE] = ask_again
    work.trigger.schedule()
    await serve(work)
    assert work.done == [SCHEDULE]
    assert work.trigger.waiting, "the next task is to be deferred for it"


async def test_one_that_is_closed_ends_what_is_under_way_and_begins_nothing(work: Work) -> None:
    begun, hold = asyncio.Event(), asyncio.Event()

    async def wait() -> float | None:
        begun.set()
        await hold.wait()
        return None

    work.bodies[SCHEDULE] = wait
    work.trigger.schedule()
    serving = Serving(work.trigger, work.handle)
    running = asyncio.create_task(serving.run())
    await asyncio.wait_for(begun.wait(), 60)
    serving.close()
    work.trigger.schedule()
    hold.set()
    await asyncio.wait_for(running, 60)
    assert work.done == [SCHEDULE]


async def test_one_that_is_cancelled_ends_its_handlers(work: Work) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> float | None:
        begun.set()
        try:
            await asyncio.Event().wait()
            return None
        finally:
            ended.set()

    work.bodies[RELEASE] = wait
    work.trigger.release()
    running = asyncio.create_task(Serving(work.trigger, work.handle).run())
    await asyncio.wait_for(begun.wait(), 60)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert ended.is_set()


@pytest.mark.parametrize("closed", [False, True], ids=["old", "closed"])
async def test_work_that_is_requested_as_the_task_ends_is_not_begun_and_stays_requested(
    work: Work, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    monkeypatch.setattr(module, "_LONG_S", 600.0 if closed else 0.0)
    serving = Serving(work.trigger, work.handle)

    async def release() -> float | None:
        if closed:
            serving.close()
        work.trigger.schedule()  # a waiting loop for cycles is woken, and the task ends before that runs
        return None

    work.bodies[RELEASE] = release
    work.trigger.release()
    await asyncio.wait_for(serving.run(), 60)
    assert work.done == [RELEASE]
    assert work.trigger.waiting, "the next task is to be deferred for it"
