"""One replica of the dashboard: its watches, its server, and how long they live."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp

from fluxqueue.certs.https import EmbeddedServer
from fluxqueue.certs.readiness import Readiness
from fluxqueue.certs.serving import ServedCertificate
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
from fluxqueue.queue.admin.connections import BoundedConnection

__all__ = ["BrowserConnection", "DashboardService"]

_AGENT: Final = "fluxqueue/dashboard"
_LOOK_S: Final = 2.0
_REVIEW_S: Final = 5.0
_REVIEWS_AT_ONCE: Final = 24

log: Final = structlog.get_logger(__name__)


class BrowserConnection(BoundedConnection):
    """A connection of a browser: it may stay open for an hour, as a page that follows changes does, and carries many requests."""

    lifetime_s = 3_600.0
    most = 1_024

    @property
    def waits_for_request(self) -> bool:
        """True while nothing is being answered, so that kept connections keep nobody out."""
        return self.cycle is None or self.cycle.response_complete

    def _no_head(self) -> None:
        if self.cycle is None:
            self.transport.abort()


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
            site = Site(settings, self.state, door, Questions(settings.queue, time.monotonic), stale=self.stale)
            certificate = ServedCertificate(
                settings.certificate_directory, self._readiness, _NoMetrics(), lambda: dt.datetime.now(dt.UTC), server="dashboard"
            )
            server = EmbeddedServer(_config(make_app(site, self.problem), settings, certificate))
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


def _config(app: ASGIApp, settings: DashboardSettings, certificate: ServedCertificate) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=BrowserConnection,
        ws="none",
        lifespan="off",
        ssl_context_factory=lambda _config, _default: certificate.context,
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=65_536,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )
