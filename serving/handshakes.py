"""Connections from their arrival to the end of their TLS handshakes, where the server has TLS.

The event loop by itself begins a handshake with everybody who connects, and waits a minute for its end. Here
a connection counts from its arrival, so unfinished handshakes are limited in number and time like every other
connection. Until its first byte arrives it costs a socket and no more: TLS would hold some 60 KiB for it. The
client speaks first in TLS as in HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import socket
import ssl
from collections.abc import Callable

from fluxqueue.serving.connections import ConnectionEnding, Connections, LimitedConnection, Stage

__all__ = ["Acceptor"]

_SHUTDOWN_S = 2.0
_PAUSE_S = 0.1
_AT_ONCE = 8
"""Connections that are accepted before those that are open are served again."""


class Acceptor:
    """Accepts connections and completes their handshakes.

    Parameters
    ----------
    connections
        All connections of the server.
    context
        The TLS context; None: a connection begins without a handshake.
    follow
        Makes the protocol of a connection whose handshake is complete. It takes over the place of the
        handshake among the connections.
    """

    def __init__(
        self,
        connections: Connections,
        context: ssl.SSLContext | None,
        follow: Callable[[LimitedConnection], asyncio.Protocol],
    ) -> None:
        self._book = connections
        self._context = context
        self._follow = follow
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, listening: socket.socket) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        for number in itertools.count(1):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                arrived, address = await loop.sock_accept(listening)
            except OSError:  # the client has gone already, or the process has too many open files
                await asyncio.sleep(_PAUSE_S)
                continue
            handshake = _Handshake(arrived, address[0], self._book.clock())
            self._book.enter(handshake)
            if handshake.ended:
                arrived.close()
                continue
            task = loop.create_task(self._begin(handshake))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _begin(self, handshake: _Handshake) -> None:
        loop = asyncio.get_running_loop()
        follow = functools.partial(self._follow, handshake)
        try:
            await _readable(handshake.socket)
            if handshake.ended:
                handshake.socket.close()
                return
            if self._context is None:
                await loop.connect_accepted_socket(follow, handshake.socket)
                return
            await loop.connect_accepted_socket(
                follow,
                handshake.socket,
                ssl=self._context,
                ssl_handshake_timeout=2 * self._book.limits.request_s,  # it is ended, and counted, before
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        except OSError:  # ssl.SSLError, a time-out and a closed connection are such errors
            handshake.end(ConnectionEnding.SLOW)
        finally:
            self._book.leave(handshake)


async def _readable(arrived: socket.socket) -> None:
    """Wait for the first byte, or for the end of the connection."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def begin() -> None:
        loop.remove_reader(arrived)
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(arrived, begin)
    try:
        await readable
    finally:
        loop.remove_reader(arrived)


class _Handshake:
    """A connection whose handshake is not complete."""

    def __init__(self, arrived: socket.socket, address: str, since: float) -> None:
        arrived.setblocking(False)
        self.socket = arrived
        self.address = address
        self.stage = Stage.HANDSHAKE
        self.since = since
        self.answered = False
        self.held = 0
        self.ended = False

    def end(self, _ending: ConnectionEnding) -> None:
        """Make the connection end; there is nobody to answer yet."""
        self.ended = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
