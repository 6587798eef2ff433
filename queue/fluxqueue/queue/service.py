"""The queue service: one leader that watches, plans, releases and follows.

Start is always recovery: the tables are brought to this version, the leadership is taken (an older leader's transactions are refused from
then on), what is pending and live is loaded, the caches are filled, and everything is looked at once. There is no other way to start, so
the way back from a crash is walked every day.

Anything that ends one of the tasks (a newer leader, a worker whose connections are gone) ends the process with a sentence: what was
committed is safe, and the next start goes on from there.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from fluxqueue.fluxion.client import AsyncFluxionClient
from fluxqueue.fluxion.nodes import NodeRules, graph_node
from fluxqueue.kube.events import Recorder
from fluxqueue.kube.transport import Api
from fluxqueue.kube.transport import Call as ApiCall
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.config import QueueConfig
from fluxqueue.queue.controllers.canceller import Canceller
from fluxqueue.queue.controllers.certificates import CertificateKeeper, WebhookPlace
from fluxqueue.queue.controllers.fluxjobs import FluxJobWriter
from fluxqueue.queue.controllers.fluxqueues import FluxQueueWriter
from fluxqueue.queue.controllers.foreign import ForeignPods
from fluxqueue.queue.controllers.graph import GraphKeeper
from fluxqueue.queue.controllers.intake import IntakeController
from fluxqueue.queue.controllers.releaser import Releaser
from fluxqueue.queue.controllers.requeuer import Requeuer
from fluxqueue.queue.controllers.scheduler import Scheduler, disciplines_of
from fluxqueue.queue.controllers.sweeper import Sweeper
from fluxqueue.queue.controllers.tellings import Teller
from fluxqueue.queue.controllers.tracker import Tracker
from fluxqueue.queue.health import make_server
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.metrics import API_CALLS, LEADER, POSTGRES_UP
from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store import Database, DatabaseUnavailable, Store, migrate
from fluxqueue.queue.tasks import ControlTasks, WorkersEnded

__all__ = ["QueueService", "ServiceSettings"]

log = structlog.get_logger()

_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What the command line says.

    Attributes
    ----------
    database_url
        Postgres, as libpq reads it; holds a password, so it is never logged.
    fluxion
        ``host:port`` of the matcher.
    config
        The configuration file's content.
    namespace
        The release namespace.
    host, metrics_port
        Where health and metrics are served.
    webhook
        Where the certificate is kept, None where cert-manager does.
    kubeconfig
        Explicit kubeconfig; None: the environment's, else in-cluster.
    """

    database_url: str
    fluxion: str
    config: QueueConfig
    namespace: str
    host: str
    metrics_port: int
    webhook: WebhookPlace | None = None
    kubeconfig: Path | None = None


class QueueService:
    """Everything together.

    Parameters
    ----------
    settings
        From the command line.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._missing: dict[str, str] = {"start": "the service is starting"}
        self._watched: Callable[[], Mapping[str, str]] = dict

    async def run(self) -> None:
        """Run until cancelled.

        Raises
        ------
        StaleLeader
            Another replica took over.
        WorkersEnded
            The control tasks lost their database for good.
        """
        settings = self._settings
        server = make_server(settings.host, settings.metrics_port, self._conditions)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve())
            try:
                await self._lead()
            finally:
                server.should_exit = True
                serving.cancel()

    def _conditions(self) -> Mapping[str, str]:
        return {**self._missing, **self._watched()}

    async def _lead(self) -> None:
        settings = self._settings
        await self._await_database()
        async with (
            Database(settings.database_url) as database,
            Api.connect(settings.kubeconfig) as api,
            AsyncFluxionClient(settings.fluxion) as fluxion,
        ):
            api.on_call = _count
            store = Store(database)
            holder = socket.gethostname()
            epoch = await store.acquire_leadership(holder)
            clock = await _postgres_clock(store)
            log.info("leading", holder=holder, epoch=epoch)
            LEADER.set(1)
            ledger = Ledger(store, epoch, clock)
            caches = Caches(api, all_but_system=settings.config.namespaces == "allButSystem", own_namespace=settings.namespace)
            rules = _node_rules(settings.config)
            foreign = ForeignPods(caches.pods, ledger)
            graph = GraphKeeper(fluxion, ledger, caches.nodes, lambda node: graph_node(node, rules).spec, settings.config.policy, foreign)
            async with ControlTasks(settings.database_url, store) as tasks:
                recorder = Recorder(api, instance=holder)
                intake = IntakeController(caches, ledger, tasks.trigger)
                requeuer = Requeuer(api, caches, ledger, tasks.trigger, intake.look_at)
                tracker = Tracker(api, caches, ledger, tasks.trigger, requeuer.stopped)
                fluxjobs = FluxJobWriter(api, caches, ledger, recorder)
                canceller = Canceller(api, caches, ledger, tasks.trigger, recorder)
                teller = Teller(api, caches, ledger, recorder)
                queues = FluxQueueWriter(api, caches, ledger)
                controllers = (intake, tracker, requeuer, fluxjobs, canceller, teller, queues)
                scheduler = Scheduler(ledger, graph, tasks.trigger, lambda: disciplines_of(caches.fluxqueues.list()))
                handlers = _Handlers(
                    scheduler,
                    Releaser(api, caches, ledger, tasks.trigger, intake.look_at, tracker.note_let_go),
                    Sweeper(ledger, graph, tasks.trigger, controllers, retention_s=settings.config.retention_seconds),
                )
                caches.nodes.add_handler(lambda _change: scheduler.soon())
                foreign.subscribe(scheduler.soon)
                async with asyncio.TaskGroup() as group:
                    if settings.webhook is not None:
                        group.create_task(CertificateKeeper(api, settings.webhook, lambda: datetime.now(UTC)).run())
                    group.create_task(recorder.run())
                    group.create_task(scheduler.watch_matcher())
                    group.create_task(caches.run())
                    self._missing = {"caches": "the caches are being filled: the API server has not answered yet"}
                    await caches.synced()
                    await ledger.load()
                    _settle_memory()
                    for controller in controllers:
                        controller.look_at_everything()
                    self._watched = lambda: _watched(caches, scheduler)
                    self._missing = {}
                    for controller in controllers:
                        group.create_task(controller.run())
                    await tasks.trigger.schedule()
                    await tasks.trigger.release()
                    await self._work(tasks, handlers, epoch, database)

    async def _work(self, tasks: ControlTasks, handlers: _Handlers, epoch: Epoch, database: Database) -> None:
        """Run the control tasks; when Postgres goes away, go on once it is back."""
        while True:
            try:
                await tasks.run_workers(handlers, epoch)
            except (WorkersEnded, DatabaseUnavailable) as error:
                POSTGRES_UP.set(0)
                self._missing = {"postgres": str(error)}
                log.warning("postgres is away: what runs goes on, nothing new starts", error=str(error))
            while not await database.healthy():
                await asyncio.sleep(_FIRST_RETRY_S)
            POSTGRES_UP.set(1)
            self._missing = {}
            log.info("postgres is back")

    async def _await_database(self) -> None:
        """Bring the tables to this version, for as long as it takes Postgres to be there."""
        retry_s = _FIRST_RETRY_S
        while True:
            try:
                await migrate(self._settings.database_url)
            except DatabaseUnavailable as error:
                POSTGRES_UP.set(0)
                self._missing = {"postgres": str(error)}
                log.warning("postgres is away: nothing is accepted into the queue until it answers", error=str(error), retry_s=retry_s)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
            else:
                POSTGRES_UP.set(1)
                return


class _Handlers:
    """The control tasks' bodies."""

    def __init__(self, scheduler: Scheduler, releaser: Releaser, sweeper: Sweeper) -> None:
        self._scheduler = scheduler
        self._releaser = releaser
        self._sweeper = sweeper

    async def schedule(self) -> None:
        await self._scheduler.cycle()

    async def release(self) -> None:
        await self._releaser.release_due()

    async def sweep(self) -> None:
        await self._sweeper.sweep()


def _settle_memory() -> None:
    """The caches are large and live as long as the process: looking through them again for garbage would cost more than all else."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _node_rules(config: QueueConfig) -> NodeRules:
    levels = (("zone", config.zone_label), ("rack", config.rack_label))
    return NodeRules(
        levels=tuple((kind, label) for kind, label in levels if label),
        cpu_vertex_m=config.cpu_vertex_millicores,
        memory_vertex_mib=config.memory_vertex_mi_b,
    )


def _watched(caches: Caches, scheduler: Scheduler) -> Mapping[str, str]:
    missing: dict[str, str] = {}
    if complaint := caches.complaint:
        missing["api-server"] = complaint
    if scheduler.last_error:
        missing["fluxion"] = scheduler.last_error
    return missing


async def _postgres_clock(store: Store) -> Callable[[], datetime]:
    """Postgres' time without asking it each time: its distance from the loop's clock, measured once."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    now = await store.now()
    base = (before + loop.time()) / 2
    return lambda: now + timedelta(seconds=loop.time() - base)


def _count(call: ApiCall) -> None:
    API_CALLS.labels(call.verb, call.kind, str(call.status)).inc()
