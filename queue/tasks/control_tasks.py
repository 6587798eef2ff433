"""The control tasks ``schedule`` and ``sweep``: jobs of procrastinate, run by its workers in the leader's
process.

A task carries no work, only the request to do it: what to schedule, release or compare is stored in our own
tables. Of each task at most one runs (its lock), and while it runs, one more may be requested (its queueing
lock). Code that changed something requests a run *after* its commit: within it, a queueing lock that is taken
would abort the change, and a worker might fetch the task before the change is visible. A process that ends
between the two has lost nothing, as each leader requests every task at its start.

``schedule`` asks Fluxion, stores grants and releases them (`fluxqueue.queue.tasks.serving`). What is
requested in the leader's process is also a flag in its memory (`fluxqueue.queue.tasks.triggers`). The flag
makes a task that works go on, so that its row serves many requests. No flag without a row: if no task works,
one is deferred. If that does not begin soon, its worker is notified again, and a row that stops it is looked
for. ``sweep``, which finds whatever else was lost, is requested each minute and at the start. The connection
of its worker also notices at once when Postgres goes away.

Before a task does anything it is fenced: the worker of a replica that does not lead any more finds
`StaleLeader`. A row may stay marked as running although no worker runs it: its acknowledgement was lost with
a connection, or its process was killed. Its lock would stop the task for good. A new leader queues such rows
again as it raises the epoch. Later, only the leader runs tasks, and only in this process, so a watch
compares: a row that is marked as running in two checks in a row, and that this process does not run, is put
back under a new id.

An error of a handler is counted, and the work is tried again after a pause, in the same task.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

import structlog
from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from procrastinate.manager import get_channel_for_queues
from procrastinate.tasks import Task
from prometheus_client import Counter, Histogram

from fluxqueue.api.termination import leaf_errors
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, DatabaseUnavailable, StaleLeader, Store
from fluxqueue.queue.store.connections import cause_of
from fluxqueue.queue.tasks.serving import Serving, within
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

__all__ = ["ControlTaskHandlers", "ControlTasks", "WorkersEnded"]

_log = structlog.get_logger(__name__)

_FAILURES = Counter("fluxqueue_control_task_failures", "Control tasks whose handler raised", ["task"])
_STALLED = Counter(
    "fluxqueue_control_task_stalled",
    "Control tasks that were marked as running and that no worker ran",
    ["task"],
)
_SECONDS = Histogram(
    "fluxqueue_control_task_seconds",
    "How long a control task took",
    ["task"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60),
)

_POLL_S = 30.0
"""Workers are notified of new tasks; they poll for those whose notification was lost."""
_BEGINS_WITHIN_S = 0.5
"""A deferred task that has not begun by then is looked after."""
_HEARTBEAT_S, _WATCH_S = 20.0, 20.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0


class ControlTaskHandlers(Protocol):
    """What the leader does when a control task runs;
    one call of each at a time, calls of different ones concurrently.
    """

    async def schedule(self) -> None:
        """Run a scheduling cycle."""

    async def release(self) -> None:
        """Release granted workloads."""

    async def sweep(self) -> None:
        """Compare objects, rows and the matcher; repair what differs."""


class WorkersEnded(Exception):
    """The worker of the sweeps ended by itself: run the workers again, or restart the process."""


class ControlTasks:
    """The control tasks of one shard, their trigger and their workers.

    Parameters
    ----------
    dsn
        The database of `store`, migrated. The tasks open a pool of their own on it.
    store
        Where jobs that no worker runs are found.
    shard
        The shard whose tasks run here.
    grace_s
        How long running handlers may continue when the workers are stopped, before they are cancelled.
    watch_s
        Time between two checks for sweeps that no worker runs.

    Examples
    --------
    >>> async with ControlTasks(dsn, store) as tasks:
    ...     tasks.trigger.schedule()
    ...     await tasks.run_workers(handlers, epoch)
    """

    def __init__(
        self,
        dsn: str,
        store: Store,
        shard: str = "default",
        *,
        grace_s: float = 1.0,
        watch_s: float = _WATCH_S,
    ) -> None:
        logging.getLogger("procrastinate").setLevel(logging.WARNING)  # four lines for each job otherwise
        self.trigger = Trigger()
        self._store = store
        self._shard = shard
        self._grace_s = grace_s
        self._watch_s = watch_s
        self._database = Database(dsn, size=4, timeout_s=5.0, application_name="fluxqueue-tasks")
        self._app = App(
            connector=PsycopgConnector(json_loads=json.loads), periodic_defaults={"max_delay": 60}
        )
        self._schedule = self._register(ControlTask.SCHEDULE)
        self._sweep = self._register(ControlTask.SWEEP)
        self._app.periodic(cron="* * * * *", periodic_id=shard, task_kwargs={"shard": shard})(self._sweep)
        self._run: _Run | None = None
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect; `DatabaseUnavailable` if that takes too long."""
        await self._resources.enter_async_context(self._database)
        await self._resources.enter_async_context(self._app.open_async(self._database.pool))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    async def run_workers(self, handlers: ControlTaskHandlers, epoch: Epoch) -> None:
        """Run the workers until cancelled; on the leader only.

        Each task runs once at the beginning: an earlier request may have been lost with a former leader.

        Raises
        ------
        WorkersEnded
            A worker ended by itself (its database connections are lost).
        StaleLeader
            A task, or the watch, found that another leader took over.
        DatabaseUnavailable
            The database cannot be reached at the start, or when a task is requested.
        """
        stalled = await self._store.stalled_tasks(self._shard)
        await self._store.requeue_tasks(epoch, [task.id for task in stalled])
        self._run = run = _Run(handlers, epoch)
        self.trigger.schedule()
        self.trigger.release()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.until_stopped(), name="leadership")
                await self.request_sweep()
                group.create_task(self._request_schedules(run), name="requests of schedule")
                for task in (ControlTask.SCHEDULE, ControlTask.SWEEP):
                    group.create_task(self._work_on(task), name=f"worker {task}")
                group.create_task(self._watch(run), name="watch of control tasks")
        except BaseExceptionGroup as several:
            raise _decisive(several) from several
        finally:
            self._run = None

    async def request_sweep(self) -> None:
        """Request a sweep that begins after now; `DatabaseUnavailable` if the request cannot be stored."""
        await self._defer(self._sweep)

    async def _request_schedules(self, run: _Run) -> None:
        """Defer the task ``schedule`` whenever something is requested and no task works; until cancelled.

        This and the watch also look whether the run closes: a connection pool may lose a cancellation
        (`asyncio.wait_for` of Python 3.11).
        """
        while not run.closing.is_set():
            await self.trigger.until_requested()
            if run.serving is not None:
                await run.idle.wait()
                continue
            await self._defer(self._schedule)
            reach(CrashPoint.SCHEDULE_DEFERRED)
            suspects: set[int] = set()
            while (
                not await within(_BEGINS_WITHIN_S, run.working.wait())
                and self.trigger.waiting
                and not run.closing.is_set()
            ):
                suspects = await self._requeue_stalled(run, suspects)
                await self._defer(self._schedule)

    async def _defer(self, task: Task[..., Any, ...]) -> None:
        """Defer a task. If it is deferred already, notify its worker again."""
        try:
            await task.defer_async(shard=self._shard)
        except AlreadyEnqueued:
            (channel,) = get_channel_for_queues([task.queue])
            async with self._database.connection() as connection:
                await connection.execute(
                    "SELECT pg_notify(%s, %s)", (channel, json.dumps({"type": "job_inserted", "job_id": 0}))
                )
        except ConnectorException as error:
            cause = cause_of(error.__cause__ or error)
            raise DatabaseUnavailable(
                f"{self._database.place}: {task.name} could not be requested: {cause}"
            ) from error

    def _register(self, task: ControlTask) -> Task[..., Any, ...]:
        @self._app.task(
            name=f"fluxqueue.{task}",
            queue=f"{task}/{self._shard}",
            lock=f"{task}:{self._shard}",
            queueing_lock=f"{task}:{self._shard}",
            pass_context=True,
        )
        async def work(context: JobContext, timestamp: int = 0, shard: str = "") -> None:
            if (run := self._run) is None or run.closing.is_set():
                return
            job = context.job.id or 0
            run.running.add(job)
            try:
                await self._carry_out(task, run)
            except (StaleLeader, DatabaseUnavailable) as error:
                run.stop(error)
            finally:
                run.running.discard(job)

        return work

    async def _carry_out(self, task: ControlTask, run: _Run) -> None:
        """Carry a task out that a worker has begun, once it is certain that this replica leads."""
        reach(CrashPoint.TASK_BEGUN)
        await self._store.hold(run.epoch)
        if task is ControlTask.SCHEDULE:
            with run.serves(Serving(self.trigger, lambda kind: self._handle(kind, run))) as serving:
                await serving.run()
            return
        while (pause_s := await self._handle(task, run)) is not None:
            await within(pause_s, run.closing.wait())

    async def _handle(self, task: ControlTask, run: _Run) -> float | None:
        """Call a handler; return None, or the seconds until the next attempt."""
        try:
            with _SECONDS.labels(task.value).time():
                await run.handler(task)()
        except StaleLeader as error:
            run.stop(error)
        except Exception as error:
            run.failures[task] += 1
            _FAILURES.labels(task.value).inc()
            pause_s: float = min(_PAUSE_S * 2 ** min(run.failures[task] - 1, 20), _LONGEST_PAUSE_S)
            if isinstance(error, DatabaseUnavailable):
                _log.warning("control_task.failed", task=task.value, error=str(error), retry_s=pause_s)
            else:
                _log.exception("control_task.failed", task=task.value, retry_s=pause_s)
            return pause_s
        else:
            run.failures[task] = 0
        return None

    async def _work_on(self, task: ControlTask) -> None:
        """Run the worker of a task.
        Each has its own: a worker of several looks for the next task only if it is notified.
        """
        try:
            await self._app.run_worker_async(
                queues=[f"{task}/{self._shard}"],
                name=f"{task}-{self._shard}",
                concurrency=1,
                fetch_job_polling_interval=_POLL_S,
                update_heartbeat_interval=_HEARTBEAT_S,
                stalled_worker_timeout=3 * _HEARTBEAT_S,
                shutdown_graceful_timeout=self._grace_s,
                delete_jobs="always",
                install_signal_handlers=False,
            )
        except ConnectorException as error:
            raise WorkersEnded(
                f"the worker of {task} lost {self._database.place}: {cause_of(error.__cause__ or error)}"
            ) from error
        raise WorkersEnded(
            f"the worker of {task} stopped by itself: its listener or heartbeat lost {self._database.place}"
        )

    async def _watch(self, run: _Run) -> None:
        suspects: set[int] = set()
        while not await within(self._watch_s, run.closing.wait()):
            try:
                suspects = await self._requeue_stalled(run, suspects)
            except DatabaseUnavailable as error:
                _log.warning("control_task.watch_failed", error=str(error))

    async def _requeue_stalled(self, run: _Run, suspects: set[int]) -> set[int]:
        """Queue tasks again that were suspects and still have no worker; return those that have none now."""
        stalled = {
            each.id: each
            for each in await self._store.stalled_tasks(self._shard)
            if each.id not in run.running
        }
        if orphans := [stalled[job] for job in suspects & stalled.keys()]:
            await self._store.requeue_tasks(run.epoch, [orphan.id for orphan in orphans])
            for orphan in orphans:
                _STALLED.labels(orphan.task.removeprefix("fluxqueue.")).inc()
                _log.warning("control_task.stalled", task=orphan.task, job=orphan.id, since=orphan.started_at)
        return set(stalled)


class _Run:
    """One call of `run_workers`.

    Attributes
    ----------
    handlers, epoch
        As given.
    running
        Ids of the jobs that run now.
    failures
        Failures in a row of each handler.
    serving
        The task ``schedule`` that works; None: none does.
    working, idle
        Set while one works, and while none does.
    closing
        Set when nothing more may begin.
    """

    def __init__(self, handlers: ControlTaskHandlers, epoch: Epoch) -> None:
        self.handlers = handlers
        self.epoch = epoch
        self.running: set[int] = set()
        self.failures = dict.fromkeys(ControlTask, 0)
        self.serving: Serving | None = None
        self.working, self.idle, self.closing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.idle.set()
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def handler(self, task: ControlTask) -> Callable[[], Awaitable[None]]:
        match task:
            case ControlTask.SCHEDULE:
                return self.handlers.schedule
            case ControlTask.RELEASE:
                return self.handlers.release
            case ControlTask.SWEEP:
                return self.handlers.sweep

    @contextmanager
    def serves(self, serving: Serving) -> Iterator[Serving]:
        """Note that a task ``schedule`` works."""
        self.serving = serving
        self.working.set()
        self.idle.clear()
        try:
            yield serving
        finally:
            self.serving = None
            self.working.clear()
            self.idle.set()

    def stop(self, error: Exception) -> None:
        """Make `run_workers` end with this error."""
        if not self._stopped.done():
            self._stopped.set_exception(error)

    async def until_stopped(self) -> None:
        """Raise the error that `stop` was given.
        When that is raised, or this is cancelled, nothing more begins.
        """
        try:
            await self._stopped
        finally:
            self.closing.set()
            if self.serving is not None:
                self.serving.close()


def _decisive(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error to report: a lost leadership explains all others."""
    leaves = leaf_errors(group)
    return next((error for error in leaves if isinstance(error, StaleLeader)), leaves[0])
