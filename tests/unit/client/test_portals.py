from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
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
