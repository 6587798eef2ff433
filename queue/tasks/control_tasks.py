"""The control tasks ``schedule``, ``release`` and ``sweep``.

A task carries no work, only the request to do it: what to schedule, release or compare is stored in our own tables. Of each kind at most
one run is under way, and while it runs, one more may be requested. Code that changed something requests a run *after* its commit, and the
run begins after the request, so it sees the change.

``schedule`` and ``release`` are requested by the leader's own process, hundreds of times a second, so their requests are flags in memory
(`fluxqueue.queue.tasks.triggers`). A request in the tables would cost more than the run: a transaction each to insert, fetch and delete it,
a notification, and polls while nothing happens. Nothing is lost with the flags: each leader runs each task at its start, and so does a
leader that had lost Postgres.

``sweep``, which finds whatever else was lost, is a procrastinate job with a lock and a queueing lock, requested each minute and at the
start. Its worker's connection also notices at once when Postgres goes away. A job may stay marked as running although no worker runs it:
its acknowledgement was lost with a connection. Its lock would stop the sweep for good. Only the leader runs jobs, and only in this process,
so a watch compares: a job that is marked as running in two checks in a row, and that this process does not run, is put back under a new id.

An error of a handler is counted, and its kind is requested again after a pause.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Protocol, Self

import structlog
from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from procrastinate.tasks import Task
from prometheus_client import Counter, Histogram

from fluxqueue.api.termination import leaf_errors
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, DatabaseUnavailable, StaleLeader, Store
from fluxqueue.queue.store.connections import cause_of
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

__all__ = ["ControlTaskHandlers", "ControlTasks", "WorkersEnded"]

_log = structlog.get_logger(__name__)

_FAILURES = Counter("fluxqueue_control_task_failures", "Control tasks whose handler raised", ["task"])
_STALLED = Counter("fluxqueue_control_task_stalled", "Control tasks that were marked as running and that no worker ran", ["task"])
_SECONDS = Histogram(
    "fluxqueue_control_task_seconds", "How long a control task took", ["task"], buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60)
)

_POLL_S = 30.0
"""The worker is notified of new sweeps; it polls for those whose notification was lost."""
_HEARTBEAT_S = 20.0
_WATCH_S = 20.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0
_LONGEST_REST_S = 0.5


class ControlTaskHandlers(Protocol):
    """What the leader does when a control task runs; one call of each at a time, calls of different ones concurrently."""

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

    def __init__(self, dsn: str, store: Store, shard: str = "default", *, grace_s: float = 1.0, watch_s: float = _WATCH_S) -> None:
        logging.getLogger("procrastinate").setLevel(logging.WARNING)  # four lines for each job otherwise
        self.trigger = Trigger()
        self._store = store
        self._shard = shard
        self._grace_s = grace_s
        self._watch_s = watch_s
        self._database = Database(dsn, size=4, timeout_s=5.0, application_name="fluxqueue-tasks", trusted_s=0.0)
        self._app = App(connector=PsycopgConnector(json_loads=json.loads), periodic_defaults={"max_delay": 60})
        self._sweep = self._register_sweep()
        self._app.periodic(cron="* * * * *", periodic_id=shard, task_kwargs={"shard": shard})(self._sweep)
        self._run: _Run | None = None
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect; `DatabaseUnavailable` if that takes too long."""
        await self._resources.enter_async_context(self._database)
        await self._resources.enter_async_context(self._app.open_async(self._database.pool))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._resources.aclose()

    async def run_workers(self, handlers: ControlTaskHandlers, epoch: Epoch) -> None:
        """Run the workers until cancelled; on the leader only.

        Each task runs once at the beginning: an earlier request may have been lost with a former leader.

        Parameters
        ----------
        handlers
            What the tasks do.
        epoch
            Of the leader.

        Raises
        ------
        WorkersEnded
            A worker ended by itself (its database connections are lost).
        StaleLeader
            A handler, or the watch, found that another leader took over.
        DatabaseUnavailable
            The database cannot be reached at the start.
        """
        stalled = await self._store.stalled_tasks(self._shard)
        await self._store.requeue_tasks(epoch, [task.id for task in stalled])
        self._run = run = _Run(handlers)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.until_stopped(), name="leadership")
                for task in (ControlTask.SCHEDULE, ControlTask.RELEASE):
                    self.trigger.request(task)
                    group.create_task(self._follow_requests(task, run), name=f"worker {task}")
                await self.request_sweep()
                group.create_task(self._work_on_sweeps(), name="worker sweep")
                group.create_task(self._watch(epoch, run), name="watch of control tasks")
        except BaseExceptionGroup as several:
            raise _decisive(several) from several
        finally:
            self._run = None
            await run.end()

    async def request_sweep(self) -> None:
        """Request a sweep that begins after now; `DatabaseUnavailable` if the request cannot be stored."""
        try:
            await self._sweep.defer_async(shard=self._shard)
        except AlreadyEnqueued:
            return
        except ConnectorException as error:
            raise DatabaseUnavailable(
                f"{self._database.place}: sweep could not be requested: {cause_of(error.__cause__ or error)}"
            ) from error

    def _register_sweep(self) -> Task[..., Any, ...]:
        task = ControlTask.SWEEP

        @self._app.task(
            name=f"fluxqueue.{task}",
            queue=f"{task}/{self._shard}",
            lock=f"{task}:{self._shard}",
            queueing_lock=f"{task}:{self._shard}",
            pass_context=True,
        )
        async def run(context: JobContext, timestamp: int = 0, shard: str = "") -> None:
            if self._run is None:
                return
            job, running = context.job.id or 0, self._run.running
            running.add(job)
            try:
                await self._handle(task, self._run)
            finally:
                running.discard(job)

        return run

    async def _follow_requests(self, task: ControlTask, run: _Run) -> None:
        """Carry a task out after each request, until cancelled; a run that is under way then may continue for the grace time.

        Between two scheduling cycles passes twice the time that the first one took, half a second at most. So long cycles are few, and each
        serves many requests.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self.trigger.take(task)
            began = loop.time()
            handling = asyncio.create_task(self._handle(task, run), name=f"control task {task}")
            try:
                await asyncio.shield(handling)
            except asyncio.CancelledError:
                await asyncio.wait({handling}, timeout=self._grace_s)
                handling.cancel()
                await asyncio.gather(handling, return_exceptions=True)
                raise
            if task is ControlTask.SCHEDULE:
                await asyncio.sleep(min(2 * (loop.time() - began), _LONGEST_REST_S))

    async def _handle(self, task: ControlTask, run: _Run) -> None:
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
                _log.warning("control_task.failed", task=task.value, error=str(error), retry_s=pause_s)
            else:
                _log.exception("control_task.failed", task=task.value, retry_s=pause_s)
            run.later(self._request_after(task, pause_s))

    async def _request_after(self, task: ControlTask, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        if task is not ControlTask.SWEEP:
            return self.trigger.request(task)
        while True:
            try:
                return await self.request_sweep()
            except DatabaseUnavailable as error:
                _log.warning("control_task.request_failed", task=task.value, error=str(error))
                await asyncio.sleep(pause_s)

    async def _work_on_sweeps(self) -> None:
        task = ControlTask.SWEEP
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
            raise WorkersEnded(f"the worker of {task} lost {self._database.place}: {cause_of(error.__cause__ or error)}") from error
        raise WorkersEnded(f"the worker of {task} stopped by itself: its listener or heartbeat lost {self._database.place}")

    async def _watch(self, epoch: Epoch, run: _Run) -> None:
        suspects: set[int] = set()
        while True:
            await asyncio.sleep(self._watch_s)
            try:
                stalled = {each.id: each for each in await self._store.stalled_tasks(self._shard) if each.id not in run.running}
                if orphans := [stalled[job] for job in suspects & stalled.keys()]:
                    await self._store.requeue_tasks(epoch, [orphan.id for orphan in orphans])
                    for orphan in orphans:
                        _STALLED.labels(orphan.task.removeprefix("fluxqueue.")).inc()
                        _log.warning("control_task.stalled", task=orphan.task, job=orphan.id, since=orphan.started_at)
            except DatabaseUnavailable as error:
                _log.warning("control_task.watch_failed", error=str(error))
            else:
                suspects = set(stalled)


class _Run:
    """One call of `run_workers`: its handlers, the jobs that run now, and the failures in a row of each task."""

    def __init__(self, handlers: ControlTaskHandlers) -> None:
        self.handlers = handlers
        self.running: set[int] = set()
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
        """Make `run_workers` end with this error."""
        if not self._stopped.done():
            self._stopped.set_exception(error)

    async def until_stopped(self) -> None:
        """Raise the error that `stop` was given."""
        await self._stopped

    def later(self, work: Coroutine[None, None, None]) -> None:
        """Do something next to the workers; it is cancelled with them."""
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def end(self) -> None:
        """Cancel what `later` started."""
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)


def _decisive(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error to report: a lost leadership explains all others."""
    leaves = leaf_errors(group)
    return next((error for error in leaves if isinstance(error, StaleLeader)), leaves[0])
