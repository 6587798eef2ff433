import asyncio

import pytest
from support.dashboard_site import Clock

from fluxqueue.dashboard.loop_shares import LoopShares, measured


class Machine:
    """A clock, and CPU time that work takes; a wait ends at once and moves the clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.used = 0.0
        self.waits: list[float] = []
        self.shares = LoopShares(self.clock, lambda: self.used, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(round(seconds, 3))
        self.clock.now += seconds

    async def work(self, seconds: float) -> str:
        self.used += seconds
        await asyncio.sleep(0)
        self.used += seconds
        return "made"


async def test_who_took_the_loop_waits_until_it_was_a_tenth_of_the_time() -> None:
    machine = Machine()
    assert await machine.shares.run("alice", machine.work(0.05)) == "made"
    await machine.shares.wait("bob")
    assert machine.waits == []
    await machine.shares.wait("alice")
    await machine.shares.wait("alice")
    assert machine.waits == [1.0]


async def test_what_others_do_meanwhile_is_not_charged() -> None:
    machine = Machine()
    await asyncio.gather(
        machine.shares.run("alice", machine.work(0.05)), machine.shares.run("bob", machine.work(0.5))
    )
    assert machine.shares.pause_s("alice") == pytest.approx(1.0)
    assert machine.shares.pause_s("bob") == pytest.approx(10.0)


async def test_tasks_that_a_page_begins_are_charged_too() -> None:
    machine = Machine()

    async def page() -> None:
        await asyncio.gather(*(measured(machine.work(0.05)) for _ in range(3)))

    await machine.shares.run("alice", page())
    assert machine.shares.pause_s("alice") == pytest.approx(3.0)
    assert await measured(machine.work(1.0)) == "made"
    assert machine.shares.pause_s("alice") == pytest.approx(3.0)


async def test_a_page_that_fails_or_is_given_up_is_charged_and_ends() -> None:
    machine = Machine()

    async def failing() -> None:
        machine.used += 0.1
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await machine.shares.run("alice", failing())
    assert machine.shares.pause_s("alice") == pytest.approx(1.0)
    ended = asyncio.Event()

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(machine.shares.run("alice", waiting()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_only_those_who_still_wait_are_remembered() -> None:
    machine = Machine()
    for number in range(2_000):
        await machine.shares.run(f"p{number}", machine.work(0.0005))
        machine.clock.now += 1
    assert len(machine.shares._free_at) <= 512
