"""Leads the queue: plans, releases and tracks work, for as long as the Lease is held.

`fluxqueue.kube.lease.LeaderLease.run` calls `Leader.lead` when it has the Lease, and cancels it when the
Lease is lost or the program ends.

Every leader starts in the same way, after a crash or a hand-over. It raises the epoch: from then on Postgres
refuses transactions of older leaders. It loads pending and live work, adopts released work that the tables do
not know, and compares every object and row once. Nothing is written to the API server while the Lease is not
certainly held, and nothing to Postgres under an older epoch.

While Postgres is unavailable, running work continues. When it is back, the leader reads the tables again and
goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime

import structlog

from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.transport import Api
from fluxqueue.queue import collector
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.health import ReplicaRole
from fluxqueue.queue.leadership.context import LeaderContext
from fluxqueue.queue.leadership.controllers import Controllers, make_controllers
from fluxqueue.queue.leadership.planning import Planning, make_capacity, make_planning
from fluxqueue.queue.leadership.repairs import make_sweeper
from fluxqueue.queue.leadership.subscriptions import subscribing
from fluxqueue.queue.leadership.supervision import keep_running, try_step
from fluxqueue.queue.leadership.upkeep import upkeep
from fluxqueue.queue.leadership.writers import make_writers
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.recovery.sweep import Sweeper
from fluxqueue.queue.replica_status import ReplicaStatus
from fluxqueue.queue.settings import ServiceSettings
from fluxqueue.queue.store import Database, DatabaseUnavailable, Store
from fluxqueue.queue.store.clock import LeaderClock
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.control_tasks import ControlTasks, WorkersEnded

__all__ = ["Leader"]

log = structlog.get_logger()

_RETRY_S = 0.5
_ANSWER_S = 2.0
"""An API server that does not tell the time within this is not waited for."""
_GRACE_S = 0.3
"""How long a control task may continue after the process was terminated: the next leader waits for it."""


class Leader:
    """What one replica does while it holds the Lease.

    Parameters
    ----------
    settings
        From the command line.
    holder
        Name of this replica.
    database, api, fluxion
        Connections, open.
    caches
        Filled.
    status
        Where the role and missing conditions are reported.
    end_soon
        Bounds the time in which the process ends. Called when another replica leads; all parts have to stop
        before that error arrives.

    Attributes
    ----------
    sweeper
        Compares and repairs; None until the queue is loaded.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        holder: str,
        database: Database,
        api: Api,
        caches: Caches,
        fluxion: Fluxion,
        status: ReplicaStatus,
        end_soon: Callable[[], None],
    ) -> None:
        self.sweeper: Sweeper | None = None
        self._settings = settings
        self._holder = holder
        self._database = database
        self._api = api
        self._caches = caches
        self._fluxion = fluxion
        self._status = status
        self._end_soon = end_soon

    async def lead(self) -> None:
        """Lead until cancelled.

        Raises
        ------
        StaleLeader
            Another replica raised the epoch.
        """
        self._status.become(ReplicaRole.LEADER)
        store = Store(self._database, on_stale=self._end_soon)
        epoch = await self._acquire_epoch(store)
        reach(CrashPoint.EPOCH_RAISED)
        clock = LeaderClock(store, epoch, self._ask_api_server)
        await clock.keep()
        log.info("leader.acquired", holder=self._holder, epoch=epoch)
        store = Store(self._database, clock, on_stale=self._end_soon)
        ledger = Ledger(store, epoch, clock, clock.wall)
        async with ControlTasks(self._settings.session_url, store, grace_s=_GRACE_S) as tasks:
            recorder = EventRecorder(self._api, instance=self._holder)
            context = LeaderContext(
                self._api, self._caches, ledger, tasks.trigger, recorder, self._settings.config
            )
            await self._run(context, clock, tasks)

    async def _run(self, context: LeaderContext, clock: LeaderClock, tasks: ControlTasks) -> None:
        """Build all parts, load the queue and work."""
        capacity = make_capacity(context, self._fluxion)
        parts = make_controllers(context, capacity.port_volume_pools)
        planning = make_planning(context, capacity, parts.requeuer)
        writers = make_writers(context, planning, parts.idle)
        told = (context.caches, context.ledger, capacity, parts, planning, *writers.controllers)
        for _ in subscribing(*told):
            await asyncio.sleep(0)
        scheduler = planning.scheduler
        controllers = (*parts.controllers, *planning.controllers, *writers.controllers)
        sweeper = make_sweeper(
            context,
            capacity,
            controllers,
            self._settings.scheduler_lease,
            clock,
            writers.fluxjobs.is_due,
            parts.intake.is_due,
        )

        def plan_again() -> None:
            capacity.graph.invalidate()  # its clock does not go back
            context.trigger.schedule()

        clock.stepped = plan_again
        async with asyncio.TaskGroup() as group:
            for name, run in upkeep(self._settings, self._api, Store(self._database, clock), clock()):
                group.create_task(keep_running(name, run))
            group.create_task(keep_running("EventRecorder", context.recorder.run))
            group.create_task(keep_running("watch of the matcher", scheduler.watch_matcher))
            await context.ledger.load()
            await try_step("PriorityKeeper", planning.priorities.refresh)
            reach(CrashPoint.LOADED)
            await sweeper.adopt()
            collector.settle()
            await sweeper.resync()
            self._status.watch(self._caches, scheduler)
            self.sweeper = sweeper
            group.create_task(keep_running("StartupMonitor", parts.startup_monitor.run))
            group.create_task(keep_running("watch of memory", sweeper.watch_memory))
            for controller in controllers:
                group.create_task(keep_running(type(controller).__name__, controller.run, controller.resync))
            context.trigger.schedule()
            context.trigger.release()
            bodies = _TaskBodies(clock, planning, parts, sweeper)
            await keep_running(
                "control tasks", lambda: self._run_control_tasks(tasks, bodies, context.ledger, clock)
            )

    async def _run_control_tasks(
        self, tasks: ControlTasks, bodies: _TaskBodies, ledger: Ledger, clock: LeaderClock
    ) -> None:
        """Run the control tasks; after an outage of Postgres, continue with what the tables say then.

        It ends with the first write that succeeds: a Postgres that only reads, or does not let us write, is
        no use.
        """
        away = False
        while True:
            try:
                await clock.keep()
                if away:
                    away = False
                    self._status.postgres_available()
                    ledger.mark_in_doubt()
                    log.info("postgres.available")
                await tasks.run_workers(bodies, ledger.epoch)
            except (WorkersEnded, DatabaseUnavailable) as error:
                away = True
                await self._wait_for_postgres(error)

    async def _ask_api_server(self) -> datetime | None:
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                return await self._api.time()
        return None

    async def _acquire_epoch(self, store: Store) -> Epoch:
        while True:
            try:
                epoch = await store.acquire_leadership(self._holder)
            except DatabaseUnavailable as error:
                await self._wait_for_postgres(error)
            else:
                self._status.postgres_available()
                return epoch

    async def _wait_for_postgres(self, error: Exception) -> None:
        self._status.postgres_unavailable(error, _RETRY_S)
        await asyncio.sleep(_RETRY_S)


class _TaskBodies:
    """What the control tasks do."""

    def __init__(
        self, clock: LeaderClock, planning: Planning, controllers: Controllers, sweeper: Sweeper
    ) -> None:
        self._clock = clock
        self._scheduler = planning.scheduler
        self._releaser = controllers.releaser
        self._sweeper = sweeper

    async def schedule(self) -> None:
        await self._scheduler.cycle()

    async def release(self) -> None:
        await self._releaser.release_due()

    async def sweep(self) -> None:
        await self._clock.keep()
        await self._sweeper.sweep()
