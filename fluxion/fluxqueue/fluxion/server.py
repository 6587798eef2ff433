"""A running Fluxion service: sockets, encryption, health, reflection, metrics, and an orderly end.

The server is grpc.aio. It takes messages up to 256 MiB, because a graph or an exclusive allocation of a large cluster is one message
(the Go service stops at 4 MiB). Health (``grpc.health.v1``) says two things. The service named ``""`` is SERVING as soon as we listen:
this is what liveness and readiness probes ask, since a replica without a graph is healthy, it waits for its leader. The service
``fluxion.FluxionService`` is NOT_SERVING until a graph has been loaded: this is what a caller asks who wants to know whether Match can
work. While stopping, both are NOT_SERVING.

Certificates are read again when their files change, at the next connection, so a rotated certificate needs no restart.
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

from fluxqueue.fluxion.calls import SERVICE
from fluxqueue.fluxion.client import MAX_MESSAGE_BYTES
from fluxqueue.fluxion.engine import Engine
from fluxqueue.fluxion.metrics import GraphCollector, Metrics
from fluxqueue.fluxion.owner import EngineOwner
from fluxqueue.fluxion.service import FluxionService

# Reflection finds a service by the descriptors that are loaded.
from fluxqueue.proto.v1 import fluxion_pb2 as _descriptors  # noqa: F401  loaded for its effect

__all__ = ["CannotListen", "RunningServer", "ServerTls", "Settings", "serve"]

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

_LAST_WAIT_S = 1.0
"""For the engine, once nobody waits for its answers any more."""

log = structlog.get_logger(__name__)


class CannotListen(Exception):
    """The address is taken, unknown or not ours, or a certificate cannot be read."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Files for encrypted connections.

    Attributes
    ----------
    cert, key
        Ours, PEM.
    client_ca
        If given, clients must show a certificate signed by one of these.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> Any:
        """Credentials that follow the files.

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
                    log.info("fluxion.certificate-read", path=str(self.cert))
            except CannotListen as error:  # half written: the next connection tries again, on the certificate we have
                log.warning("fluxion.certificate-unreadable", reason=str(error))
            return current

        return grpc.dynamic_ssl_server_credentials(current, fetch, require_client_authentication=self.client_ca is not None)

    def _files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.cert, self.key, self.client_ca) if path is not None)

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((status.st_ino, status.st_mtime_ns) for status in (path.stat() for path in self._files()))
        except OSError as error:
            raise CannotListen(f"cannot read {error.filename}: {error.strerror}") from None

    def _read(self) -> Any:
        try:
            pair = (self.key.read_bytes(), self.cert.read_bytes())
            authorities = self.client_ca.read_bytes() if self.client_ca else None
        except OSError as error:
            raise CannotListen(f"cannot read {error.filename}: {error.strerror}") from None
        return grpc.ssl_server_certificate_configuration([pair], authorities)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where and how to serve.

    Attributes
    ----------
    host, port
        Of the service; a port of 0 is picked by the system.
    metrics_port, metrics_host
        Of ``/metrics``: none is served where the port is None, the host is the service's where it is None. As a sidecar the service
        listens on the loopback address only, while its metrics are read from elsewhere.
    tls
        Files for encrypted connections; plain text if None. Metrics are always plain.
    grace_s
        Time for calls under way at the end.
    """

    host: str = "127.0.0.1"
    port: int = 4242
    metrics_port: int | None = None
    metrics_host: str | None = None
    tls: ServerTls | None = None
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers: where it does."""

    port: int
    metrics_port: int | None


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


@contextlib.asynccontextmanager
async def serve(settings: Settings, engine: Engine | None = None) -> AsyncIterator[RunningServer]:
    """Serve inside of an ``async with``; at its end, calls under way get ``grace_s`` to finish.

    Parameters
    ----------
    settings
        Where and how.
    engine
        To be owned by the server from now on; a new one if None.

    Yields
    ------
    RunningServer
        Once it listens.

    Raises
    ------
    CannotListen
        The address or a certificate cannot be used.
    """
    owner = EngineOwner(Engine() if engine is None else engine)
    metrics = Metrics()
    metrics.registry.register(GraphCollector(owner))
    checks = health.aio.HealthServicer()
    status = health_pb2.HealthCheckResponse
    await checks.set("", status.NOT_SERVING)
    await checks.set(SERVICE, status.NOT_SERVING)

    async def graph_is_there() -> None:
        await checks.set(SERVICE, status.SERVING)

    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((FluxionService(owner, metrics, graph_is_there).generic_handler(),))
    add_HealthServicer_to_server(checks, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = _bind(server, settings)
        with _metrics_server(settings, metrics) as metrics_port:
            await server.start()
            await checks.set("", status.SERVING)
            log.info("fluxion.serving", address=_address(settings.host, port), metrics_port=metrics_port, tls=settings.tls is not None)
            try:
                yield RunningServer(port, metrics_port)
            finally:
                await checks.enter_graceful_shutdown()
                await server.stop(settings.grace_s)
    finally:
        finished = owner.close(_LAST_WAIT_S)
        log.info("fluxion.stopped", finished=finished)


def _bind(server: Any, settings: Settings) -> int:
    address = _address(settings.host, settings.port)
    try:
        if settings.tls is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, settings.tls.credentials()))
    except RuntimeError:
        raise CannotListen(
            f"cannot listen on {address}: is another program there, is the host one of this machine, is the certificate whole? "
            "Choose with --host and --port"
        ) from None


@contextlib.contextmanager
def _metrics_server(settings: Settings, metrics: Metrics) -> Iterator[int | None]:
    if settings.metrics_port is None:
        yield None
        return
    host = settings.metrics_host or settings.host
    try:
        http, thread = start_http_server(settings.metrics_port, host, metrics.registry)
    except OSError as error:
        raise CannotListen(f"cannot serve metrics on {_address(host, settings.metrics_port)}: {error.strerror}") from None
    try:
        yield http.server_port
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
