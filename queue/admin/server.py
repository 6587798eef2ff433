"""The HTTPS server for operators, on a port of its own.

``/metrics`` takes the token that a pod mounts, as Prometheus sends it. ``/status``, the doctor and the
accounting take a token that was issued for fluxqueue only (audience ``fluxqueue``): `kubectl fluxqueue`
requests one and sends it through the API server's proxy in the header ``Fluxqueue-Token``, because the proxy
removes ``Authorization``. See docs/decisions/0015.

The certificate has a key of its own, from the queue itself or from cert-manager. It is reloaded while the
server runs, and until there is one the server uses a placeholder, which no client trusts that verifies.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fluxqueue.api.names import OPERATOR_AUDIENCE, OPERATOR_TOKEN_HEADER
from fluxqueue.kube.transport import Api
from fluxqueue.queue.admin.access import AccessReviews, Permission, Right
from fluxqueue.serving.connections import ConnectionEnding, ConnectionLimits
from fluxqueue.serving.guarded_server import GuardedServer, listen
from fluxqueue.serving.readiness import Readiness
from fluxqueue.serving.served_certificate import ServedCertificate

__all__ = [
    "LIMITS",
    "AdminAddress",
    "AdminServer",
    "BadRequest",
    "Endpoint",
    "make_app",
    "metrics_endpoint",
    "status_endpoint",
]

_LOOK_S: Final = 2.0
_FINISH_S: Final = 2
LIMITS: Final = ConnectionLimits(
    connections=256,
    held_bytes=2**20,
    body_bytes=2**12,
    request_s=10.0,
    response_s=300.0,
    idle_s=10.0,
    one_request=True,
)
"""An examination of the doctor may take minutes; nobody sends a body."""
_METHODS: Final = {"get": "GET", "post": "POST"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path, who may ask for it, and its answer.

    Attributes
    ----------
    permission
        Verb and path, and the right to them.
    answer
        Called for who has the right; their name is in ``state.caller`` of the request.
    right
        The right, where it depends on the request. It raises `BadRequest` for one that names nothing.
    """

    permission: Permission
    answer: Callable[[Request], Coroutine[Any, Any, Response]]
    right: Callable[[Request], Right] | None = None


class BadRequest(Exception):
    """A request that cannot be understood; the message says what helps."""


@dataclass(frozen=True, slots=True)
class AdminAddress:
    """Where to listen, and the folder of ``tls.crt`` and ``tls.key``, which may appear later."""

    host: str
    port: int
    certificate_directory: Path


def metrics_endpoint(registry: CollectorRegistry) -> Endpoint:
    """Return ``GET /metrics``."""

    async def metrics(_request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Endpoint(Permission("get", "/metrics"), metrics)


def status_endpoint(role: Callable[[], str], conditions: Callable[[], Mapping[str, str]]) -> Endpoint:
    """Return ``GET /status``: the role, and each condition that does not hold with its sentence."""

    async def status(_request: Request) -> Response:
        missing = dict(conditions())
        return JSONResponse({"ready": not missing, "role": role(), "missing": missing})

    return Endpoint(Permission("get", "/status", OPERATOR_AUDIENCE), status)


def make_app(endpoints: Sequence[Endpoint], reviews: AccessReviews) -> Starlette:
    """Make the application: every endpoint answers only callers whom the API server allows,
    and none takes a body.
    """

    def guarded(endpoint: Endpoint) -> Route:
        async def answer(request: Request) -> Response:
            if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
                return JSONResponse(
                    {"error": f"{request.url.path} takes no body: send none"}, status_code=413
                )
            try:
                right = endpoint.right(request) if endpoint.right is not None else endpoint.permission
            except BadRequest as error:
                return JSONResponse({"error": str(error)}, status_code=400)
            verdict = await reviews.check(
                _token(request), right, request.client.host if request.client is not None else ""
            )
            if verdict.status == 200:
                request.state.caller = verdict.user
                return await endpoint.answer(request)
            headers = {"WWW-Authenticate": "Bearer"} if verdict.status == 401 else None
            return JSONResponse({"error": verdict.sentence}, status_code=verdict.status, headers=headers)

        return Route(endpoint.permission.path, answer, methods=[_METHODS[endpoint.permission.verb]])

    return Starlette(routes=[guarded(endpoint) for endpoint in endpoints])


def _token(request: Request) -> str:
    if token := request.headers.get(OPERATOR_TOKEN_HEADER):
        return token
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class AdminServer:
    """The server of one replica.

    Parameters
    ----------
    address
        Where to listen.
    api
        A client that may create reviews; it needs a short time limit, and no other use of it waits for them.
    endpoints
        What is served.
    registry
        Where the expiry of the certificate and ended connections are recorded.

    Raises
    ------
    CannotListen
        The address is in use, unknown or not local.
    """

    def __init__(
        self, address: AdminAddress, api: Api, endpoints: Sequence[Endpoint], registry: CollectorRegistry
    ) -> None:
        metrics = _PortMetrics(registry)
        self._certificate = ServedCertificate(
            address.certificate_directory,
            Readiness("client"),
            metrics,
            lambda: dt.datetime.now(dt.UTC),
            server="queue",
        )
        self._server = GuardedServer(
            make_app(endpoints, AccessReviews(api, time.monotonic)),
            listen(address.host, address.port),
            LIMITS,
            context=self._certificate.context,
            observe=metrics.connection_ended,
            finish_s=_FINISH_S,
        )

    async def serve(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._certificate.follow(_LOOK_S))
            try:
                await self._server.serve()
            finally:
                following.cancel()


class _PortMetrics:
    """Expiry and reloads of the certificate, and connections that were ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._expiry = Gauge(
            "fluxqueue_metrics_certificate_expiry_timestamp_seconds",
            "Expiry of the certificate of the metrics port",
            registry=registry,
        )
        self._reloads = Counter(
            "fluxqueue_metrics_certificate_reloads_total",
            "Certificate pairs of the metrics port found on disk, by result: loaded or refused",
            ["result"],
            registry=registry,
        )
        self._ended = Counter(
            "fluxqueue_metrics_connections_ended_total",
            "Connections of the metrics port that were ended because of a limit, by limit",
            ["limit"],
            registry=registry,
        )

    def connection_ended(self, ending: ConnectionEnding) -> None:
        """Count a connection that was ended because of a limit."""
        self._ended.labels(ending.value).inc()

    def certificate(self, ends: float | None) -> None:
        """Record a pair that was found on disk: its end in seconds since the epoch,
        or None if it was refused.
        """
        self._reloads.labels("refused" if ends is None else "loaded").inc()
        if ends is not None:
            self._expiry.set(ends)
