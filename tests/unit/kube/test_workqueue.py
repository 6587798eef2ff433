import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from fluxqueue.api.termination import EndsProcess
from fluxqueue.kube.errors import Conflict
from fluxqueue.kube.workqueue import ShutDown, WorkQueue, run_workers


async def test_a_waiting_key_is_not_added_twice() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert queue.depth == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_a_key_added_while_it_is_worked_on_waits_for_the_end_and_comes_once_more() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    queue.add("a")
    assert queue.depth == 0
    queue.done(key)
    assert queue.depth == 1
    queue.done(await queue.get())
    assert queue.depth == 0


async def test_waiting_getters_are_served_in_turn_and_a_cancelled_one_passes_its_key_on() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    first, second = asyncio.ensure_future(queue.get()), asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 60) == "a"
    assert first.cancelled()


async def test_of_two_delays_the_earlier_counts() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add_after("a", 3_600)
    queue.add_after("a", 0.01)
    queue.add_after("a", 7_200)
    assert queue.delayed == 1
    assert await asyncio.wait_for(queue.get(), 60) == "a"
    assert queue.delayed == 0


async def test_failures_double_the_delay_and_forgetting_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    delays: list[float] = []
    monkeypatch.setattr(queue, "add_after", lambda key, delay_s: delays.append(delay_s))
    for _ in range(16):
        queue.add_rate_limited("a")
    assert delays[:4] == pytest.approx([0.005, 0.01, 0.02, 0.04])
    assert delays[-1] == 60
    assert queue.num_requeues("a") == 16
    queue.forget("a")
    queue.add_rate_limited("a")
    assert delays[-1] == 0.005
    assert queue.num_requeues("b") == 0


async def test_after_shut_down_the_rest_is_handed_out_and_then_no_more() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add("a")
    queue.add_after("later", 0.01)
    queue.shut_down()
    queue.add("b")
    assert await queue.get() == "a"
    with pytest.raises(ShutDown):
        await queue.get()


async def test_shut_down_wakes_everybody_who_waits() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    getters = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.shut_down()
    results = await asyncio.wait_for(asyncio.gather(*getters, return_exceptions=True), 60)
    assert all(isinstance(result, ShutDown) for result in results)


async def test_no_two_workers_ever_have_the_same_key_and_no_addition_is_lost() -> None:
    queue: WorkQueue[int] = WorkQueue("test")
    busy: set[int] = set()
    latest: dict[int, int] = {}
    seen: dict[int, int] = {}

    async def reconcile(key: int) -> None:
        assert key not in busy
        busy.add(key)
        version = latest[key]
        await asyncio.sleep(0)
        seen[key] = version
        busy.discard(key)

    workers = asyncio.create_task(run_workers(queue, 4, reconcile))
    for version in range(500):
        latest[version % 7] = version
        queue.add(version % 7)
        if version % 3 == 0:
            await asyncio.sleep(0)
    await asyncio.wait_for(queue.join(), 60)
    assert seen == latest
    queue.shut_down()
    await asyncio.wait_for(workers, 60)


async def test_a_key_that_fails_is_tried_again_until_it_succeeds_and_logged_once_per_error() -> None:
    queue: WorkQueue[str] = WorkQueue("test", base_s=0.001)
    tries: Counter[str] = Counter()

    async def reconcile(key: str) -> None:
        tries[key] += 1
        if tries[key] < 4:
            raise Conflict(409, "Conflict", "changed meanwhile")
        if tries[key] < 6:
            raise ValueError("a bug")
        queue.shut_down()

    queue.add("a")
    with capture_logs() as logs:
        await asyncio.wait_for(run_workers(queue, 2, reconcile), 60)
    assert tries["a"] == 6
    assert queue.num_requeues("a") == 0
    levels = [entry["log_level"] for entry in logs]
    assert levels == ["warning", "debug", "debug", "error", "debug"]
    assert logs[0]["key"] == "a"


async def test_a_reconcile_can_ask_for_its_key_again() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    tries: Counter[str] = Counter()

    async def reconcile(key: str) -> float | None:
        tries[key] += 1
        if tries[key] == 3:
            queue.shut_down()
        return 0.001

    queue.add("a")
    await asyncio.wait_for(run_workers(queue, 1, reconcile), 60)
    assert tries["a"] == 3


async def test_cancelling_the_workers_ends_them_and_the_key_at_hand_is_free_again() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    started = asyncio.Event()

    async def reconcile(key: str) -> None:
        started.set()
        await asyncio.Event().wait()

    queue.add("a")
    workers = asyncio.create_task(run_workers(queue, 2, reconcile))
    await asyncio.wait_for(started.wait(), 60)
    workers.cancel()
    with pytest.raises(asyncio.CancelledError):
        await workers
    queue.add("a")
    assert await queue.get() == "a"


async def test_a_key_added_as_a_worker_is_cancelled_goes_to_another_worker() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    cancelled, other = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    queue.add("key")
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await asyncio.wait_for(other, 60) == "key"


async def test_an_error_that_ends_the_process_is_not_a_failure_of_the_key() -> None:
    queue: WorkQueue[str] = WorkQueue("test")

    async def reconcile(key: str) -> None:
        raise EndsProcess(key)

    queue.add("a")
    with pytest.RaisesGroup(EndsProcess):
        await asyncio.wait_for(run_workers(queue, 2, reconcile), 60)


async def test_many_keys_that_need_no_call_let_others_go_on_in_between() -> None:
    queue: WorkQueue[int] = WorkQueue("test")
    done = 0
    seen: list[int] = []

    async def reconcile(_key: int) -> None:
        nonlocal done
        done += 1

    async def other() -> None:
        while done < 1_000:
            seen.append(done)
            await asyncio.sleep(0)

    for key in range(1_000):
        queue.add(key)
    queue.shut_down()
    await asyncio.wait_for(asyncio.gather(run_workers(queue, 4, reconcile), other()), 60)
    assert max(after - before for before, after in pairwise(seen)) <= 200


async def test_a_key_is_due_until_it_is_processed_unless_it_failed_last() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add_after("delayed", 3_600)
    queue.add("a")
    assert queue.is_due("a")
    assert not queue.is_due("delayed")
    key = await queue.get()
    assert queue.is_due("a"), "it is processed"
    queue.add_rate_limited(key)
    queue.add(key)
    queue.done(key)
    assert not queue.is_due("a"), "it failed, and is tried again"
    queue.forget(await queue.get())
    assert queue.is_due("a")
    queue.done(key)
    assert not queue.is_due("a")


async def test_a_key_of_a_worker_that_is_cancelled_in_its_turn_for_others_can_be_had_again() -> None:
    queue: WorkQueue[int] = WorkQueue("test")
    done: list[int] = []

    async def reconcile(key: int) -> None:
        done.append(key)

    for key in range(50):
        queue.add(key)
    task = asyncio.create_task(run_workers(queue, 1, reconcile))
    while len(done) < 49:
        await asyncio.sleep(0)
    next(each for each in asyncio.all_tasks() if each.get_name() == "test-0").cancel()
    await task
    assert len(done) == 49
    queue.add(49)
    assert await asyncio.wait_for(queue.get(), 60) == 49
