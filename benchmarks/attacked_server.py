"""One server of the project in a process of its own, for `attacks.py`: it prints its ports as JSON and serves
until it is killed.

The servers are those of the programs, with their limits. What is behind them is a stand-in: the API server
that reviews tokens answers in 2 ms and accepts those that begin with ``known``, the caches of the extender
are empty, and the dashboard shows an empty queue.

    python benchmarks/attacked_server.py {queue,extender,dashboard} FOLDER
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, cast

from prometheus_client import REGISTRY
from support.dashboard_site import Stage

from fluxqueue.api.logs import configure_logging
from fluxqueue.api.reviews import AccessStatus, SubjectAccessReview, TokenReview, TokenStatus, TokenUser
from fluxqueue.dashboard.service import LIMITS
from fluxqueue.kube.kinds import TOKEN_REVIEWS, Kind
from fluxqueue.local.ports import free_port
from fluxqueue.queue.admin.server import AdminAddress, AdminServer, metrics_endpoint
from fluxqueue.queue.health import ReplicaRole, health_server
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.extender.server import ExtenderServer, ExtenderSettings
from fluxqueue.serving.guarded_server import GuardedServer, listen
from fluxqueue.serving.readiness import Readiness
from fluxqueue.serving.served_certificate import ServedCertificate

HOST = "127.0.0.1"
KNOWN = "known"
_REVIEW_S = 0.002


class ReviewingApi:
    """An API server that reviews tokens."""

    async def create(self, kind: Kind[Any], body: dict[str, Any]) -> Any:
        """Answer a review."""
        await asyncio.sleep(_REVIEW_S)
        if kind is TOKEN_REVIEWS:
            known = body["spec"]["token"].startswith(KNOWN)
            return TokenReview(status=TokenStatus(authenticated=known, user=TokenUser(username="prometheus")))
        return SubjectAccessReview(status=AccessStatus(allowed=True))


class _NoMetrics:
    def certificate(self, ends: float | None) -> None:
        """Nothing is measured here."""


def queue(folder: Path) -> tuple[dict[str, int], list[Awaitable[None]]]:
    """Return the ports of metrics and health of a replica, and what serves them."""
    port = free_port()
    health = health_server(HOST, 0, dict, lambda: ReplicaRole.LEADER)
    admin = AdminServer(
        AdminAddress(HOST, port, folder / "tls"),
        cast(Any, ReviewingApi()),
        (metrics_endpoint(REGISTRY),),
        REGISTRY,
    )
    return {"metrics": port, "health": health.port}, [health.serve(), admin.serve()]


def extender(folder: Path) -> tuple[dict[str, int], list[Awaitable[None]]]:
    """Return the port of the extender, and what serves it."""
    port = free_port()
    settings = ExtenderSettings(
        host=HOST, port=port, certificate_directory=folder / "tls", client_ca=folder / "clients" / "ca.crt"
    )
    return {"extender": port}, [
        ExtenderServer(settings).serve(cast(Any, None), SchedulerCaches(cast(Any, None)))
    ]


def dashboard(folder: Path) -> tuple[dict[str, int], list[Awaitable[None]]]:
    """Return the port of the dashboard, and what serves it."""
    certificate = ServedCertificate(
        folder / "tls", Readiness("browser"), _NoMetrics(), lambda: dt.datetime.now(dt.UTC)
    )
    certificate.check()
    server = GuardedServer(Stage().app, listen(HOST, 0), LIMITS, context=certificate.context)
    return {"dashboard": server.port}, [server.serve()]


async def serve(kind: str, folder: Path) -> None:
    """Serve until the process ends."""
    ports, serving = {"queue": queue, "extender": extender, "dashboard": dashboard}[kind](folder)
    tasks = [asyncio.ensure_future(each) for each in serving]
    await asyncio.sleep(0.2)
    print(json.dumps(ports), flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    import uvloop

    configure_logging("error")
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(sys.argv[1], Path(sys.argv[2])))
