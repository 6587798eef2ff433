"""One replica of the queue service: a follower that keeps its caches filled, and the leader while it holds
the Lease.

Every replica watches the cluster from its start, so its caches are filled when it becomes the leader. The
holder of the Lease leads (`fluxqueue.queue.leadership.leader`); the others are followers.

A leader that is terminated releases the Lease once its work has stopped, and the next leader sees that at
once. An error that ends one of its tasks (a lost Lease, a newer leader, lost database connections of a
worker) ends the process. What was committed is safe, what was only in memory is dropped, and the process
starts again as a follower.
"""

from __future__ import annotations

import asyncio
import os
import socket

import structlog
from prometheus_client import REGISTRY

from fluxqueue.api.bounds import limit_pods
from fluxqueue.kube.lease_thread import lease_of_replica
from fluxqueue.kube.transport import Api
from fluxqueue.kube.transport import CompletedCall as ApiCall
from fluxqueue.queue import collector
from fluxqueue.queue.admin.access import REVIEWS_AT_ONCE
from fluxqueue.queue.admin.history_endpoints import history_endpoints
from fluxqueue.queue.admin.server import AdminServer, metrics_endpoint, status_endpoint
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.device_api import devices_are_served, served_taint_rules
from fluxqueue.queue.health import ReplicaRole, health_server
from fluxqueue.queue.leadership.leader import Leader
from fluxqueue.queue.leadership.matcher import connect_matcher
from fluxqueue.queue.leadership.supervision import keep_running
from fluxqueue.queue.metrics import API_CALLS
from fluxqueue.queue.miniclusters.crd import miniclusters_are_ours
from fluxqueue.queue.recovery.bundle_endpoint import bundle_endpoint
from fluxqueue.queue.recovery.doctor_endpoints import doctor_endpoints
from fluxqueue.queue.recovery.sweep import Sweeper
from fluxqueue.queue.replica_status import ReplicaStatus
from fluxqueue.queue.settings import ServiceSettings
from fluxqueue.queue.store import Database, DatabaseUnavailable, migrate
from fluxqueue.queue.store.accounting import Accounting

__all__ = ["QueueService"]

log = structlog.get_logger()

_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 10.0
_READERS = 2


class QueueService:
    """One replica."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._status = ReplicaStatus()
        self._leader: Leader | None = None
        self._accounting: Accounting | None = None

    async def run(self) -> None:
        """Run until cancelled.

        Raises
        ------
        LeaseLost, StaleLeader
            Another replica takes over.
        """
        settings, status = self._settings, self._status
        health = health_server(settings.host, settings.health_port, status.conditions, lambda: status.role)
        endpoints = (
            metrics_endpoint(REGISTRY),
            status_endpoint(lambda: status.role, status.conditions),
            *doctor_endpoints(self._sweeper),
            bundle_endpoint(settings.config, REGISTRY, self._sweeper),
            *history_endpoints(lambda: self._accounting),
        )
        async with (
            Api.connect(settings.kubeconfig, timeout_s=5.0, max_in_flight=REVIEWS_AT_ONCE) as reviewing,
            asyncio.TaskGroup() as group,
        ):
            admin = AdminServer(settings.admin, reviewing, endpoints, REGISTRY)
            serving = [group.create_task(each.serve()) for each in (health, admin)]
            try:
                await self._migrate()
                await self._follow_and_lead()
            finally:
                for each in serving:
                    each.cancel()

    def _sweeper(self) -> Sweeper | None:
        """Return the sweep of this replica, while it leads."""
        return self._leader.sweeper if self._leader is not None else None

    async def _migrate(self) -> None:
        """Bring the tables to this version; wait as long as Postgres is unavailable."""
        retry_s = _FIRST_RETRY_S
        while True:
            try:
                await migrate(self._settings.session_url)
            except DatabaseUnavailable as error:
                self._status.postgres_unavailable(error, retry_s)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
            else:
                return self._status.postgres_available()

    async def _follow_and_lead(self) -> None:
        """Fill the caches, wait for the Lease, lead."""
        settings, status = self._settings, self._status
        replica = os.environ.get("POD_NAME") or socket.gethostname()
        async with (
            Database(settings.database_url, pooled=bool(settings.direct_url)) as database,
            Database(
                settings.database_url,
                size=_READERS,
                application_name="fluxqueue-history",
                pooled=bool(settings.direct_url),
            ) as records,
            Api.connect(settings.kubeconfig, user_agent=f"fluxqueue/queue ({replica})") as api,
            connect_matcher(settings) as fluxion,
            asyncio.TaskGroup() as group,
        ):
            self._accounting = Accounting(records, settings.config.prices.shown_currency)
            if settings.direct_url:
                await database.refuse_other(settings.direct_url)
            api.on_call = _count_call
            lease = lease_of_replica(
                lambda: Api.connect(settings.kubeconfig, timeout_s=5.0),
                settings.namespace,
                settings.lease,
                replica,
                _count_call,
            )
            api.may_write = lambda: lease.held
            status.shown.held = lambda: lease.held
            status.wait_for("caches", "the caches are being filled: the API server has not answered yet")
            limit_pods(settings.config.max_pods)
            devices = settings.config.devices and await devices_are_served(api)
            caches = Caches(
                api,
                all_but_system=settings.config.namespaces == "allButSystem",
                own_namespace=settings.namespace,
                miniclusters=await miniclusters_are_ours(api),
                devices=devices,
                device_taint_rules=await served_taint_rules(api) if devices else None,
                levels=settings.config.levels,
            )
            watching = [
                group.create_task(keep_running(type(each).__name__, each.run))
                for each in (caches.watches, caches.gang_objects)
            ]
            status.watch(caches)
            await caches.watches.synced()
            collector.settle()
            status.clear()
            status.become(ReplicaRole.FOLLOWER)
            log.info("follower.ready", replica=replica)
            self._leader = Leader(settings, replica, database, api, caches, fluxion, status, lease.end_soon)
            try:
                await lease.run(self._leader.lead)
            finally:
                for each in watching:
                    each.cancel()


def _count_call(call: ApiCall) -> None:
    API_CALLS.labels(call.verb, call.kind, str(call.status)).inc()
