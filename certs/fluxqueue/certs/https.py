"""Servers on uvicorn that leave signals to their program, and HTTPS for clients of the control plane that keep their connections.

The API server and kube-scheduler pool connections, leave idle ones open for 90 seconds and do not repeat a POST that met a closed one. So
idle connections stay open here for longer than that, and it is always the client that closes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from fluxqueue.certs.connections import ConnectionEnding, ConnectionLimits, Connections
from fluxqueue.certs.guarded_http import GuardedHttp
from fluxqueue.certs.handshakes import Acceptor
from fluxqueue.certs.turns import Turns

__all__ = ["FINISH_S", "CannotListen", "EmbeddedServer", "GuardedServer", "HttpsServer", "listen"]

FINISH_S = 20
"""Seconds that requests in flight may take when the server stops."""

_KEEP_ALIVE_S = 180
_BACKLOG = 2_048
_SWEEP_S = 0.25


class CannotListen(OSError):
    """The address is in use, unknown or not local; the message names it."""


class EmbeddedServer(uvicorn.Server):
    """A server that runs inside a program and leaves signals to it; set ``should_exit`` to end it.

    uvicorn by itself would end at the first signal and raise it again afterwards, which would break off how the program ends. It would also
    look ten times a second whether it should end, and which date its answers carry, which is most of what an idle program does. Here
    ``should_exit`` wakes it, and an answer that needs the date asks for it. It does not count requests (``limit_max_requests``).
    """

    def __init__(self, config: uvicorn.Config) -> None:
        self._ending = asyncio.Event()
        super().__init__(config)
        self.server_state = _DatedState(config)

    @property
    def should_exit(self) -> bool:
        """True if the server is to end; set it from the loop of the server."""
        return self._ending.is_set()

    @should_exit.setter
    def should_exit(self, ends: bool) -> None:
        (self._ending.set if ends else self._ending.clear)()

    async def main_loop(self) -> None:
        """Serve until the end."""
        await self._ending.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signal handlers as they are."""
        yield


class _DatedState(ServerState):
    """What the connections of a server share; the headers of every answer have the date of the second in which they are read."""

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


class HttpsServer(EmbeddedServer):
    """Serve an application over TLS with our own context.

    Parameters
    ----------
    app
        The application to be served.
    context
        The live context: what is loaded into it later counts for later handshakes.
    """

    def __init__(self, app: ASGIApp, context: ssl.SSLContext) -> None:
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="off",
            ssl_context_factory=lambda _config, _default: context,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=FINISH_S,
            backlog=_BACKLOG,
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        super().__init__(config)


class GuardedServer(HttpsServer):
    """The same for clients of the whole network: no client can make it hold or wait for more than its limits.

    Parameters
    ----------
    app, context
        As for `HttpsServer`.
    limits
        The limits of its connections.
    observe
        Called for each connection that was ended because of them.
    """

    def __init__(
        self, app: ASGIApp, context: ssl.SSLContext, limits: ConnectionLimits, observe: Callable[[ConnectionEnding], None]
    ) -> None:
        super().__init__(app, context)
        self._context = context
        self._limits = limits
        self._observe = observe

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; each connection counts from its arrival."""
        loop = asyncio.get_running_loop()
        self._timed = asyncio.Event()
        self._connections = Connections(self._limits, loop.time, self._observe, self._timed.set)
        turns = Turns(loop.call_soon)
        state: dict[str, Any] = {}

        def follow() -> GuardedHttp:
            return GuardedHttp(self.config, self.server_state, state, self._connections, turns)

        acceptor = Acceptor(self._connections, self._context, follow)
        self.servers = []
        self._accepting = [loop.create_task(acceptor.accept(each), name="accept") for each in sockets or ()]
        self._sweeping = loop.create_task(self._sweep(), name="connections")
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Complete the requests that have arrived, and end."""
        for accepting in self._accepting:
            accepting.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        self._connections.end_handshakes()
        try:
            await super().shutdown(sockets)
        finally:
            self._sweeping.cancel()

    async def _sweep(self) -> None:
        """Keep deadlines; while no connection has one, nothing wakes."""
        while True:
            await self._timed.wait()
            self._timed.clear()
            await asyncio.sleep(_SWEEP_S)
            if self._connections.sweep():
                self._timed.set()


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
