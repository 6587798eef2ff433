"""The server of every port of the project: uvicorn, with limits on what clients can make it hold.

Any pod of a cluster may connect to a port. So a connection counts from its arrival, before the TLS handshake,
in `connections`: their number, their bytes and the time of each step are bounded, and of too many the one
that is worth least ends. The process keeps open files in reserve (`fluxqueue.api.descriptors`).

The API server and kube-scheduler pool connections, leave idle ones open for 90 seconds and do not repeat a
POST that met a closed one. So by default idle connections stay open here for longer than that, and it is
always the client that closes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from fluxqueue.api.descriptors import most_connections
from fluxqueue.serving.connections import ConnectionEnding, ConnectionLimits, Connections, LimitedConnection
from fluxqueue.serving.guarded_http import GuardedHttp
from fluxqueue.serving.handshakes import Acceptor
from fluxqueue.serving.turns import Turns

__all__ = ["FINISH_S", "CannotListen", "GuardedServer", "listen"]

FINISH_S = 20
"""Seconds that requests in flight may take when the server stops."""

_BACKLOG = 2_048
_SWEEP_S = 0.25


class CannotListen(OSError):
    """The address is in use, unknown or not local; the message names it."""


class GuardedServer(uvicorn.Server):
    """A server that runs inside a program and leaves signals to it; set ``should_exit`` to end it.

    uvicorn by itself would end at the first signal and raise it again afterwards, which would break off how
    the program ends. It would also look ten times a second whether it should end, and which date its answers
    carry, which is most of what an idle program does. Here ``should_exit`` wakes it, and an answer that needs
    the date asks for it. It does not count requests (``limit_max_requests``).

    Parameters
    ----------
    app
        The application to be served.
    listening
        Where to listen; the server closes it at its end.
    limits
        The limits of its connections.
    context
        The live context: what is loaded into it later counts for later handshakes. None: without TLS.
    observe
        Called for each connection that was ended because of the limits.
    finish_s
        Seconds that requests in flight may take when the server stops.
    """

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        limits: ConnectionLimits,
        *,
        context: ssl.SSLContext | None = None,
        observe: Callable[[ConnectionEnding], None] = lambda _ending: None,
        finish_s: int = FINISH_S,
    ) -> None:
        self._ending = asyncio.Event()
        self._listening = listening
        self._limits = dataclasses.replace(limits, connections=most_connections(limits.connections))
        self._context = context
        self._observe = observe
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            timeout_keep_alive=round(limits.idle_s),
            timeout_graceful_shutdown=finish_s,
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("connection", "close")] if limits.one_request else [],
        )
        super().__init__(config)
        self.server_state = _DatedState(config)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listening.getsockname()[1])

    @property
    def should_exit(self) -> bool:
        """True if the server is to end; set it from the loop of the server."""
        return self._ending.is_set()

    @should_exit.setter
    def should_exit(self, ends: bool) -> None:
        (self._ending.set if ends else self._ending.clear)()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections; each counts from its arrival."""
        loop = asyncio.get_running_loop()
        self._timed = asyncio.Event()
        self._connections = Connections(self._limits, loop.time, self._observe, self._timed.set)
        turns = Turns(loop.call_soon)
        state: dict[str, Any] = {}

        def follow(arrived: LimitedConnection) -> GuardedHttp:
            return GuardedHttp(self.config, self.server_state, state, self._connections, turns, arrived)

        acceptor = Acceptor(self._connections, self._context, follow)
        self.servers = []
        self._accepting = loop.create_task(acceptor.accept(self._listening), name="accept")
        self._sweeping = loop.create_task(self._sweep(), name="connections")
        self.started = True

    async def main_loop(self) -> None:
        """Serve until the end; if cancelled, leave everything at once."""
        try:
            await self._ending.wait()
        except asyncio.CancelledError:
            self._accepting.cancel()
            self._sweeping.cancel()
            self._connections.end_handshakes()
            self._listening.close()
            raise

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Complete the requests that have arrived, and end."""
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        self._connections.end_handshakes()
        try:
            await super().shutdown([self._listening])
        finally:
            self._sweeping.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signal handlers as they are."""
        yield

    async def _sweep(self) -> None:
        """Keep deadlines; while no connection has one, nothing wakes."""
        while True:
            wait_s = self._connections.sweep()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._timed.wait()
            self._timed.clear()
            await asyncio.sleep(_SWEEP_S)


class _DatedState(ServerState):
    """What the connections of a server share; the headers of every answer have the date of the second in
    which they are read.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        self._config = config
        self._second = 0
        self._headers: list[tuple[bytes, bytes]] = []
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of an answer that begins now."""
        if (second := int(time.time())) != self._second:
            date = [(b"date", formatdate(second, usegmt=True).encode())] if self._config.date_header else []
            self._second, self._headers = second, date + self._config.encoded_headers
        return self._headers

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        self._headers = headers


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Parameters
    ----------
    host, port
        The address; port 0 chooses a free one.

    Raises
    ------
    CannotListen
        The address is in use, unknown or not local.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
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
