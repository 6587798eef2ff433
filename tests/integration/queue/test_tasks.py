from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest

from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store import Database, DatabaseUnavailable, StaleLeader, Store
from fluxqueue.queue.tasks import ControlTask, ControlTasks, WorkersEnded


class Recorder:
    """Handlers that count, and do what a test tells them to."""

    def __init__(self) -> None:
        self.begun: dict[ControlTask, int] = dict.fromkeys(ControlTask, 0)
        self.running: dict[ControlTask, int] = dict.fromkeys(ControlTask, 0)
        self.most: dict[ControlTask, int] = dict.fromkeys(ControlTask, 0)
        self.doing: dict[ControlTask, Callable[[], Awaitable[None]]] = {}
        self._changed = asyncio.Condition()

    async def schedule(self) -> None:
        await self._run(ControlTask.SCHEDULE)

    async def release(self) -> None:
        await self._run(ControlTask.RELEASE)

    async def sweep(self) -> None:
        await self._run(ControlTask.SWEEP)

    async def _run(self, task: ControlTask) -> None:
        async with self._changed:
            self.begun[task] += 1
            self.running[task] += 1
            self.most[task] = max(self.most[task], self.running[task])
            self._changed.notify_all()
        try:
            if task in self.doing:
                await self.doing[task]()
        finally:
            self.running[task] -= 1

    async def until(self, task: ControlTask, times: int, timeout_s: float = 15.0) -> None:
        """Until a handler began this often."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: self.begun[task] >= times)


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def tasks(database: str, store: Store) -> AsyncIterator[ControlTasks]:
    async with ControlTasks(database, store, grace_s=0.2) as opened:
        yield opened


async def _jobs(database: str, condition: str = "true") -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        query = f"SELECT id, task_name, status::text FROM procrastinate.procrastinate_jobs WHERE {condition} ORDER BY id"
        return await (await connection.execute(query.encode())).fetchall()


async def _execute(database: str, statement: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("SET search_path = procrastinate")
        await connection.execute(statement.encode())


async def test_each_task_runs_at_the_start_and_when_asked_for(tasks: ControlTasks, epoch: Epoch) -> None:
    recorder = Recorder()
    async with _in_background(tasks.run_workers(recorder, epoch)):
        for task in ControlTask:
            await recorder.until(task, 1)
        before = dict(recorder.begun)
        await tasks.trigger.schedule()
        await tasks.trigger.release()
        await tasks.trigger.sweep()
        for task in ControlTask:
            await recorder.until(task, before[task] + 1)


async def test_a_hundred_wishes_while_one_runs_become_one_more_run(tasks: ControlTasks, epoch: Epoch, database: str) -> None:
    recorder, hold = Recorder(), asyncio.Event()
    recorder.doing[ControlTask.SCHEDULE] = hold.wait  # type: ignore[assignment]  # its answer is not looked at
    async with _in_background(tasks.run_workers(recorder, epoch)):
        await recorder.until(ControlTask.SCHEDULE, 1)
        await asyncio.gather(*(tasks.trigger.schedule() for _ in range(100)))
        waiting = await _jobs(database, "status = 'todo' AND task_name = 'fluxqueue.schedule'")
        assert len(waiting) == 1
        hold.set()
        await recorder.until(ControlTask.SCHEDULE, 2)
    assert recorder.begun[ControlTask.SCHEDULE] == 2
    assert recorder.most[ControlTask.SCHEDULE] == 1


async def test_a_slow_cycle_does_not_keep_releases_waiting(tasks: ControlTasks, epoch: Epoch) -> None:
    recorder, hold = Recorder(), asyncio.Event()
    recorder.doing[ControlTask.SCHEDULE] = hold.wait  # type: ignore[assignment]  # its answer is not looked at
    async with _in_background(tasks.run_workers(recorder, epoch)):
        await recorder.until(ControlTask.SCHEDULE, 1)
        await recorder.until(ControlTask.RELEASE, 1)
        await tasks.trigger.release()
        await recorder.until(ControlTask.RELEASE, 2)


async def test_no_wake_up_is_lost_under_a_storm_of_changes(tasks: ControlTasks, epoch: Epoch) -> None:
    recorder = Recorder()
    written = seen = 0

    async def look() -> None:
        nonlocal seen
        seen = written

    recorder.doing[ControlTask.SCHEDULE] = look
    async with _in_background(tasks.run_workers(recorder, epoch)):
        for number in range(300):
            written = number + 1
            await tasks.trigger.schedule()
            if number % 7 == 0:
                await asyncio.sleep(0.001 * (number % 5))
        async with asyncio.timeout(0.9):  # before what this process believes to know expires
            while seen < written:
                await recorder.until(ControlTask.SCHEDULE, recorder.begun[ControlTask.SCHEDULE] + 1)
    assert seen == 300


async def test_an_error_is_counted_and_the_task_comes_again(tasks: ControlTasks, epoch: Epoch, database: str) -> None:
    recorder = Recorder()

    async def fail_twice() -> None:
        if recorder.begun[ControlTask.RELEASE] <= 2:
            raise RuntimeError("the API server answered 503")

    recorder.doing[ControlTask.RELEASE] = fail_twice
    async with _in_background(tasks.run_workers(recorder, epoch)) as running:
        await recorder.until(ControlTask.RELEASE, 3)
        assert not running.done()
    assert await _jobs(database, "status NOT IN ('todo', 'doing')") == []


async def test_a_stale_leader_ends_the_workers_with_that_error(tasks: ControlTasks, store: Store, epoch: Epoch) -> None:
    recorder = Recorder()

    async def write() -> None:
        await store.started(epoch, [])

    recorder.doing[ControlTask.SWEEP] = write
    async with _in_background(tasks.run_workers(recorder, epoch)) as running:
        await recorder.until(ControlTask.SWEEP, 1)
        await store.acquire_leadership("replica-1")
        await tasks.trigger.sweep()
        with pytest.raises(StaleLeader):
            await asyncio.wait_for(running, 10)


async def test_a_task_that_was_being_done_when_the_lead_changed_is_done_by_the_new_leader(
    tasks: ControlTasks, store: Store, epoch: Epoch, database: str
) -> None:
    await tasks.trigger.schedule()
    await _execute(database, "UPDATE procrastinate_jobs SET status = 'doing'")
    ((old, _, _),) = await _jobs(database)
    await store.acquire_leadership("replica-1")
    ((new, name, status),) = await _jobs(database)
    assert (name, status) == ("fluxqueue.schedule", "todo")
    assert new != old, "the old worker could acknowledge it away"


async def test_a_task_that_waits_already_is_not_doubled_by_a_take_over(
    tasks: ControlTasks, store: Store, epoch: Epoch, database: str
) -> None:
    await tasks.trigger.schedule()
    await _execute(database, "UPDATE procrastinate_jobs SET status = 'doing'")
    tasks.trigger.begun(ControlTask.SCHEDULE)
    await tasks.trigger.schedule()
    ((_, _, doing), (waiting, _, _)) = await _jobs(database)
    assert doing == "doing"
    await store.acquire_leadership("replica-1")
    assert await _jobs(database) == [(waiting, "fluxqueue.schedule", "todo")]


async def test_the_tasks_of_other_shards_are_left_alone_by_a_take_over(store: Store, database: str) -> None:
    async with ControlTasks(database, store, "gpu") as gpu:
        await gpu.trigger.schedule()
    await _execute(database, "UPDATE procrastinate_jobs SET status = 'doing'")
    before = await _jobs(database)
    await store.acquire_leadership("replica-1")
    assert await _jobs(database) == before


async def test_a_task_done_by_nobody_waits_again_after_two_looks(tasks: ControlTasks, epoch: Epoch, database: str) -> None:
    recorder = Recorder()
    async with _in_background(tasks.run_workers(recorder, epoch)):
        await recorder.until(ControlTask.SCHEDULE, 1)
        before = recorder.begun[ControlTask.SCHEDULE]
        await _execute(
            database,
            "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, status)"
            " VALUES ('schedule/default', 'fluxqueue.schedule', 'schedule:default', 'schedule:default',"
            " '{\"shard\": \"default\"}', 'doing')",
        )
        await recorder.until(ControlTask.SCHEDULE, before + 1)


async def test_a_long_run_is_not_taken_for_one_that_nobody_does(tasks: ControlTasks, epoch: Epoch) -> None:
    recorder, hold = Recorder(), asyncio.Event()
    recorder.doing[ControlTask.SCHEDULE] = hold.wait  # type: ignore[assignment]  # its answer is not looked at
    async with _in_background(tasks.run_workers(recorder, epoch)):
        await recorder.until(ControlTask.SCHEDULE, 1)
        await asyncio.sleep(3.2)  # three looks of the watch
        assert recorder.begun[ControlTask.SCHEDULE] == 1


async def test_cancelling_ends_the_workers_and_the_handlers_within_the_grace(tasks: ControlTasks, epoch: Epoch, database: str) -> None:
    recorder = Recorder()
    recorder.doing[ControlTask.SCHEDULE] = asyncio.Event().wait  # type: ignore[assignment]  # never ends by itself
    running = asyncio.create_task(tasks.run_workers(recorder, epoch))
    await recorder.until(ControlTask.SCHEDULE, 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 5)
    assert recorder.running[ControlTask.SCHEDULE] == 0
    assert await _jobs(database, "status = 'doing'") == []


async def test_workers_that_lose_the_database_end_loudly_and_can_be_run_again(
    tasks: ControlTasks, store: Store, epoch: Epoch, database: str, pool: Database
) -> None:
    recorder = Recorder()
    running = asyncio.create_task(tasks.run_workers(recorder, epoch))
    await recorder.until(ControlTask.SCHEDULE, 1)
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    administration = psycopg.conninfo.make_conninfo(database, dbname="postgres")
    await _execute(administration, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
    await _execute(administration, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    with pytest.raises(WorkersEnded, match="lost"):
        await asyncio.wait_for(running, 60)
    await _execute(administration, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')

    async def keep_running() -> None:
        while True:
            with suppress(WorkersEnded, DatabaseUnavailable):
                await tasks.run_workers(recorder, epoch)

    async with _in_background(keep_running()):
        await recorder.until(ControlTask.SCHEDULE, recorder.begun[ControlTask.SCHEDULE] + 1, 40)


async def test_the_tables_of_jobs_and_events_stay_empty(tasks: ControlTasks, epoch: Epoch, database: str) -> None:
    recorder = Recorder()
    async with _in_background(tasks.run_workers(recorder, epoch)):
        for times in range(1, 20):
            await recorder.until(ControlTask.SCHEDULE, times)
            await tasks.trigger.schedule()
        await recorder.until(ControlTask.SCHEDULE, 20)
    async with await psycopg.AsyncConnection.connect(database) as connection:
        for table, most in (("jobs", 3), ("events", 9)):
            rows = await (await connection.execute(f"SELECT count(*) FROM procrastinate.procrastinate_{table}".encode())).fetchone()
            assert rows is not None
            assert rows[0] <= most
