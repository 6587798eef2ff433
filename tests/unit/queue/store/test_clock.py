"""The two clocks of a leader, while clocks around it are wrong for a time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from support.queue_builders import EPOCH

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store.clock import LeaderClock

HOUR = timedelta(hours=1)
LITTLE = timedelta(seconds=1)


class World:
    """The true time, three clocks that may be wrong, and the tables."""

    def __init__(self, *, api_server: bool = True) -> None:
        self.seconds = 0.0
        self.wrong = {"machine": timedelta(), "postgres": timedelta(), "api-server": timedelta()}
        self.written: datetime | None = None
        self.answer_s = 0.0
        self.steps = 0
        self._api_server = api_server

    @property
    def true(self) -> datetime:
        return EPOCH + timedelta(seconds=self.seconds)

    def clock(self) -> LeaderClock:
        """Return the clock of a new leader."""
        machine = lambda: self.true + self.wrong["machine"]  # noqa: E731
        clock = LeaderClock(
            cast("Any", self), Epoch(1), self._ask_api_server, machine=machine, pace=lambda: self.seconds
        )
        clock.stepped = self._step
        return clock

    def _step(self) -> None:
        self.steps += 1

    async def _ask_api_server(self) -> datetime | None:
        return self.true + self.wrong["api-server"] if self._api_server else None

    async def read_clocks(self) -> tuple[datetime, datetime | None]:
        self.seconds += self.answer_s
        return self.true + self.wrong["postgres"], self.written

    async def keep_clock(self, _epoch: Epoch, time: datetime) -> None:
        assert self.written is None or time >= self.written, "the time of the queue went back"
        self.written = time


async def minutes(world: World, clock: LeaderClock, count: int) -> None:
    """Let this many sweeps pass, and check that the time of the queue never steps."""
    for _ in range(count):
        before = clock()
        world.seconds += 60
        assert timedelta(seconds=47) < clock() - before < timedelta(seconds=73)
        at_once = clock()
        await clock.keep()
        assert abs(clock() - at_once) < timedelta(milliseconds=1)


@pytest.mark.parametrize("which", ["machine", "postgres", "api-server"])
@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_one_clock_that_steps_by_an_hour_and_returns_changes_no_time(which: str, by: timedelta) -> None:
    world = World()
    clock = world.clock()
    await clock.keep()
    await minutes(world, clock, 3)
    world.wrong[which] = by
    await minutes(world, clock, 10)
    assert abs(clock.wall() - world.true) < LITTLE
    assert abs(clock() - world.true) < LITTLE
    assert (await clock.compare())[which] == pytest.approx(by.total_seconds(), abs=1)
    world.wrong[which] = timedelta()
    await minutes(world, clock, 10)
    assert abs(clock() - world.true) < LITTLE
    assert world.steps == 0


@pytest.mark.parametrize("which", ["machine", "postgres", "api-server"])
@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_a_leader_begins_at_the_right_time_though_one_clock_is_wrong(which: str, by: timedelta) -> None:
    world = World()
    world.wrong[which] = by
    clock = world.clock()
    await clock.keep()
    assert abs(clock.wall() - world.true) < LITTLE
    assert abs(clock() - world.true) < LITTLE


async def test_without_the_api_server_the_earlier_of_two_clocks_counts_at_the_beginning() -> None:
    world = World(api_server=False)
    world.wrong["postgres"] = HOUR
    clock = world.clock()
    await clock.keep()
    assert abs(clock.wall() - world.true) < LITTLE


@pytest.mark.parametrize("which", ["machine", "postgres"])
async def test_without_the_api_server_the_clock_that_did_not_step_counts_later(which: str) -> None:
    world = World(api_server=False)
    clock = world.clock()
    await clock.keep()
    world.wrong[which] = HOUR
    await minutes(world, clock, 5)
    assert abs(clock.wall() - world.true) < LITTLE


async def step(world: World, clocks: Iterable[str], by: timedelta) -> None:
    for each in clocks:
        world.wrong[each] = by


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_a_step_of_the_time_of_day_is_followed_after_a_minute(by: timedelta) -> None:
    world = World()
    clock = world.clock()
    await clock.keep()
    await step(world, ("machine", "postgres", "api-server"), by)
    await clock.keep()
    world.seconds += 10
    await clock.keep()
    assert abs(clock.wall() - world.true) < LITTLE, "it may be put right at once"
    await minutes(world, clock, 1)
    assert abs(clock.wall() - (world.true + by)) < LITTLE
    assert world.steps == 1


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_the_time_of_the_queue_approaches_the_time_of_day(by: timedelta) -> None:
    world = World()
    clock = world.clock()
    await clock.keep()
    await step(world, ("machine", "postgres", "api-server"), by)
    await minutes(world, clock, 2)
    assert (await clock.compare())["queue"] == pytest.approx(-by.total_seconds(), abs=60)
    await minutes(world, clock, 150)
    assert (await clock.compare())["queue"] == pytest.approx(-by.total_seconds() / 2, abs=60)
    await minutes(world, clock, 160)
    assert clock() == clock.wall()


async def test_the_next_leader_does_not_begin_before_the_last_time_that_was_written() -> None:
    world = World()
    await step(world, ("machine", "postgres", "api-server"), HOUR)
    former = world.clock()
    await former.keep()
    await step(world, ("machine", "postgres", "api-server"), timedelta())
    clock = world.clock()
    await clock.keep()
    assert clock() >= former() - LITTLE
    assert abs(clock.wall() - world.true) < LITTLE
    await minutes(world, clock, 301)
    assert clock() == clock.wall()


async def test_a_call_that_waited_for_postgres_puts_the_clock_at_most_a_little_ahead() -> None:
    world = World(api_server=False)
    world.answer_s = 6.0  # there was no connection for so long
    clock = world.clock()
    await clock.keep()
    assert clock() - world.true <= timedelta(seconds=0.05)
