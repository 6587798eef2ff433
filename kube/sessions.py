"""The HTTP session with the API server: its connections, and the last check of a write.

A write is checked again when its bytes are written: before that, a TLS handshake and other tasks take their
time. So a process that was paused for longer than its Lease lasts sends no write when it continues. Only a
write that was paused within its system call arrives later; its resourceVersion refuses it.

Responses are requested without compression: inside a cluster, the CPU time of gzip costs more than the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection

from fluxqueue.kube.errors import NotLeading

__all__ = ["check_write", "open_session"]

KEEPALIVE_S: Final = 30.0
"""How long an idle connection is kept: well below the 90 s after which the API server closes it,
so that the two do not race."""

CLOSE_S: Final = 1.0
READ_BUFFER: Final = 1 << 18
"""Bytes. It limits how many watch events arrive in one chunk, and so how long they block the event loop."""

check_write: ContextVar[Callable[[], None] | None] = ContextVar("check_write", default=None)
"""Raises NotLeading if the request of this task must not be sent now; None: it may always be sent."""


class _GuardedRequest(aiohttp.ClientRequest):
    """A request that is checked once more when its connection is there, and when its body is written."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        if check := check_write.get():
            check()
        return await super().send(conn)

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        """Write the headers and the body; a task of its own before Python 3.12,
        so others may run between `send` and this.
        """
        try:
            if check := check_write.get():
                check()
        except NotLeading as error:
            if conn.protocol is not None:
                # `send` has returned: whoever waits for the response gets it
                conn.protocol.set_exception(error)
            return
        await super().write_bytes(writer, conn, content_length)


@asynccontextmanager
async def open_session(tls: ssl.SSLContext | bool, user_agent: str) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a pool of connections, and wait at the end until they are closed."""
    sockets: WeakSet[socket.socket] = WeakSet()

    def make_socket(address: tuple[Any, ...]) -> socket.socket:
        sock = _keepalive_socket(address)
        sockets.add(sock)
        return sock

    connector = aiohttp.TCPConnector(
        limit=0, ssl=tls, keepalive_timeout=KEEPALIVE_S, socket_factory=make_socket
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
        read_bufsize=READ_BUFFER,
        request_class=_GuardedRequest,
    )
    # aiohttp itself would repeat DELETE if a kept connection breaks; its retry of reads is not needed
    # either.
    session._retry_connection = False
    try:
        async with session:
            yield session
    finally:
        await _wait_closed(sockets)


async def _wait_closed(sockets: WeakSet[socket.socket]) -> None:
    """Wait for the TLS close of cancelled requests.
    aiohttp does not wait, and an event loop that ends earlier leaks the socket.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            while any(sock.fileno() >= 0 for sock in sockets):
                await asyncio.sleep(0.005)


def _keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a TCP socket with keepalive probes, so that the loss of a host is noticed within about 30 s."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 30_000),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock
