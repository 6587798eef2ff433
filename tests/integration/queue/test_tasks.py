"""Control tasks run once for each change, on one leader, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, DatabaseUnavailable, StaleLeader, Store
from fluxqueue.queue.tasks.control_tasks import ControlTasks, WorkersEnded
from fluxqueue.queue.tasks.triggers import ControlTask


class CountingHandlers:
    """Handlers that count their runs and run what a test puts into ``bodies``."""

    def __init__(self) -> None:
        self.begun: dict[ControlTask, int] = dict.fromkeys(ControlTask, 0)
        self.running: dict[ControlTask, int] = dict.fromkeys(ControlTask, 0)
        self.most: dict[ControlTask, int] = dict.fromkeys(ControlTask, 0)
        self.bodies: dict[ControlTask, Callable[[], Awaitable[None]]] = {}
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
            if task in self.bodies:
                await self.bodies[task]()
        finally:
            self.running[task] -= 1

    async def until(self, task: ControlTask, times: int, timeout_s: float = 15.0) -> None:
        """Wait until a handler has begun this often."""
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
    async with ControlTasks(database, store, grace_s=0.2, watch_s=0.3) as opened:
        yield opened


async def _jobs(database: str, condition: str = "true") -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        query = (
            f"SELECT id, task_name, status::text FROM procrastinate.procrastinate_jobs WHERE {condition} "
            "ORDER BY id"
        )
        return await (await connection.execute(query.encode())).fetchall()


async def _execute(database: str, statement: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("SET search_path = procrastinate")
        await connection.execute(statement.encode())


async def _deferred(database: str) -> int:
    """Return how many jobs were ever deferred."""
    async with await psycopg.AsyncConnection.connect(database) as connection:
        rows = await (
            await connection.execute("SELECT last_value FROM procrastinate.procrastinate_jobs_id_seq")
        ).fetchall()
        return int(rows[0][0])


async def _until_no_task(database: str) -> None:
    """Wait until the task ``schedule`` has ended."""
    async with asyncio.timeout(60):
        while await _jobs(database, "task_name = 'fluxqueue.schedule'"):
            await asyncio.sleep(0.02)


async def _request(tasks: ControlTasks, task: ControlTask) -> None:
    if task is ControlTask.SWEEP:
        await tasks.request_sweep()
    else:
        tasks.trigger.request(task)


async def test_each_task_runs_at_the_start_and_when_requested(tasks: ControlTasks, epoch: Epoch) -> None:
    handlers = CountingHandlers()
    async with _in_background(tasks.run_workers(handlers, epoch)):
        for task in ControlTask:
            await handlers.until(task, 1)
        before = dict(handlers.begun)
        tasks.trigger.schedule()
        tasks.trigger.release()
        await tasks.request_sweep()
        for task in ControlTask:
            await handlers.until(task, before[task] + 1)


@pytest.mark.parametrize("task", [*ControlTask])
async def test_a_hundred_requests_while_one_runs_become_one_more_run(
    tasks: ControlTasks, epoch: Epoch, database: str, task: ControlTask
) -> None:
    handlers, hold = CountingHandlers(), asyncio.Event()
    handlers.bodies[task] = hold.wait  # type: ignore[assignment]  # its result is ignored
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(task, 1)
        for _ in range(100):
            await _request(tasks, task)
        assert len(await _jobs(database, "status = 'todo'")) <= 1
        hold.set()
        await handlers.until(task, 2)
    assert handlers.begun[task] == 2
    assert handlers.most[task] == 1


async def test_a_slow_cycle_does_not_keep_releases_waiting(tasks: ControlTasks, epoch: Epoch) -> None:
    handlers, hold = CountingHandlers(), asyncio.Event()
    handlers.bodies[ControlTask.SCHEDULE] = hold.wait  # type: ignore[assignment]  # its result is ignored
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(ControlTask.SCHEDULE, 1)
        await handlers.until(ControlTask.RELEASE, 1)
        tasks.trigger.release()
        await handlers.until(ControlTask.RELEASE, 2)


async def test_requests_after_a_long_cycle_are_collected_for_one_more(
    tasks: ControlTasks, epoch: Epoch
) -> None:
    handlers = CountingHandlers()

    async def work() -> None:
        await asyncio.sleep(0.2)

    handlers.bodies[ControlTask.SCHEDULE] = work
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(ControlTask.SCHEDULE, 1)
        ended = asyncio.get_running_loop().time() + 0.2
        tasks.trigger.schedule()
        while asyncio.get_running_loop().time() < ended + 0.15:
            await asyncio.sleep(0.01)
            tasks.trigger.schedule()
            assert handlers.begun[ControlTask.SCHEDULE] == 1
        await handlers.until(ControlTask.SCHEDULE, 2)


async def test_a_run_that_is_under_way_may_end_within_the_grace(
    store: Store, epoch: Epoch, database: str
) -> None:
    handlers, hold, ended = CountingHandlers(), asyncio.Event(), list[str]()

    async def finish() -> None:
        await hold.wait()
        ended.append("stored")

    handlers.bodies[ControlTask.RELEASE] = finish
    async with ControlTasks(database, store, grace_s=15) as tasks:
        running = asyncio.create_task(tasks.run_workers(handlers, epoch))
        await handlers.until(ControlTask.RELEASE, 1)
        running.cancel()
        await asyncio.sleep(0.1)
        assert not running.done()
        hold.set()
        await asyncio.gather(running, return_exceptions=True)
    assert ended == ["stored"]


async def test_no_request_is_lost_during_many_changes(tasks: ControlTasks, epoch: Epoch) -> None:
    handlers = CountingHandlers()
    written = seen = 0

    async def look() -> None:
        nonlocal seen
        seen = written

    handlers.bodies[ControlTask.SCHEDULE] = look
    async with _in_background(tasks.run_workers(handlers, epoch)):
        for number in range(300):
            written = number + 1
            tasks.trigger.schedule()
            if number % 7 == 0:
                await asyncio.sleep(0.001 * (number % 5))
        async with asyncio.timeout(60):
            while seen < written:
                await handlers.until(ControlTask.SCHEDULE, handlers.begun[ControlTask.SCHEDULE] + 1)
    assert seen == 300


@pytest.mark.parametrize("task", [ControlTask.RELEASE, ControlTask.SWEEP])
async def test_after_an_error_the_task_runs_again(
    tasks: ControlTasks, epoch: Epoch, database: str, task: ControlTask
) -> None:
    handlers = CountingHandlers()

    async def fail_twice() -> None:
        if handlers.begun[task] <= 2:
            raise RuntimeError("the API server answered 503")

    handlers.bodies[task] = fail_twice
    async with _in_background(tasks.run_workers(handlers, epoch)) as running:
        await handlers.until(task, 3)
        assert not running.done()
    assert await _jobs(database, "status NOT IN ('todo', 'doing')") == []


async def test_a_stale_leader_ends_the_workers_with_that_error(
    tasks: ControlTasks, store: Store, epoch: Epoch
) -> None:
    handlers = CountingHandlers()

    async def write() -> None:
        await store.mark_started(epoch, [])

    handlers.bodies[ControlTask.SWEEP] = write
    async with _in_background(tasks.run_workers(handlers, epoch)) as running:
        await handlers.until(ControlTask.SWEEP, 1)
        await store.acquire_leadership("replica-1")
        await tasks.request_sweep()
        with pytest.raises(StaleLeader):
            await asyncio.wait_for(running, 60)


async def test_requests_of_a_burst_cost_a_handful_of_tasks(
    tasks: ControlTasks, epoch: Epoch, database: str
) -> None:
    handlers, served = CountingHandlers(), 0
    requests = 0

    async def look() -> None:
        nonlocal served
        served = requests
        tasks.trigger.release()

    handlers.bodies[ControlTask.SCHEDULE] = look
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(ControlTask.SCHEDULE, 1)
        before = await _deferred(database)
        for number in range(500):
            requests = number + 1
            tasks.trigger.schedule()
            if number % 50 == 0:
                await asyncio.sleep(0.002)
        async with asyncio.timeout(60):
            while served < 500:
                await asyncio.sleep(0.01)
        assert await _deferred(database) - before <= 25, "a task for every 20 requests at most"


async def test_the_row_of_a_task_stands_while_it_works(
    tasks: ControlTasks, epoch: Epoch, database: str
) -> None:
    handlers, hold = CountingHandlers(), asyncio.Event()
    handlers.bodies[ControlTask.RELEASE] = hold.wait  # type: ignore[assignment]  # its result is ignored
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(ControlTask.RELEASE, 1)
        ((_, name, status),) = await _jobs(database, "task_name = 'fluxqueue.schedule'")
        assert (name, status) == ("fluxqueue.schedule", "doing")
        async with await psycopg.AsyncConnection.connect(database) as connection:
            query = b"SELECT state::text, queue FROM fluxqueue.river_job WHERE kind = 'fluxqueue.schedule'"
            assert await (await connection.execute(query)).fetchall() == [("running", "schedule/default")]
        hold.set()
        await _until_no_task(database)


async def test_a_request_whose_notification_is_lost_is_served(
    tasks: ControlTasks, epoch: Epoch, database: str
) -> None:
    handlers = CountingHandlers()
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(ControlTask.SCHEDULE, 1)
        await _execute(
            database,
            "ALTER TABLE procrastinate_jobs DISABLE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1",
        )
        await _until_no_task(database)
        before = handlers.begun[ControlTask.SCHEDULE]
        tasks.trigger.schedule()
        await handlers.until(ControlTask.SCHEDULE, before + 1)


async def test_a_request_whose_row_is_deleted_is_served(
    tasks: ControlTasks, epoch: Epoch, database: str
) -> None:
    handlers = CountingHandlers()
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(ControlTask.SCHEDULE, 1)
        await _until_no_task(database)
        await _execute(
            database,
            "ALTER TABLE procrastinate_jobs DISABLE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1",
        )
        before = handlers.begun[ControlTask.SCHEDULE]
        tasks.trigger.schedule()
        async with asyncio.timeout(60):
            while (
                not await _jobs(database, "task_name = 'fluxqueue.schedule'")
                and handlers.begun[ControlTask.SCHEDULE] == before
            ):
                await asyncio.sleep(0.01)
        await _execute(
            database,
            "DELETE FROM procrastinate_jobs WHERE task_name = 'fluxqueue.schedule' AND status = 'todo'",
        )
        await handlers.until(ControlTask.SCHEDULE, before + 1)


async def test_a_row_that_no_worker_runs_stops_no_request(
    tasks: ControlTasks, epoch: Epoch, database: str
) -> None:
    handlers = CountingHandlers()
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(ControlTask.SCHEDULE, 1)
        await _until_no_task(database)
        await _execute(
            database,
            "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, status)"
            " VALUES ('schedule/default', 'fluxqueue.schedule', 'schedule:default', 'schedule:default',"
            " '{\"shard\": \"default\"}', 'doing')",
        )
        before = handlers.begun[ControlTask.SCHEDULE]
        tasks.trigger.schedule()
        await handlers.until(ControlTask.SCHEDULE, before + 1, 60)


async def test_a_replica_that_does_not_lead_any_more_carries_nothing_out(
    tasks: ControlTasks, store: Store, epoch: Epoch
) -> None:
    handlers = CountingHandlers()
    async with _in_background(tasks.run_workers(handlers, epoch)) as running:
        await handlers.until(ControlTask.SCHEDULE, 1)
        await asyncio.sleep(0.3)
        await store.acquire_leadership("replica-1")
        before = dict(handlers.begun)
        await tasks.request_sweep()
        with pytest.raises(StaleLeader):
            await asyncio.wait_for(running, 60)
        assert handlers.begun[ControlTask.SWEEP] == before[ControlTask.SWEEP]


@pytest.mark.parametrize("task", [ControlTask.SCHEDULE, ControlTask.SWEEP])
async def test_a_task_that_ran_when_the_leader_changed_runs_on_the_new_leader(
    tasks: ControlTasks, store: Store, epoch: Epoch, database: str, task: ControlTask
) -> None:
    await _execute(
        database,
        "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, status)"
        f" VALUES ('{task}/default', 'fluxqueue.{task}', '{task}:default', '{task}:default', "
        f"'{{\"shard\": \"default\"}}', 'doing')",
    )
    ((old, _, _),) = await _jobs(database)
    await store.acquire_leadership("replica-1")
    ((new, name, status),) = await _jobs(database)
    assert (name, status) == (f"fluxqueue.{task}", "todo")
    assert new != old, "the old worker could acknowledge and so delete it"


async def test_a_new_leader_does_not_duplicate_a_waiting_task(
    tasks: ControlTasks, store: Store, epoch: Epoch, database: str
) -> None:
    await tasks.request_sweep()
    await _execute(database, "UPDATE procrastinate_jobs SET status = 'doing'")
    await tasks.request_sweep()
    ((_, _, doing), (waiting, _, _)) = await _jobs(database)
    assert doing == "doing"
    await store.acquire_leadership("replica-1")
    assert await _jobs(database) == [(waiting, "fluxqueue.sweep", "todo")]


async def test_a_new_leader_does_not_touch_the_tasks_of_other_shards(store: Store, database: str) -> None:
    async with ControlTasks(database, store, "gpu") as gpu:
        await gpu.request_sweep()
    await _execute(database, "UPDATE procrastinate_jobs SET status = 'doing'")
    before = await _jobs(database)
    await store.acquire_leadership("replica-1")
    assert await _jobs(database) == before


async def test_a_task_that_no_worker_runs_waits_again_after_two_checks(
    tasks: ControlTasks, epoch: Epoch, database: str
) -> None:
    handlers = CountingHandlers()
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(ControlTask.SWEEP, 1)
        async with asyncio.timeout(60):
            while await _jobs(database, "status = 'doing' AND task_name = 'fluxqueue.sweep'"):
                await asyncio.sleep(0.02)  # it has started, and the table may not show its end yet
        before = handlers.begun[ControlTask.SWEEP]
        await _execute(
            database,
            "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, status)"
            " VALUES ('sweep/default', 'fluxqueue.sweep', 'sweep:default', 'sweep:default',"
            " '{\"shard\": \"default\"}', 'doing')",
        )
        await handlers.until(ControlTask.SWEEP, before + 1)


async def test_a_long_run_does_not_count_as_stalled(tasks: ControlTasks, epoch: Epoch) -> None:
    handlers, hold = CountingHandlers(), asyncio.Event()
    handlers.bodies[ControlTask.SWEEP] = hold.wait  # type: ignore[assignment]  # its result is ignored
    async with _in_background(tasks.run_workers(handlers, epoch)):
        await handlers.until(ControlTask.SWEEP, 1)
        await asyncio.sleep(1.0)  # three checks of the watch
        assert handlers.begun[ControlTask.SWEEP] == 1


@pytest.mark.parametrize("task", [ControlTask.SCHEDULE, ControlTask.SWEEP])
async def test_cancelling_ends_the_workers_and_the_handlers_within_the_grace(
    tasks: ControlTasks, epoch: Epoch, database: str, task: ControlTask
) -> None:
    handlers = CountingHandlers()
    handlers.bodies[task] = asyncio.Event().wait  # type: ignore[assignment]  # never ends by itself
    running = asyncio.create_task(tasks.run_workers(handlers, epoch))
    await handlers.until(task, 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)
    assert handlers.running[task] == 0
    assert await _jobs(database, "status = 'doing'") == []


async def test_workers_that_lose_the_database_end_with_an_error_and_can_run_again(
    tasks: ControlTasks, store: Store, epoch: Epoch, database: str, pool: Database
) -> None:
    handlers = CountingHandlers()
    running = asyncio.create_task(tasks.run_workers(handlers, epoch))
    await handlers.until(ControlTask.SCHEDULE, 1)
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    administration = psycopg.conninfo.make_conninfo(database, dbname="postgres")
    await _execute(administration, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
    await _execute(
        administration, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    )
    with pytest.raises((WorkersEnded, DatabaseUnavailable), match="lost|went away"):  # or a task is at work
        await asyncio.wait_for(running, 60)
    await _execute(administration, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')

    async def keep_running() -> None:
        while True:
            with suppress(WorkersEnded, DatabaseUnavailable):
                await tasks.run_workers(handlers, epoch)

    async with _in_background(keep_running()):
        await handlers.until(ControlTask.SCHEDULE, handlers.begun[ControlTask.SCHEDULE] + 1, 40)


async def test_the_tables_of_jobs_and_events_stay_empty(
    tasks: ControlTasks, epoch: Epoch, database: str
) -> None:
    handlers = CountingHandlers()
    async with _in_background(tasks.run_workers(handlers, epoch)):
        for times in range(1, 20):
            await handlers.until(ControlTask.SWEEP, times)
            await tasks.request_sweep()
        await handlers.until(ControlTask.SWEEP, 20)
    async with await psycopg.AsyncConnection.connect(database) as connection:
        for table, most in (("jobs", 3), ("events", 9)):
            rows = await (
                await connection.execute(f"SELECT count(*) FROM procrastinate.procrastinate_{table}".encode())
            ).fetchone()
            assert rows is not None
            assert rows[0] <= most
