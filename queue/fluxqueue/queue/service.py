"""The queue service: replicas of which one leads, that is plans, releases and follows; the others stand by.

Every replica watches the cluster from its start on, so its caches are warm when it is its turn. Who holds the Lease leads: it raises the
epoch (an older leader's transactions are refused from then on), loads what is pending and live, and looks at everything once. There is no
other way to begin, so the way back from a crash is walked with every hand-over. Nothing is written to the API server but while the Lease
is certainly held, and nothing to Postgres under an older epoch.

A leader that is told to end gives the Lease back once its work has stopped, and its successor sees that at once. Anything that ends one
of the tasks (a lost Lease, a newer leader, a worker whose connections are gone) ends the process with a sentence: what was committed is
safe, and what the process still had in memory goes with it. It begins anew as a follower.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.api.objects import PodSpec
from fluxqueue.fluxion.client import AsyncFluxionClient
from fluxqueue.fluxion.nodes import NodeRules, graph_node
from fluxqueue.kube.events import Recorder
from fluxqueue.kube.lease import LeaderLease
from fluxqueue.kube.store import Change
from fluxqueue.kube.transport import Api
from fluxqueue.kube.transport import Call as ApiCall
from fluxqueue.queue import memory
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.config import QueueConfig, node_rules
from fluxqueue.queue.controllers.adopter import adopt_released
from fluxqueue.queue.controllers.canceller import Canceller
from fluxqueue.queue.controllers.certificates import CertificateKeeper, WebhookPlace
from fluxqueue.queue.controllers.doctor import Doctor
from fluxqueue.queue.controllers.doctor import routes as doctor_routes
from fluxqueue.queue.controllers.fluxjobs import FluxJobWriter
from fluxqueue.queue.controllers.fluxqueues import FluxQueueWriter
from fluxqueue.queue.controllers.foreign import Daemons, ForeignPods
from fluxqueue.queue.controllers.graph import GraphKeeper
from fluxqueue.queue.controllers.intake import IntakeController
from fluxqueue.queue.controllers.miniclusters import MiniClusterController, MiniClusterSettings, miniclusters_are_ours
from fluxqueue.queue.controllers.nodes import NodeReader
from fluxqueue.queue.controllers.provisioner import Provisioner
from fluxqueue.queue.controllers.releaser import Releaser
from fluxqueue.queue.controllers.requeuer import Requeuer
from fluxqueue.queue.controllers.scheduler import Scheduler, disciplines_of
from fluxqueue.queue.controllers.sweeper import Sweeper
from fluxqueue.queue.controllers.tellings import Teller
from fluxqueue.queue.controllers.tracker import Tracker
from fluxqueue.queue.controllers.watchman import Watchman
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.daemons import awaited
from fluxqueue.queue.health import Role, make_server
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.metrics import API_CALLS, POSTGRES_UP
from fluxqueue.queue.provisioning import Prospects, imagined_nodes
from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store import Database, DatabaseUnavailable, Store, migrate
from fluxqueue.queue.tasks import ControlTasks, WorkersEnded

__all__ = ["QueueService", "ServiceSettings"]

log = structlog.get_logger()

_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 10.0
_GRACE_S = 0.3
"""How long a control task may go on when its process ends: a hand-over waits for it."""


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
    lease
        Name of the Lease in it that says who leads.
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
    lease: str
    host: str
    metrics_port: int
    webhook: WebhookPlace | None = None
    kubeconfig: Path | None = None


class QueueService:
    """One replica.

    Parameters
    ----------
    settings
        From the command line.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._missing: dict[str, str] = {"start": "the service is starting"}
        self._watched: Callable[[], Mapping[str, str]] = dict
        self._role = Role.STARTING.tell()
        self._doctor: Doctor | None = None
        self._sweeper: Sweeper | None = None

    async def run(self) -> None:
        """Run until cancelled.

        Raises
        ------
        LeaseLost, StaleLeader
            Another replica takes over.
        """
        settings = self._settings
        routes = doctor_routes(lambda: self._doctor, self._sweep)
        server = make_server(settings.host, settings.metrics_port, self._conditions, lambda: self._role, routes)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve())
            try:
                await self._stand_by()
            finally:
                server.should_exit = True
                serving.cancel()

    async def _sweep(self) -> None:
        if self._sweeper is not None:
            await self._sweeper.sweep()

    def _conditions(self) -> Mapping[str, str]:
        return {**self._missing, **self._watched()}

    async def _stand_by(self) -> None:
        """Fill the caches, wait for the Lease, lead."""
        settings = self._settings
        await self._await_database()
        place = os.environ.get("POD_NAME") or socket.gethostname()
        async with (
            Database(settings.database_url) as database,
            Api.connect(settings.kubeconfig, user_agent=f"fluxqueue/queue ({place})") as api,
            Api.connect(settings.kubeconfig, timeout_s=5.0) as lease_api,
            AsyncFluxionClient(settings.fluxion) as fluxion,
            asyncio.TaskGroup() as group,
        ):
            api.on_call = lease_api.on_call = _count
            former = f"{place}_"
            lease = LeaderLease(lease_api, settings.namespace, settings.lease, f"{former}{uuid.uuid4().hex[:8]}", former=former)
            api.may_write = lambda: lease.held
            self._missing = {"caches": "the caches are being filled: the API server has not answered yet"}
            caches = Caches(
                api,
                all_but_system=settings.config.namespaces == "allButSystem",
                own_namespace=settings.namespace,
                miniclusters=await miniclusters_are_ours(api),
                coming_taints=(taint for shape in settings.config.node_shapes for taint in shape.taints),
            )
            watching = group.create_task(caches.run())
            self._watched = lambda: _missed(caches)
            await caches.synced()
            memory.settle()
            self._missing = {}
            self._role = Role.FOLLOWER.tell()
            log.info("standing by", place=place)
            try:
                await lease.run(lambda: self._lead(place, database, api, caches, fluxion))
            finally:
                watching.cancel()

    async def _lead(self, holder: str, database: Database, api: Api, caches: Caches, fluxion: AsyncFluxionClient) -> None:
        settings = self._settings
        self._role = Role.LEADER.tell()
        store = Store(database)
        epoch = await self._acquire_leadership(store, holder)
        reach(Point.LED)
        clock = await _postgres_clock(store)
        log.info("leading", holder=holder, epoch=epoch)
        ledger = Ledger(store, epoch, clock)
        rules = node_rules(settings.config)
        foreign = ForeignPods(caches.pods, ledger, _daemons(caches, rules))
        read_node = NodeReader(rules)
        graph = GraphKeeper(fluxion, ledger, caches.nodes, read_node, settings.config.policy, foreign)
        async with ControlTasks(settings.database_url, store, grace_s=_GRACE_S) as tasks:
            recorder = read_node.sayer = Recorder(api, instance=holder)
            intake = IntakeController(api, caches, ledger, tasks.trigger)
            requeuer = Requeuer(api, caches, ledger, tasks.trigger, intake.look_at)
            tracker = Tracker(api, caches, ledger, tasks.trigger, requeuer.stopped)
            fluxjobs = FluxJobWriter(api, caches, ledger, recorder)
            canceller = Canceller(api, caches, ledger, tasks.trigger, recorder)
            teller = Teller(api, caches, ledger, recorder)
            queues = FluxQueueWriter(api, caches, ledger)
            of_miniclusters = MiniClusterSettings(settings.config.image, settings.config.cluster_domain)
            miniclusters = MiniClusterController(api, caches, ledger, requeuer.requeue, recorder, of_miniclusters)
            imagined = imagined_nodes(settings.config.node_shapes, rules)
            provisioner = (Provisioner(api, caches, ledger, recorder),) if imagined else ()
            controllers = (intake, tracker, requeuer, fluxjobs, canceller, teller, queues, miniclusters, *provisioner)
            scheduler = Scheduler(
                ledger,
                graph,
                tasks.trigger,
                lambda: disciplines_of(caches.fluxqueues.list()),
                requeuer.requeue,
                Prospects(imagined),
            )
            doctor = Doctor(api, caches, ledger, graph, foreign)

            async def adopt() -> int:
                return await adopt_released(caches, ledger)

            sweeper = Sweeper(ledger, doctor, tasks.trigger, controllers, adopt, retention_s=settings.config.retention_seconds)
            self._sweeper = sweeper
            handlers = _Handlers(
                scheduler,
                Releaser(api, caches, ledger, tasks.trigger, intake.look_at, tracker.note_let_go, miniclusters.prepare),
                sweeper,
            )
            caches.nodes.add_handler(lambda _change: scheduler.soon())
            caches.fluxqueues.add_handler(scheduler.queue_changed)
            foreign.subscribe(scheduler.soon)
            caches.daemonsets.add_handler(lambda change: _recount(change, caches, foreign, scheduler))
            async with asyncio.TaskGroup() as group:
                if settings.webhook is not None:
                    group.create_task(CertificateKeeper(api, settings.webhook, lambda: datetime.now(UTC)).run())
                group.create_task(recorder.run())
                group.create_task(scheduler.watch_matcher())
                watchman = Watchman(
                    caches,
                    ledger,
                    requeuer,
                    start_timeout_s=settings.config.start_timeout_seconds,
                    node_lost_s=settings.config.node_lost_seconds,
                )
                await ledger.load()
                reach(Point.LOADED)
                await adopt()
                memory.settle()
                for controller in controllers:
                    controller.look_at_everything()
                self._watched = lambda: _missed(caches, scheduler)
                self._doctor = doctor
                group.create_task(watchman.run())
                group.create_task(sweeper.watch_memory())
                for controller in controllers:
                    group.create_task(controller.run())
                await tasks.trigger.schedule()
                await tasks.trigger.release()
                await self._work(tasks, handlers, ledger, database)

    async def _acquire_leadership(self, store: Store, holder: str) -> Epoch:
        while True:
            try:
                epoch = await store.acquire_leadership(holder)
            except DatabaseUnavailable as error:
                await self._without_database(error)
            else:
                self._with_database()
                return epoch

    async def _without_database(self, error: Exception, retry_s: float = _FIRST_RETRY_S) -> None:
        POSTGRES_UP.set(0)
        self._missing = {"postgres": str(error)}
        log.warning("postgres is away: what runs goes on, nothing new starts", error=str(error), retry_s=retry_s)
        await asyncio.sleep(retry_s)

    def _with_database(self) -> None:
        POSTGRES_UP.set(1)
        self._missing = {}

    async def _work(self, tasks: ControlTasks, handlers: _Handlers, ledger: Ledger, database: Database) -> None:
        """Run the control tasks; when Postgres goes away, go on once it is back, with what it knows then."""
        while True:
            try:
                await tasks.run_workers(handlers, ledger.epoch)
            except (WorkersEnded, DatabaseUnavailable) as error:
                await self._without_database(error)
            while not await database.healthy():
                await asyncio.sleep(_FIRST_RETRY_S)
            self._with_database()
            ledger.doubt()
            log.info("postgres is back")

    async def _await_database(self) -> None:
        """Bring the tables to this version, for as long as it takes Postgres to be there."""
        retry_s = _FIRST_RETRY_S
        while True:
            try:
                await migrate(self._settings.database_url)
            except DatabaseUnavailable as error:
                await self._without_database(error, retry_s)
                retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
            else:
                return self._with_database()


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


def _daemons(caches: Caches, rules: NodeRules) -> Daemons:
    def of(name: str, present: Sequence[str]) -> list[PodSpec]:
        daemonsets = caches.daemonsets.list()
        node = caches.nodes.get("", name) if daemonsets else None
        return awaited(node, graph_node(node, rules).spec, daemonsets, present) if node is not None else []

    return of


def _recount(change: Change[DaemonSet], caches: Caches, foreign: ForeignPods, scheduler: Scheduler) -> None:
    """A DaemonSet came, went or wants something else: it may take another part of every node."""
    if change.old is None or change.new is None or change.old.spec != change.new.spec:
        foreign.recount(node.metadata.name for node in caches.nodes.list())
        scheduler.soon()


def _missed(caches: Caches, scheduler: Scheduler | None = None) -> Mapping[str, str]:
    missing: dict[str, str] = {}
    if complaint := caches.complaint:
        missing["api-server"] = complaint
    if scheduler is not None and scheduler.last_error:
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
