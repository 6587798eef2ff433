"""A failure of one key does not affect the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY
from support.controller_bench import until

from fluxqueue.queue.store import DatabaseUnavailable, StaleLeader
from fluxqueue.queue.tasks.batches import Batches

LIMIT = 100


class Worker:
    """Works on batches; fails for the keys in ``bad``."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.done: list[str] = []
        self.bad: dict[str, Exception] = {}
        self._moved = asyncio.Event()

    async def work(self, batch: list[str]) -> None:
        self.batches.append(batch)
        self._moved.set()
        for key in batch:
            if key in self.bad:
                raise self.bad[key]
        self.done += batch

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self._moved.clear()
                await self._moved.wait()


@asynccontextmanager
async def running(batches: Batches[str], worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(batches.run(worker.work, limit=LIMIT))
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def counted(name: str) -> float:
    return REGISTRY.get_sample_value("fluxqueue_object_failures_total", {"batch": name}) or 0.0


async def test_if_one_key_of_a_batch_fails_the_others_are_done_at_once() -> None:
    reported: list[tuple[str, str]] = []
    batches: Batches[str] = Batches("one-bad", lambda key, error: reported.append((key, str(error))))
    worker = Worker()
    worker.bad["b"] = TypeError("Integer exceeds 64-bit range")
    for key in "abc":
        batches.add(key)
    async with running(batches, worker):
        await worker.until(lambda: worker.done == ["a", "c"])
    assert worker.batches[:4] == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert reported == [("b", "Integer exceeds 64-bit range")]
    assert counted("one-bad") == 1


async def test_a_key_that_failed_is_handed_out_alone_after_a_pause_until_it_succeeds() -> None:
    batches: Batches[str] = Batches("again")
    worker = Worker()
    worker.bad["b"] = ValueError("no closing quotation")
    batches.add("b")
    async with running(batches, worker):
        await worker.until(lambda: len(worker.batches) == 1)
        for key in "bcd":
            batches.add(key)
        await worker.until(lambda: worker.done == ["c", "d"])
        assert all(batch in (["b"], ["c", "d"]) for batch in worker.batches)
        worker.bad.clear()
        await worker.until(lambda: worker.done == ["c", "d", "b"])
        for key in "ab":
            batches.add(key)
        await worker.until(lambda: worker.batches[-1] == ["a", "b"])


async def test_a_failure_that_the_work_reports_concerns_that_key_alone() -> None:
    batches: Batches[str] = Batches("reported")
    seen: list[list[str]] = []
    twice = asyncio.Event()

    async def work(batch: list[str]) -> None:
        seen.append(batch)
        if "b" in batch and len(seen) == 1:
            batches.fail("b", ValueError("bad"))
        if len(seen) == 2:
            twice.set()

    for key in "abc":
        batches.add(key)
    task = asyncio.create_task(batches.run(work, limit=LIMIT))
    async with asyncio.timeout(60):
        await twice.wait()
    task.cancel()
    assert seen == [["a", "b", "c"], ["b"]]


async def test_while_the_database_is_unavailable_no_key_is_at_fault() -> None:
    reported: list[str] = []
    batches: Batches[str] = Batches("away", lambda key, _error: reported.append(key))
    worker = Worker()
    worker.bad["b"] = DatabaseUnavailable("gone")
    for key in "abc":
        batches.add(key)
    async with running(batches, worker):
        await worker.until(lambda: len(worker.batches) == 2)
        worker.bad.clear()
        await worker.until(lambda: worker.done == ["a", "b", "c"])
    assert all(len(batch) == 3 for batch in worker.batches)
    assert reported == []


async def test_another_leader_ends_the_work() -> None:
    batches: Batches[str] = Batches("stale")
    worker = Worker()
    worker.bad["a"] = StaleLeader("newer")
    batches.add("a")
    async with running(batches, worker) as task:
        with pytest.raises(StaleLeader):
            await asyncio.wait_for(task, 60)


async def test_a_key_that_is_not_urgent_goes_out_with_the_next_one_or_after_its_time() -> None:
    batches: Batches[str] = Batches("collected", pace_s=0.0)
    worker = Worker()
    async with running(batches, worker):
        batches.add_within("a", 3600)
        batches.add_within("b", 0.0)
        await asyncio.sleep(0)
        assert worker.batches == [], "the first of them says when"
        batches.add("c")
        await worker.until(lambda: worker.done == ["a", "b", "c"])
        batches.add_within("d", 0.01)
        await worker.until(lambda: worker.done[-1] == "d")
        batches.add_within("e", 3600)
        batches.flush()
        await worker.until(lambda: worker.done[-1] == "e")
        batches.flush()
    assert worker.batches == [["a", "b", "c"], ["d"], ["e"]]


async def test_many_keys_that_are_added_together_keep_no_other_key_back() -> None:
    batches: Batches[str] = Batches("lanes")
    worker = Worker()
    for number in range(1_000):
        batches.add_later(f"swept-{number}")
    async with running(batches, worker):
        await worker.until(lambda: bool(worker.done))
        batches.add("new")
        await worker.until(lambda: "new" in worker.done)
        assert worker.done.index("new") <= 100
        await worker.until(lambda: len(worker.done) == 1_001)
        assert worker.done[:50] == [f"swept-{number}" for number in range(50)]
        assert len(batches) == 0


async def test_a_burst_does_not_keep_the_other_lane_back() -> None:
    batches: Batches[str] = Batches("burst")
    worker = Worker()
    for number in range(10 * LIMIT):
        batches.add(f"new-{number}")
    batches.add_later("swept")
    async with running(batches, worker):
        await worker.until(lambda: "swept" in worker.done)
        assert len(worker.done) == LIMIT


async def test_a_key_is_in_the_lane_of_who_is_more_urgent() -> None:
    batches: Batches[str] = Batches("both")
    worker = Worker()
    for key in "abc":
        batches.add_later(key)
    batches.add("c")
    batches.add_later("c")
    assert len(batches) == 3
    async with running(batches, worker):
        await worker.until(lambda: len(worker.done) == 3)
    assert worker.batches == [["c", "a", "b"]]


async def test_a_key_is_due_until_its_batch_ends_unless_it_failed() -> None:
    batches: Batches[str] = Batches("due")
    seen: list[bool] = []

    async def work(batch: list[str]) -> None:
        seen.extend(batches.is_due(key) for key in batch)
        if "bad" in batch:
            raise ValueError("bad")

    batches.add_later("later")
    batches.add("bad")
    assert batches.is_due("later")
    assert batches.is_due("bad")
    task = asyncio.create_task(batches.run(work, limit=LIMIT))
    await until(lambda: not batches.is_due("later") and not batches.is_due("bad"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert all(seen[:2])
