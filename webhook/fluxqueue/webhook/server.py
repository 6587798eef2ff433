"""The HTTPS server: uvicorn with our certificate, our signals and a slow end.

The API server pools its connections, leaves idle ones open for 90 seconds and does not repeat an admission POST that met a closed
connection. Two things follow. We keep idle connections open longer than it does, so that it is always the one to close them. And on
SIGTERM we do not end: for ``drain_s`` seconds we go on answering, new connections included (endpoints take a moment to leave every
node's tables), readiness says no, and every answer carries ``Connection: close``. Only then do we stop listening and let calls under way
finish. SIGINT skips the waiting, and a second signal of either kind cuts it short.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog
import uvicorn

from fluxqueue.webhook.app import create_app
from fluxqueue.webhook.certificates import ServedCertificate
from fluxqueue.webhook.decide import Settings
from fluxqueue.webhook.metrics import Metrics
from fluxqueue.webhook.readiness import Readiness

__all__ = ["CannotListen", "ServerSettings", "serve"]

log = structlog.get_logger(__name__)

_KEEP_ALIVE_S = 180
_FINISH_S = 20
_BACKLOG = 2_048


class CannotListen(OSError):
    """The address is taken, unknown or not ours; the message names it."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where and how to serve.

    Attributes
    ----------
    host, port
        Address to listen on; port 0 takes a free one and says which.
    certificate_directory
        Holding ``tls.crt`` and ``tls.key``, now or later.
    drain_s
        Seconds to go on answering after SIGTERM.
    look_s
        Seconds between two looks at the certificate.
    """

    host: str
    port: int
    certificate_directory: Path
    drain_s: float = 15.0
    look_s: float = 2.0


class _Server(uvicorn.Server):
    """uvicorn whose signals are ours: it would end at once, and then raise the signal again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: ServerSettings, admission: Settings, clock: Callable[[], dt.datetime]) -> None:
    """Serve until told to end.

    Parameters
    ----------
    settings
        Where and how.
    admission
        Of the decision.
    clock
        The time, with a zone.

    Raises
    ------
    CannotListen
        Before anything is served.
    """
    readiness, metrics = Readiness(), Metrics()
    certificate = ServedCertificate(settings.certificate_directory, readiness, metrics, clock)
    certificate.look()
    config = uvicorn.Config(
        create_app(admission, readiness, metrics, clock),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        ssl_context_factory=lambda _config, _default: certificate.context,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_FINISH_S,
        backlog=_BACKLOG,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    listening = _listen(settings.host, settings.port)
    server = _Server(config)
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.put_nowait, number)
    log.info("listening", host=settings.host, port=listening.getsockname()[1], certificates=str(settings.certificate_directory))
    following = asyncio.create_task(certificate.follow(settings.look_s), name="certificate")
    ending = asyncio.create_task(_end(server, readiness, told, settings.drain_s), name="end")
    serving = asyncio.create_task(server.serve(sockets=[listening]), name="server")
    try:
        await asyncio.wait({serving, following, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            server.should_exit = True
        await serving
    finally:
        for task in (following, ending):
            task.cancel()
        await asyncio.gather(following, ending, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    for task in (following, ending):
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
    log.info("ended")


async def _end(server: uvicorn.Server, readiness: Readiness, told: asyncio.Queue[signal.Signals], drain_s: float) -> None:
    number = await told.get()
    readiness.draining = True
    if number is signal.SIGTERM:
        log.info("draining", seconds=drain_s)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(told.get(), drain_s)
    server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listening
