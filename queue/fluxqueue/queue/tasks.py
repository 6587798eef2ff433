"""The control tasks ``schedule``, ``release`` and ``sweep``, as procrastinate jobs.

They carry no work, only the wish that it be done: what is to be scheduled, released or compared stands in our own tables. Each kind has
a queueing lock, so at most one job of it waits, and a lock, so at most one is done; while one is done one more may wait. That is a
dirty flag that outlives processes: whoever changed something defers *after* his commit, and is served by the job that waits or by a new
one, which begins after that.

`Trigger` keeps most of that away from the database: while this process knows of a waiting job that has not begun, there is nothing to
ask for. The knowledge ends when a handler begins, and after a second in any case.

Three workers, one job at a time each, run on the leader only, on queues of their own: with more than one job at a time procrastinate
would leave the successor of a locked job to the next poll, and a job of the future would block all later ones of its lock, so nothing
here is retried or scheduled by procrastinate. An error of a handler is counted and its kind asked for again after a pause. A periodic
sweep each minute finds whatever else was lost.

A job may be left marked as being done though nobody does it: its acknowledgement got lost with a connection. Its lock would stop its
kind for good. Only the leader works, and in this process, so a watch compares: what is marked for two looks in a row and not being done
here waits again, under a new id.
"""

from __future__ import annotations

import asyncio
import enum
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import structlog
from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from prometheus_client import Counter, Histogram

from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store import Database, DatabaseUnavailable, StaleLeader, Store

__all__ = ["ControlTask", "ControlTasks", "Handlers", "Trigger", "WorkersEnded"]

_log = structlog.get_logger(__name__)

_FAILURES = Counter("fluxqueue_control_task_failures", "Control tasks whose handler raised", ["task"])
_STALLED = Counter("fluxqueue_control_task_stalled", "Control tasks found marked as being done by nobody", ["task"])
_SECONDS = Histogram(
    "fluxqueue_control_task_seconds", "How long a control task took", ["task"], buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60)
)

_KNOWN_S = 1.0
_POLL_S = 0.25
_WATCH_S = 1.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0


class ControlTask(enum.StrEnum):
    """What can be asked for."""

    SCHEDULE = "schedule"
    RELEASE = "release"
    SWEEP = "sweep"


class Handlers(Protocol):
    """What the service does when a control task runs; one call of each at a time, calls of different ones side by side."""

    async def schedule(self) -> None:
        """Run a scheduling cycle."""

    async def release(self) -> None:
        """Let granted workloads go."""

    async def sweep(self) -> None:
        """Compare objects, rows and the matcher; repair what differs."""


class WorkersEnded(Exception):
    """A worker of the control tasks ended by itself: run the workers again, or end the process and let it be started again."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A job that waits, as far as this process knows, once `deferring` is done."""

    deferring: asyncio.Task[None]
    at: float


class Trigger:
    """Asks for control tasks. Call it after the commit of what the task is to see.

    Parameters
    ----------
    defer
        Puts a job into the database, or finds one waiting.
    """

    def __init__(self, defer: Callable[[ControlTask], Awaitable[None]]) -> None:
        self._defer = defer
        self._asked: dict[ControlTask, _Asked] = {}

    async def schedule(self) -> None:
        """Ask for a scheduling cycle that begins after now; `DatabaseUnavailable` if that cannot be noted."""
        await self.ask(ControlTask.SCHEDULE)

    async def release(self) -> None:
        """Ask for releases."""
        await self.ask(ControlTask.RELEASE)

    async def sweep(self) -> None:
        """Ask for a sweep."""
        await self.ask(ControlTask.SWEEP)

    async def ask(self, task: ControlTask) -> None:
        """Ask for a control task. When this returns, a run of it that begins after the call is certain.

        Raises
        ------
        DatabaseUnavailable
            If the wish could not be stored.
        """
        asked = self._asked.get(task)
        if asked is None or time.monotonic() - asked.at > _KNOWN_S:
            asked = _Asked(asyncio.ensure_future(self._put(task)), time.monotonic())
            asked.deferring.add_done_callback(_look_at)
            self._asked[task] = asked
        try:
            await asyncio.shield(asked.deferring)
        except BaseException:
            if self._asked.get(task) is asked and asked.deferring.done():
                del self._asked[task]
            raise

    async def _put(self, task: ControlTask) -> None:
        await self._defer(task)

    def begun(self, task: ControlTask) -> None:
        """A run begins: what is asked for from now on needs another. Called before the run looks at anything."""
        self._asked.pop(task, None)


class ControlTasks:
    """The control tasks of one shard, their trigger and their workers.

    Parameters
    ----------
    dsn
        The database of `store`, migrated. A pool of its own is opened on it.
    store
        Where jobs nobody does are looked for.
    shard
        Whose tasks.
    grace_s
        How long running handlers may go on when the workers are stopped, before they are cancelled.

    Examples
    --------
    >>> async with ControlTasks(dsn, store) as tasks:
    ...     await tasks.trigger.schedule()
    ...     await tasks.run_workers(handlers, epoch)
    """

    def __init__(self, dsn: str, store: Store, shard: str = "default", *, grace_s: float = 1.0) -> None:
        logging.getLogger("procrastinate").setLevel(logging.WARNING)  # four lines for each job otherwise
        self.trigger = Trigger(self._defer)
        self._store = store
        self._shard = shard
        self._grace_s = grace_s
        self._database = Database(dsn, size=8, timeout_s=5.0, application_name="fluxqueue-tasks", trusted_s=0.0)
        self._app = App(connector=PsycopgConnector(json_loads=json.loads), periodic_defaults={"max_delay": 60})
        self._tasks = {task: self._register(task) for task in ControlTask}
        self._app.periodic(cron="* * * * *", periodic_id=shard, task_kwargs={"shard": shard})(self._tasks[ControlTask.SWEEP])
        self._run: _Run | None = None
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect; `DatabaseUnavailable` if that takes too long."""
        await self._resources.enter_async_context(self._database)
        await self._resources.enter_async_context(self._app.open_async(self._database.pool))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._resources.aclose()

    async def run_workers(self, handlers: Handlers, epoch: Epoch) -> None:
        """Run the workers until cancelled; on the leader only.

        Begins with each task once: whatever was asked for before may have been lost with a former leader.

        Parameters
        ----------
        handlers
            What the tasks do.
        epoch
            Of the leader.

        Raises
        ------
        WorkersEnded
            If a worker ended by itself (its database connections are gone).
        StaleLeader
            If a handler, or the watch, found that another leader took over.
        DatabaseUnavailable
            If the database cannot be reached to begin with.
        """
        stalled = await self._store.stalled_tasks(self._shard)
        await self._store.requeue_tasks(epoch, [task.id for task in stalled])
        self._run = run = _Run(handlers)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.until_stopped(), name="leadership")
                for task in ControlTask:
                    self.trigger.begun(task)
                    await self.trigger.ask(task)
                    group.create_task(self._work(task), name=f"worker {task}")
                group.create_task(self._watch(epoch, run), name="watch over control tasks")
        except BaseExceptionGroup as several:
            raise _worst(several) from several
        finally:
            self._run = None
            await run.end()

    async def _defer(self, task: ControlTask) -> None:
        try:
            await self._tasks[task].defer_async(shard=self._shard)
        except AlreadyEnqueued:
            return
        except ConnectorException as error:
            raise DatabaseUnavailable(f"{self._database.place}: {task} could not be asked for: {error.__cause__ or error}") from error

    def _register(self, task: ControlTask):  # type: ignore[no-untyped-def]  # the type is procrastinate's affair: Task[..., ..., ...]
        @self._app.task(
            name=f"fluxqueue.{task}",
            queue=f"{task}/{self._shard}",
            lock=f"{task}:{self._shard}",
            queueing_lock=f"{task}:{self._shard}",
            pass_context=True,
        )
        async def run(context: JobContext, timestamp: int = 0, shard: str = "") -> None:
            if self._run is not None:
                await self._handle(task, context.job.id or 0, self._run)

        return run

    async def _handle(self, task: ControlTask, job: int, run: _Run) -> None:
        self.trigger.begun(task)
        run.doing.add(job)
        try:
            with _SECONDS.labels(task.value).time():
                await run.handler(task)()
            run.failures[task] = 0
        except StaleLeader as error:
            run.stop(error)
        except Exception as error:
            run.failures[task] += 1
            _FAILURES.labels(task.value).inc()
            pause_s = min(_PAUSE_S * 2 ** min(run.failures[task] - 1, 20), _LONGEST_PAUSE_S)
            if isinstance(error, DatabaseUnavailable):
                _log.warning("control task failed", task=task.value, error=str(error), again_in_s=pause_s)
            else:
                _log.exception("control task failed", task=task.value, again_in_s=pause_s)
            run.later(self._again(task, pause_s))
        finally:
            run.doing.discard(job)

    async def _again(self, task: ControlTask, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                return await self.trigger.ask(task)
            except DatabaseUnavailable as error:
                _log.warning("control task cannot be asked for", task=task.value, error=str(error))

    async def _work(self, task: ControlTask) -> None:
        try:
            await self._app.run_worker_async(
                queues=[f"{task}/{self._shard}"],
                name=f"{task}-{self._shard}",
                concurrency=1,
                fetch_job_polling_interval=_POLL_S,
                shutdown_graceful_timeout=self._grace_s,
                delete_jobs="always",
                install_signal_handlers=False,
            )
        except ConnectorException as error:
            raise WorkersEnded(f"the worker of {task} lost {self._database.place}: {error.__cause__ or error}") from error
        raise WorkersEnded(f"the worker of {task} stopped by itself: its listener or heartbeat lost {self._database.place}")

    async def _watch(self, epoch: Epoch, run: _Run) -> None:
        suspects: set[int] = set()
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                stalled = {each.id: each for each in await self._store.stalled_tasks(self._shard) if each.id not in run.doing}
                if orphans := [stalled[job] for job in suspects & stalled.keys()]:
                    await self._store.requeue_tasks(epoch, [orphan.id for orphan in orphans])
                    for orphan in orphans:
                        _STALLED.labels(orphan.task.removeprefix("fluxqueue.")).inc()
                        _log.warning("control task was done by nobody", task=orphan.task, job=orphan.id, since=orphan.started_at)
            except DatabaseUnavailable as error:
                _log.warning("control tasks cannot be watched", error=str(error))
            else:
                suspects = set(stalled)


class _Run:
    """One stretch of leadership: who handles, what is being done, what went wrong."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.doing: set[int] = set()
        self.failures = dict.fromkeys(ControlTask, 0)
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._later: set[asyncio.Task[None]] = set()

    def handler(self, task: ControlTask) -> Callable[[], Awaitable[None]]:
        match task:
            case ControlTask.SCHEDULE:
                return self.handlers.schedule
            case ControlTask.RELEASE:
                return self.handlers.release
            case ControlTask.SWEEP:
                return self.handlers.sweep

    def stop(self, error: Exception) -> None:
        """Let `run_workers` end with this error."""
        if not self._stopped.done():
            self._stopped.set_exception(error)

    async def until_stopped(self) -> None:
        """Raises what `stop` was given."""
        await self._stopped

    def later(self, work: Coroutine[None, None, None]) -> None:
        """Do something beside the workers, until the end at most."""
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def end(self) -> None:
        """Drop what was to be done later."""
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)


def _worst(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error to tell: losing the lead explains all others."""
    leaves: list[BaseException] = []
    for error in several.exceptions:
        leaves += [_worst(error)] if isinstance(error, BaseExceptionGroup) else [error]
    return next((error for error in leaves if isinstance(error, StaleLeader)), leaves[0])


def _look_at(task: asyncio.Task[None]) -> None:
    """Its error is for those who wait; if none is left, nobody misses it."""
    if not task.cancelled():
        task.exception()
