"""One replica of the dashboard: its watches, its server, and how long they live."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Final

import structlog

from fluxqueue.dashboard.access import AccessReviews
from fluxqueue.dashboard.app import make_app
from fluxqueue.dashboard.cluster import ClusterState, watches_of
from fluxqueue.dashboard.people import TokenReviews
from fluxqueue.dashboard.questions import Questions
from fluxqueue.dashboard.sessions import Sessions
from fluxqueue.dashboard.settings import DashboardSettings
from fluxqueue.dashboard.site import Site
from fluxqueue.dashboard.viewers import Door
from fluxqueue.kube.callers import CallerApis
from fluxqueue.kube.transport import Api
from fluxqueue.kube.watches import Watches
from fluxqueue.serving.connections import ConnectionLimits
from fluxqueue.serving.guarded_server import GuardedServer, listen
from fluxqueue.serving.health import HealthServer
from fluxqueue.serving.readiness import Readiness
from fluxqueue.serving.served_certificate import ServedCertificate

__all__ = ["LIMITS", "DashboardService"]

_AGENT: Final = "fluxqueue/dashboard"
_LOOK_S: Final = 2.0
_REVIEW_S: Final = 5.0
_REVIEWS_AT_ONCE: Final = 24
_FINISH_S: Final = 2
LIMITS: Final = ConnectionLimits(
    held_bytes=4 * 2**20, body_bytes=2**16, request_s=10.0, response_s=3_600.0, idle_s=30.0
)
"""A page that follows changes may stay open for an hour; the largest form is a token."""

log: Final = structlog.get_logger(__name__)


class _NoMetrics:
    def certificate(self, ends: float | None) -> None:
        """Nothing is measured here."""


class DashboardService:
    """The program.

    Parameters
    ----------
    settings
        From the command line.
    """

    def __init__(self, settings: DashboardSettings) -> None:
        self._settings = settings
        self._watches: Watches | None = None
        self._readiness = Readiness("browser")
        self.state = ClusterState()

    async def run(self) -> None:
        """Run until cancelled.

        Raises
        ------
        NoConfiguration
            There is no configuration for an API server.
        CannotListen
            The address is in use, unknown or not local.
        """
        settings = self._settings
        async with (
            Api.connect(settings.kubeconfig, user_agent=_AGENT) as api,
            CallerApis.open(settings.kubeconfig, user_agent=_AGENT) as callers,
            asyncio.TaskGroup() as group,
        ):
            reviewing = api.with_limits(timeout_s=_REVIEW_S, max_in_flight=_REVIEWS_AT_ONCE)
            door = Door(
                Sessions(time.monotonic),
                TokenReviews(reviewing, time.monotonic),
                AccessReviews(reviewing, time.monotonic),
                callers,
                proxy=settings.proxy,
                impersonate=settings.impersonate,
            )
            site = Site(
                settings, self.state, door, Questions(settings.queue, time.monotonic), stale=self.stale
            )
            certificate = ServedCertificate(
                settings.certificate_directory,
                self._readiness,
                _NoMetrics(),
                lambda: dt.datetime.now(dt.UTC),
                server="dashboard",
            )
            server = GuardedServer(
                make_app(site, self.problem),
                listen(settings.host, settings.port),
                LIMITS,
                context=certificate.context,
                finish_s=_FINISH_S,
            )
            if settings.health_port is not None:
                group.create_task(HealthServer(settings.host, settings.health_port, self._ready).serve())
            group.create_task(certificate.follow(_LOOK_S))
            group.create_task(self._follow(api))
            log.info("dashboard.serving", host=settings.host, port=settings.port)
            try:
                await server.serve()
            finally:
                server.should_exit = True
            raise asyncio.CancelledError

    def problem(self) -> str | None:
        """Why nothing can be shown now; None if it can."""
        if self._watches is None:
            return "The dashboard starts: it has not read the queue yet"
        return self._readiness.problem(dt.datetime.now(dt.UTC))

    def _ready(self) -> tuple[bool, dict[str, object]]:
        """The answer of the health port; the kubelet asks the HTTPS port instead,
        as that is what has to answer.
        """
        problem = self.problem()
        return problem is None, {"ready": problem is None, "missing": ["queue"] if problem else []}

    def stale(self) -> bool:
        """True while changes in the cluster do not arrive."""
        return self._watches is not None and self._watches.problem is not None

    async def _follow(self, api: Api) -> None:
        watches = watches_of(api, self.state)
        async with asyncio.TaskGroup() as group:
            group.create_task(watches.run())
            await watches.synced()
            self._watches = watches
            log.info("dashboard.filled", jobs=len(self.state.jobs), nodes=len(self.state.nodes))
