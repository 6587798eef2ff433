"""HTTP/1.1 of uvicorn, with limits on everything that a client can make the server hold.

uvicorn starts a task for each request as soon as its head is complete, waits for the body without a limit of
time, and repeats no count of what all requests hold. So two hundred slow clients make it hold hundreds of
megabytes. Here a request waits outside the application until it is complete, within the limits of
`fluxqueue.serving.connections`, and then for its turn (`fluxqueue.serving.turns`). The application finds the
whole body at its first call of ``receive``. A service that answers before it has read a body gets the request
when its head is complete (`ConnectionLimits.whole_requests`), and bounds the body itself.

Requests that are pipelined are refused. The API server, kube-scheduler and the kubelet never send them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from fluxqueue.serving.connections import ConnectionEnding, Connections, LimitedConnection, Stage
from fluxqueue.serving.turns import Turns

__all__ = ["GuardedHttp"]

_MAX_HEADERS = 64
_MAX_PARTS = 16_384
_LARGE_BYTES = 2**16
_MAX_OVERHEAD_BYTES = 2**16
"""Of a request's head, trailers and chunk lengths, beyond as many bytes as its body has."""

_RETRY_AFTER_S = 1
_ANSWERS = {
    ConnectionEnding.CROWDED: (
        429,
        "too many connections are open: this one was ended for another one, connect again",
    ),
    ConnectionEnding.BUSY: (429, "too many requests wait for an answer: send this one again"),
    ConnectionEnding.MEMORY: (
        429,
        "the requests that are being received hold too many bytes: send this one again",
    ),
    ConnectionEnding.SLOW: (408, "the request was not complete in time: send it at once"),
    ConnectionEnding.LARGE: (413, "the request is larger than {limits.body_bytes} bytes"),
    ConnectionEnding.MALFORMED: (
        400,
        (
            "the request is not HTTP/1.1 with one request at a time, "
            "at most 64 headers and 64 KiB around its body"
        ),
    ),
}


class _Refused(Exception):
    """The request ends the connection."""

    def __init__(self, ending: ConnectionEnding) -> None:
        super().__init__(ending)
        self.ending = ending


class GuardedHttp(HttpToolsProtocol):
    """One connection after its handshake.

    Parameters
    ----------
    config, server_state, app_state
        As uvicorn passes them.
    connections
        All connections of the server.
    turns
        The order of complete requests.
    arrived
        The same connection before its handshake was complete, whose place it takes.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        connections: Connections,
        turns: Turns,
        arrived: LimitedConnection,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._book = connections
        self._turns = turns
        self._arrived = arrived
        self._waiting_app: ASGIApp | None = None
        self._size = self._parts = self._raw = 0
        self._refusal: ConnectionEnding | None = None
        self.address = ""
        self.stage = Stage.IDLE
        self.since = connections.clock()
        self.answered = False
        self.held = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a connection whose handshake is complete."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._turn_to(Stage.IDLE)
        self._book.leave(self._arrived)
        self._book.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._book.leave(self)
        self._turns.leave(self)
        super().connection_lost(exc)

    def end(self, ending: ConnectionEnding) -> None:
        """Answer an unfinished request with a sentence, and close the connection."""
        self._turns.leave(self)
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            cycle.body = bytearray()
        if self.stage in (Stage.RECEIVING, Stage.WAITING):
            self.transport.write(self._answer(ending))
            self.transport.close()
        elif self.stage is Stage.IDLE:
            self.transport.close()
        else:
            self.transport.abort()
        self._waiting_app = None

    def data_received(self, data: bytes) -> None:
        """Read bytes; refuse the request as soon as it is beyond a limit."""
        if self.transport.is_closing():
            return
        if self.stage is Stage.IDLE:
            self._turn_to(Stage.RECEIVING)
            self._raw = self._size = 0
        self._raw += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # the request is answered as if it had not asked for one
            pass
        except httptools.HttpParserError:  # also if a function below raised
            self._book.end(self, self._refusal or ConnectionEnding.MALFORMED)
        if self.stage is Stage.RECEIVING and self._raw > 2 * self._size + _MAX_OVERHEAD_BYTES:
            self._book.end(self, ConnectionEnding.MALFORMED)

    def on_message_begin(self) -> None:
        """Begin with a request; refuse one that arrives before the former one is answered."""
        if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
            self._refuse(ConnectionEnding.MALFORMED)
        self._parts = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, or a trailer."""
        if len(self.headers) >= _MAX_HEADERS:
            self._refuse(ConnectionEnding.MALFORMED)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Refuse a body that is declared too large; tell a client that asks first to send it."""
        if not self._book.limits.whole_requests:
            super().on_headers_complete()
            return
        declared = next((value for name, value in self.headers if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared[:20]) > self._book.limits.body_bytes:
            self._refuse(ConnectionEnding.LARGE)
        super().on_headers_complete()
        if self.cycle.waiting_for_100_continue:
            self.cycle.waiting_for_100_continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body, within the limits."""
        if not self._book.limits.whole_requests:
            super().on_body(body)
            return
        self._size += len(body)
        self._parts += 1
        if self._size > self._book.limits.body_bytes:
            self._refuse(ConnectionEnding.LARGE)
        if self._parts > _MAX_PARTS:
            self._refuse(ConnectionEnding.MALFORMED)
        self._book.hold(self, len(body))
        if not self.transport.is_closing():
            self.cycle.body += body

    def on_message_complete(self) -> None:
        """Let the request wait for its turn."""
        if not self._book.limits.whole_requests:
            super().on_message_complete()
            return
        if self._waiting_app is None or self.transport.is_closing():
            return
        super().on_message_complete()
        self._turn_to(Stage.WAITING)
        self._turns.take(self.address, self, self._start, large=self._size > _LARGE_BYTES)

    def on_response_complete(self) -> None:
        """Forget the request that was answered."""
        self._book.release(self)
        self.answered = True
        self._turn_to(Stage.IDLE)
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Keep the application until the request is complete; uvicorn calls this when its head is."""
        self._waiting_app = app
        if not self._book.limits.whole_requests:
            self._start()

    def _start(self) -> None:
        app, self._waiting_app = self._waiting_app, None
        if app is not None:
            self._turn_to(Stage.ANSWERING)
            super()._start_asgi_task(self.cycle, app)  # type: ignore[arg-type]

    def _turn_to(self, stage: Stage) -> None:
        self.stage = stage
        self.since = self._book.clock()
        self._book.timed()

    def _refuse(self, ending: ConnectionEnding) -> None:
        self._refusal = ending
        raise _Refused(ending)

    def _answer(self, ending: ConnectionEnding) -> bytes:
        status, sentence = _ANSWERS[ending]
        body = f"{sentence.format(limits=self._book.limits)}\n".encode()
        retry = f"retry-after: {_RETRY_AFTER_S}\r\n" if status == 429 else ""
        head = (
            "content-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\n"
            f"{retry}connection: close\r\n"
            "\r\n"
        )
        return STATUS_LINE[status] + head.encode() + body
