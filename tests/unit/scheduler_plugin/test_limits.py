"""How many binds may be in flight, depending on the server's responses."""

from __future__ import annotations

import asyncio

import pytest

from fluxqueue.scheduler_plugin.limits import LONGEST_PAUSE_S, BindLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_the_limit_is_kept_and_callers_are_served_in_order(clock: Clock) -> None:
    limit = BindLimit(first=2, most=8, clock=clock)
    order: list[int] = []

    async def call(number: int) -> None:
        await limit.acquire()
        order.append(number)

    calls = [asyncio.create_task(call(number)) for number in range(5)]
    await settle()
    assert order == [0, 1]
    limit.done()
    await settle()
    assert order == [0, 1, 2]
    limit.done()
    limit.done()
    await asyncio.gather(*calls)
    assert order == [0, 1, 2, 3, 4]
    assert limit.in_flight == 2


async def test_each_round_of_successes_allows_one_more_up_to_the_most(clock: Clock) -> None:
    limit = BindLimit(first=4, most=5, clock=clock)
    for _ in range(2):
        for _ in range(int(limit.value)):
            await limit.acquire()
        for _ in range(limit.in_flight):
            limit.succeeded()
    assert 4.2 < limit.value < 5
    for _ in range(50):
        while limit.in_flight < int(limit.value):
            await limit.acquire()
        limit.succeeded()
    assert limit.value == 5


async def test_success_without_load_does_not_raise_the_limit(clock: Clock) -> None:
    limit = BindLimit(first=4, most=8, clock=clock)
    for _ in range(20):
        await limit.acquire()
        limit.succeeded()
    assert limit.value == 4


async def test_calls_that_fail_together_halve_the_limit_once(clock: Clock) -> None:
    limit = BindLimit(first=16, clock=clock)
    tickets = [await limit.acquire() for _ in range(16)]
    for ticket in tickets:
        limit.overloaded(ticket)
    assert limit.value == 8
    limit.overloaded(await limit.acquire())
    assert limit.value == 4
    for _ in range(9):
        limit.overloaded(await limit.acquire())
    assert limit.value == 1


async def test_no_call_is_sent_before_the_time_in_retry_after(clock: Clock) -> None:
    limit = BindLimit(first=2, clock=clock)
    limit.overloaded(await limit.acquire(), pause_s=7.0)
    waiting = asyncio.create_task(limit.acquire())
    await settle()
    clock.now = 6.9
    limit._wake()
    await settle()
    assert not waiting.done()
    clock.now = 7.0
    limit._resume()
    await settle()
    assert waiting.done()


async def test_a_requested_pause_of_an_hour_is_cut_to_half_a_minute(clock: Clock) -> None:
    limit = BindLimit(clock=clock)
    limit.overloaded(await limit.acquire(), pause_s=3600.0)
    clock.now = LONGEST_PAUSE_S
    async with asyncio.timeout(60):
        await limit.acquire()


async def test_a_cancelled_caller_passes_its_slot_to_the_next(clock: Clock) -> None:
    limit = BindLimit(first=1, clock=clock)
    await limit.acquire()
    first, second = asyncio.create_task(limit.acquire()), asyncio.create_task(limit.acquire())
    await settle()
    limit.done()
    first.cancel()
    await settle()
    assert second.done()
    assert limit.in_flight == 1
