from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

import pytest

from fluxqueue.client.portals import Portal


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_coroutines_run_in_the_thread_of_the_portal(portal: Portal) -> None:
    assert portal.call(name_of_thread()) == "fluxqueue-client"


def test_a_call_from_its_own_thread_is_refused_and_does_not_hang(portal: Portal) -> None:
    async def calls() -> None:
        portal.call(name_of_thread())

    with pytest.raises(RuntimeError, match="call it from another one, or use AsyncClient"):
        portal.call(calls())


def test_contexts_are_left_and_tasks_end_when_it_closes() -> None:
    portal, steps = Portal(), []

    @asynccontextmanager
    async def context() -> AsyncIterator[str]:
        steps.append("entered")
        yield "inside"
        steps.append("left")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")

    assert portal.enter(context()) == "inside"
    waiting = portal.start(waits())
    portal.call(asyncio.sleep(0))
    portal.close()
    portal.close()
    assert steps == ["entered", "left", "cancelled"]
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="the client is closed"):
        portal.call(name_of_thread())


def test_an_iteration_that_stops_early_closes_its_source(portal: Portal) -> None:
    closed = threading.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(1_000):
                yield number
        finally:
            closed.set()

    assert list(portal.iterate(_first(numbers(), 3))) == [0, 1, 2]
    items = portal.iterate(numbers())
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]  # a generator
    assert closed.is_set()


def test_ctrl_c_in_an_iteration_stays_ctrl_c(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, closed = threading.Event(), threading.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            waiting.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            closed.set()

    items = portal.iterate(numbers())
    assert next(items) == 1
    result = Future.result

    def interrupted(self: Future[object], timeout: float | None = None) -> object:
        monkeypatch.setattr(Future, "result", result)
        assert waiting.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(items)
    assert closed.is_set()


def test_what_is_called_while_it_closes_is_refused_and_does_not_hang() -> None:
    portal = Portal()
    errors: list[str] = []

    def use() -> None:
        try:
            portal.call(name_of_thread())
        except RuntimeError as error:
            errors.append(str(error))

    class Leaving:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None:
            await asyncio.to_thread(use)

    portal.enter(Leaving())
    portal.close()
    assert errors == ["the client is closed: open another one"]


def test_a_forked_process_is_told_to_open_its_own(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="open another one here"):
            portal.call(name_of_thread())
    assert portal.call(name_of_thread()) == "fluxqueue-client"
    other = Portal()
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        other.close()
    assert other._thread.is_alive()
    other._loop.call_soon_threadsafe(other._loop.stop)
    other._thread.join(60)


async def _first(numbers: AsyncIterator[int], count: int) -> AsyncIterator[int]:
    async for number in numbers:
        if number == count:
            return
        yield number


def test_an_event_is_set_from_any_thread(portal: Portal) -> None:
    event = asyncio.Event()
    waiting = portal.start(event.wait())
    portal.wake(event)
    assert waiting.result(60)
