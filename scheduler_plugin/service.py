"""The scheduler service: one of its replicas leads and binds pods; the others watch, and every replica serves
the extender.

The holder of the Lease leads. Nothing is written while the Lease is not certainly held, and the API server
refuses each Binding if anything about its pod has changed. So a leader that was frozen and wakes up late does
no harm. A new leader starts from what the watch shows: pods that are released and not bound. There is no
other state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.lease_thread import lease_of_replica
from fluxqueue.kube.transport import Api
from fluxqueue.kube.transport import CompletedCall as ApiCall
from fluxqueue.queue import collector
from fluxqueue.queue.admin.access import REVIEWS_AT_ONCE
from fluxqueue.queue.admin.server import AdminAddress, AdminServer, metrics_endpoint, status_endpoint
from fluxqueue.queue.health import ReplicaRole, ShownRole, health_server
from fluxqueue.scheduler_plugin.binder import Binder
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.claims import ClaimBinder
from fluxqueue.scheduler_plugin.dispatcher import Dispatcher
from fluxqueue.scheduler_plugin.extender.server import ExtenderServer, ExtenderSettings
from fluxqueue.scheduler_plugin.limits import MOST, BindLimit
from fluxqueue.scheduler_plugin.metrics import API_CALLS, REGISTRY, ROLE
from fluxqueue.scheduler_plugin.reports import COMPONENT, SchedulingReporter

__all__ = ["SchedulerService", "SchedulerSettings"]

log: Final = structlog.get_logger()

_OTHER_CALLS: Final = 8
"""Calls that may be in flight in addition to binds: conditions, Events, claims."""

_EXTENDER_BINDS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """The settings from the command line.

    Attributes
    ----------
    namespace, lease
        The Lease whose holder leads.
    replica
        Name of this replica: the pod's name.
    host, health_port
        Where liveness and readiness are served.
    admin
        Where metrics and status are served.
    kubeconfig
        Explicit kubeconfig. None: that of the environment, else in-cluster.
    extender
        Where to serve kube-scheduler's extender; None if it is not served.
    """

    namespace: str
    lease: str
    replica: str
    host: str
    health_port: int
    admin: AdminAddress
    kubeconfig: Path | None = None
    extender: ExtenderSettings | None = None


class SchedulerService:
    """One replica of the scheduler.

    Raises
    ------
    CannotListen
        The extender's address is in use, unknown or not local.
    """

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._extender = ExtenderServer(settings.extender) if settings.extender is not None else None
        self._caches: SchedulerCaches | None = None
        self._dispatcher: Dispatcher | None = None
        self._missing: dict[str, str] = {
            "caches": "the caches are being filled: the API server has not answered yet"
        }
        self._shown = ShownRole(ROLE)

    async def run(self) -> None:
        """Run until cancelled.

        Raises
        ------
        LeaseLost
            Another replica takes over.
        """
        settings = self._settings
        health = health_server(
            settings.host, settings.health_port, self._conditions, lambda: self._shown.role
        )
        endpoints = (metrics_endpoint(REGISTRY), status_endpoint(lambda: self._shown.role, self._conditions))
        async with (
            Api.connect(settings.kubeconfig, timeout_s=5.0, max_in_flight=REVIEWS_AT_ONCE) as reviewing,
            asyncio.TaskGroup() as group,
        ):
            admin = AdminServer(settings.admin, reviewing, endpoints, REGISTRY)
            serving = [group.create_task(each.serve()) for each in (health, admin)]
            try:
                await self._follow()
            finally:
                for each in serving:
                    each.cancel()

    def _conditions(self) -> Mapping[str, str]:
        if self._caches is None or self._missing:
            return self._missing
        extender = self._extender.problem() if self._extender is not None else None
        binding = self._dispatcher.problem if self._dispatcher is not None else None
        problems = (
            ("api-server", self._caches.watches.problem),
            ("extender", extender),
            ("binding", binding),
        )
        return {what: why for what, why in problems if why} | dict(self._shown.conditions())

    async def _follow(self) -> None:
        """Fill the caches, wait for the Lease, then lead."""
        settings = self._settings
        agent = f"fluxqueue/scheduler ({settings.replica})"
        async with (
            Api.connect(settings.kubeconfig, user_agent=agent, max_in_flight=int(MOST) + _OTHER_CALLS) as api,
            asyncio.TaskGroup() as group,
        ):
            extender_api = api.with_limits(timeout_s=5.0, max_in_flight=_EXTENDER_BINDS)
            api.on_call = extender_api.on_call = _count
            lease = lease_of_replica(
                lambda: Api.connect(settings.kubeconfig, timeout_s=5.0, max_in_flight=2),
                settings.namespace,
                settings.lease,
                settings.replica,
                _count,
            )
            api.may_write = lambda: lease.held
            self._shown.held = lambda: lease.held
            caches = self._caches = SchedulerCaches(api)
            watching = group.create_task(caches.watches.run())
            try:
                await caches.watches.synced()
                collector.settle()
                self._missing = {}
                self._shown.become(ReplicaRole.FOLLOWER)
                log.info("scheduler.following", replica=settings.replica)
                if self._extender is not None:
                    group.create_task(self._extender.serve(extender_api, caches), name="extender")
                await lease.run(lambda: self._lead(api, caches))
            finally:
                watching.cancel()

    async def _lead(self, api: Api, caches: SchedulerCaches) -> None:
        self._shown.become(ReplicaRole.LEADER)
        log.info(
            "scheduler.leading",
            replica=self._settings.replica,
            pods=len(caches.pods),
            nodes=len(caches.nodes),
        )
        recorder = EventRecorder(api, instance=self._settings.replica, component=COMPONENT)
        limit = BindLimit(clock=time.monotonic)
        reporter = SchedulingReporter(api, caches, recorder, lambda: limit.in_flight > 0)
        binder = Binder(api, caches, limit)
        self._dispatcher = Dispatcher(caches, binder, ClaimBinder(api, caches.storage), reporter)
        await self._dispatcher.run()


def _count(call: ApiCall) -> None:
    API_CALLS.labels(call.verb, call.kind, str(call.status)).inc()
