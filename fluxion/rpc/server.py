"""A running Fluxion service: sockets, encryption, health, reflection, metrics and shutdown.

The server is grpc.aio. It takes messages up to 256 MiB, because a graph or an exclusive allocation of a large
cluster is one message (the Go service takes 4 MiB). Health (``grpc.health.v1``) has two services. The service
``""`` is SERVING as soon as the server listens. Liveness and readiness probes use it, because a replica
without a graph is healthy: it waits for its leader. The service ``fluxion.FluxionService`` is NOT_SERVING
until a graph is loaded. Callers use it to check whether Match can work. During shutdown both are NOT_SERVING.

A kubelet probes from outside of the pod's loopback address, and without a certificate. So health alone can be
served on a second port, by the same event loop: there is no other call on it, and whoever reaches it can
change nothing.

Certificates are read again at the next connection after their files change, so a rotated certificate needs no
restart.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection
from prometheus_client import start_http_server

from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.rpc.client import MAX_MESSAGE_BYTES
from fluxqueue.fluxion.rpc.metrics import FluxionMetrics, GraphCollector
from fluxqueue.fluxion.rpc.owner import EngineOwner
from fluxqueue.fluxion.rpc.requests import SERVICE
from fluxqueue.fluxion.rpc.service import FluxionService

# Reflection finds a service by the descriptors that are loaded.
from fluxqueue.proto.v1 import fluxion_pb2 as _descriptors  # noqa: F401  loaded for its effect

__all__ = ["CannotServe", "FluxionServerSettings", "RunningServer", "ServerTls", "serve"]

_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.max_connection_idle_ms", 300_000),  # as the Go service
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)

_HEALTH_OPTIONS = (
    ("grpc.max_receive_message_length", 4096),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.so_reuseport", 0),
    ("grpc.max_connection_idle_ms", 60_000),
)

_LAST_WAIT_S = 1.0
"""Wait for the engine after the last caller has left."""

log = structlog.get_logger(__name__)


class CannotServe(Exception):
    """The address is in use, unknown or not of this machine, or a certificate cannot be read."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Files for encrypted connections.

    Attributes
    ----------
    cert, key
        The server's own, PEM.
    client_ca
        If given, clients need a certificate signed by one of these.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> Any:
        """Return credentials that follow changes of the files.

        Raises
        ------
        CannotListen
            A file cannot be read.
        """
        seen = self._stamp()
        current = self._read()

        def fetch() -> Any:
            nonlocal seen, current
            try:
                stamp = self._stamp()
                if stamp != seen:
                    current = self._read()
                    seen = stamp
                    log.info("fluxion.certificate_read", path=str(self.cert))
            except CannotServe as error:
                # half written: the next connection tries again, and this one gets the old certificate
                log.warning("fluxion.certificate_unreadable", reason=str(error))
            return current

        return grpc.dynamic_ssl_server_credentials(
            current, fetch, require_client_authentication=self.client_ca is not None
        )

    def _files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.cert, self.key, self.client_ca) if path is not None)

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple(
                (status.st_ino, status.st_mtime_ns) for status in (path.stat() for path in self._files())
            )
        except OSError as error:
            raise CannotServe(f"cannot read {error.filename}: {error.strerror}") from None

    def _read(self) -> Any:
        try:
            pair = (self.key.read_bytes(), self.cert.read_bytes())
            authorities = self.client_ca.read_bytes() if self.client_ca else None
        except OSError as error:
            raise CannotServe(f"cannot read {error.filename}: {error.strerror}") from None
        return grpc.ssl_server_certificate_configuration([pair], authorities)


@dataclass(frozen=True, slots=True)
class FluxionServerSettings:
    """Addresses, encryption and shutdown of the service.

    Attributes
    ----------
    host, port
        Address of the service; the system picks a port for 0.
    metrics_port, metrics_host
        Address of ``/metrics``: none is served if the port is None, and the host is the service's if it is
        None. As a sidecar the service listens on the loopback address only, while its metrics are scraped
        from elsewhere.
    tls
        Files for encrypted connections; plain text if None. Metrics are always plain.
    grace_s
        Time for calls under way at shutdown.
    health_port, health_host
        A second address with nothing but health, in plain text; none is served if the port is None, and the
        host is the service's if it is None.
    """

    host: str = "127.0.0.1"
    port: int = 4242
    metrics_port: int | None = None
    metrics_host: str | None = None
    tls: ServerTls | None = None
    grace_s: float = 10.0
    health_port: int | None = None
    health_host: str | None = None


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Ports of a server that is running."""

    port: int
    metrics_port: int | None
    health_port: int | None = None


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


@contextlib.asynccontextmanager
async def serve(
    settings: FluxionServerSettings, engine: Engine | None = None
) -> AsyncIterator[RunningServer]:
    """Serve inside of an ``async with``; at its end, calls under way get ``grace_s`` to finish.

    Parameters
    ----------
    settings
        Where and how to serve.
    engine
        An engine, which the server owns from now on; a new one if None.

    Yields
    ------
    RunningServer
        As soon as it listens.

    Raises
    ------
    CannotListen
        The address or a certificate cannot be used.
    """
    owner = EngineOwner(Engine() if engine is None else engine)
    metrics = FluxionMetrics()
    metrics.registry.register(GraphCollector(owner))
    checks = health.aio.HealthServicer()
    status = health_pb2.HealthCheckResponse
    await checks.set("", status.NOT_SERVING)
    await checks.set(SERVICE, status.NOT_SERVING)

    async def graph_loaded() -> None:
        await checks.set(SERVICE, status.SERVING)

    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((FluxionService(owner, metrics, graph_loaded).generic_handler(),))
    add_HealthServicer_to_server(checks, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = _bind(server, settings)
        with _metrics_server(settings, metrics) as metrics_port:
            async with _health_server(settings, checks) as health_port:
                await server.start()
                await checks.set("", status.SERVING)
                address = _address(settings.host, port)
                log.info(
                    "fluxion.serving",
                    address=address,
                    metrics_port=metrics_port,
                    health_port=health_port,
                    tls=settings.tls is not None,
                )
                try:
                    yield RunningServer(port, metrics_port, health_port)
                finally:
                    await checks.enter_graceful_shutdown()
                    await server.stop(settings.grace_s)
    finally:
        finished = owner.close(_LAST_WAIT_S)
        log.info("fluxion.stopped", finished=finished)


def _bind(server: Any, settings: FluxionServerSettings) -> int:
    address = _address(settings.host, settings.port)
    try:
        if settings.tls is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, settings.tls.credentials()))
    except RuntimeError:
        raise CannotServe(
            f"cannot listen on {address}: is another program there, is the host one of this machine, is the "
            "certificate whole? Choose with --host and --port"
        ) from None


@contextlib.asynccontextmanager
async def _health_server(
    settings: FluxionServerSettings, checks: health.aio.HealthServicer
) -> AsyncIterator[int | None]:
    """Serve the call ``Check`` alone.
    A ``Watch`` has no end, and with many of them a stranger could hold the port.
    """
    if settings.health_port is None:
        yield None
        return
    address = _address(settings.health_host or settings.host, settings.health_port)
    check = grpc.unary_unary_rpc_method_handler(
        checks.Check,
        health_pb2.HealthCheckRequest.FromString,
        health_pb2.HealthCheckResponse.SerializeToString,
    )
    server = grpc.aio.server(options=_HEALTH_OPTIONS)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(health.SERVICE_NAME, {"Check": check}),)
    )
    try:
        port = int(server.add_insecure_port(address))
    except RuntimeError:
        raise CannotServe(
            f"cannot serve health on {address}: choose with --health-host and --health-port"
        ) from None
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@contextlib.contextmanager
def _metrics_server(settings: FluxionServerSettings, metrics: FluxionMetrics) -> Iterator[int | None]:
    if settings.metrics_port is None:
        yield None
        return
    host = settings.metrics_host or settings.host
    try:
        http, thread = start_http_server(settings.metrics_port, host, metrics.registry)
    except OSError as error:
        raise CannotServe(
            f"cannot serve metrics on {_address(host, settings.metrics_port)}: {error.strerror}"
        ) from None
    try:
        yield http.server_port
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
