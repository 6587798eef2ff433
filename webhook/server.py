"""The HTTPS server of the webhook, with our certificate, our signal handling and a drain.

The API server pools its connections and does not repeat an admission POST that met a closed one
(`fluxqueue.serving.guarded_server`). So SIGTERM does not stop the server at once. For ``drain_s`` seconds it
keeps answering, new connections included, because endpoints take some time to leave the tables of every node.
Readiness fails, and every response carries ``Connection: close``. Then the server stops listening, and
requests in flight are completed. SIGINT skips the drain, and a second signal of either kind ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from fluxqueue.api.loop_monitor import log_blocks
from fluxqueue.serving.connections import ConnectionLimits
from fluxqueue.serving.guarded_server import CannotListen, GuardedServer, listen
from fluxqueue.serving.health import HealthServer
from fluxqueue.serving.readiness import Readiness
from fluxqueue.serving.self_call import SelfCall
from fluxqueue.serving.served_certificate import ServedCertificate
from fluxqueue.webhook.app import MAX_BODY_BYTES, create_app
from fluxqueue.webhook.decide import AdmissionSettings
from fluxqueue.webhook.metrics import WebhookMetrics

__all__ = ["CannotListen", "ServerSettings", "serve"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Address, certificate and timing of the server.

    Attributes
    ----------
    host, port
        Address to listen on; port 0 chooses a free one, which is logged.
    certificate_directory
        Folder of ``tls.crt`` and ``tls.key``, which may appear later.
    drain_s
        Seconds for which the server keeps answering after SIGTERM.
    look_s
        Seconds between two checks of the certificate.
    request_s
        Seconds for a TLS handshake, and for a request to arrive as a whole.
    name
        DNS name or IP address by which the API server calls, for the call to itself; empty, none is made.
    health_port
        Port of liveness, plain HTTP; None if it is not served.
    """

    host: str
    port: int
    certificate_directory: Path
    drain_s: float = 15.0
    look_s: float = 2.0
    request_s: float = 5.0
    name: str = ""
    health_port: int | None = None


async def serve(
    settings: ServerSettings,
    admission: AdmissionSettings,
    clock: Callable[[], dt.datetime],
    watch: Callable[[], Coroutine[None, None, None]] | None = None,
) -> None:
    """Serve until a signal stops the server.

    Parameters
    ----------
    settings
        Address, certificate and timing.
    admission
        Settings of the decision.
    clock
        The time, with a zone.
    watch
        Updates the known queues, and choices of a scheduler, while the server runs. No response waits for it.

    Raises
    ------
    CannotListen
        The address is in use, unknown or not local.
    """
    readiness, metrics = Readiness(), WebhookMetrics()
    log_blocks(metrics.loop_blocked)
    certificate = ServedCertificate(settings.certificate_directory, readiness, metrics, clock)
    certificate.check()
    listening = listen(settings.host, settings.port)
    health = _health(settings, readiness, clock) if settings.health_port is not None else None
    server = GuardedServer(
        create_app(admission, readiness, metrics, clock),
        listening,
        ConnectionLimits(body_bytes=MAX_BODY_BYTES, request_s=settings.request_s),
        context=certificate.context,
        observe=metrics.connection_ended,
    )
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    folder = settings.certificate_directory
    log.info("webhook.listening", host=settings.host, port=server.port, certificates=str(folder))
    self_call = SelfCall(
        folder,
        settings.name,
        _own_address(listening),
        certificate,
        readiness,
        loop.time,
    )
    following = asyncio.create_task(_follow(certificate, self_call, settings.look_s), name="certificate")
    stopping = asyncio.create_task(
        _stop_on_signal(server, readiness, signals, settings.drain_s), name="signals"
    )
    beside = [asyncio.create_task(watch(), name="watch")] if watch is not None else []
    beside += [asyncio.create_task(health.serve(), name="health")] if health is not None else []
    await _serve_until_stopped(server, following, stopping, beside)
    log.info("webhook.stopped")


async def _serve_until_stopped(
    server: GuardedServer,
    following: asyncio.Task[None],
    stopping: asyncio.Task[None],
    beside: Sequence[asyncio.Task[None]],
) -> None:
    """Serve until a signal stops the server or one of the tasks fails; end all tasks then."""
    serving = asyncio.create_task(server.serve(), name="server")
    try:
        await asyncio.wait({serving, following, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            server.should_exit = True
        await serving
    finally:
        for task in (following, stopping, *beside):
            task.cancel()
        await asyncio.gather(following, stopping, *beside, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
    for task in (following, stopping):
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def _health(settings: ServerSettings, readiness: Readiness, clock: Callable[[], dt.datetime]) -> HealthServer:
    """Return the server of the health port; the kubelet asks the HTTPS port whether it is ready,
    as that is what has to answer.
    """

    def ready() -> tuple[bool, dict[str, object]]:
        problem = readiness.problem(clock())
        return problem is None, {"ready": problem is None, "missing": ["certificate"] if problem else []}

    return HealthServer(settings.host, settings.health_port or 0, ready)


async def _follow(certificate: ServedCertificate, self_call: SelfCall, look_s: float) -> None:
    """Check the folder, and then whether what is served can be used, until cancelled."""
    while True:
        certificate.check()
        await self_call.check()
        await asyncio.sleep(look_s)


def _own_address(listening: socket.socket) -> tuple[str, int]:
    """Return where a listening socket can be reached from this machine."""
    host, port = listening.getsockname()[:2]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port  # noqa: S104  compared, not listened on


async def _stop_on_signal(
    server: GuardedServer, readiness: Readiness, signals: asyncio.Queue[signal.Signals], drain_s: float
) -> None:
    number = await signals.get()
    readiness.draining = True
    if number is signal.SIGTERM:
        log.info("webhook.draining", seconds=drain_s)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(signals.get(), drain_s)
    server.should_exit = True
