"""What goes back and forth in ``exec`` and ``attach``: stdin, stdout, stderr, the sizes of the terminal, and
a status at the end.

It comes in two forms, and a `Session` hides which:

- SPDY streams, one for each of these, with their names in a header. kubectl's WebSocket (v5.channel.k8s.io)
  arrives like this, translated by the API server.
- Channels of a WebSocket (v4.channel.k8s.io), each message with its number in front. The API server passes
  this older protocol on as it is; the Python client uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from aiohttp import WSMsgType, web

from fluxqueue.local.kubelet.spdy_connection import SpdyConnection, SpdyStream, take_over

__all__ = ["SUCCESS", "Session", "SessionOptions", "ended_with", "failure", "open_session"]

_STREAMS_TIMEOUT_S = 30.0
_MOST_MESSAGE = 4 << 20
_MOST_WAITING = 64
V4 = "v4.channel.k8s.io"
_OLDER = "channel.k8s.io"
SUCCESS: Mapping[str, Any] = {"metadata": {}, "status": "Success"}


def ended_with(code: int) -> dict[str, Any]:
    """Return the status of a command that ended with another code than 0."""
    cause = {"reason": "ExitCode", "message": str(code)}
    message = f"command terminated with non-zero exit code: exit status {code}"
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": message,
        "details": {"causes": [cause]},
    }


def failure(message: str) -> dict[str, Any]:
    """Return the status of what could not be done."""
    return {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500}


class _Size(msgspec.Struct, rename="pascal"):
    width: int
    height: int


@dataclass(frozen=True)
class SessionOptions:
    """Which streams a session has."""

    stdin: bool
    stdout: bool
    stderr: bool
    terminal: bool

    @classmethod
    def read(cls, query: Mapping[str, str]) -> SessionOptions:
        """Read the query of a request; a terminal has no stderr of its own."""
        terminal = query.get("tty") in ("1", "true")
        on = {name: query.get(name) in ("1", "true") for name in ("input", "output", "error")}
        return cls(on["input"], on["output"], on["error"] and not terminal, terminal)


class Session(Protocol):
    """The other side of an ``exec`` or ``attach``.

    Attributes
    ----------
    sizes
        The sizes (width, height) of its terminal.
    """

    sizes: asyncio.Queue[tuple[int, int]]

    async def read(self) -> bytes | None:
        """Return the next bytes of stdin; None at its end, or if the other side is gone."""

    async def write(self, stream: str, data: bytes) -> None:
        """Send ``stdout`` or ``stderr``; raise OSError if the other side is gone."""

    async def gone(self) -> None:
        """Wait until the other side is gone."""

    async def finish(self, status: Mapping[str, Any]) -> None:
        """Send the status and end the session."""


async def open_session(request: web.Request, options: SessionOptions) -> tuple[Session, web.StreamResponse]:
    """Accept the upgrade of a request.

    Returns
    -------
    tuple
        The session, and what the handler returns to the HTTP server after it.

    Raises
    ------
    aiohttp.web.HTTPBadRequest
        It is no upgrade, or to something else.
    """
    upgrade = request.headers.get("Upgrade", "").lower()
    if upgrade == "websocket":
        socket = web.WebSocketResponse(protocols=(V4, _OLDER), max_msg_size=_MOST_MESSAGE, heartbeat=30.0)
        await socket.prepare(request)
        session = _WebSocketSession(socket, options)
        await session.begin()
        return session, socket
    if upgrade != "spdy/3.1":
        raise web.HTTPBadRequest(text="this needs an upgrade to SPDY/3.1 or to a WebSocket")
    offered = {
        word.strip()
        for line in request.headers.getall("X-Stream-Protocol-Version", [])
        for word in line.split(",")
    }
    if V4 not in offered:
        raise web.HTTPForbidden(text=f"none of the protocols {', '.join(sorted(offered))} is {V4}")
    spdy = _SpdySession(take_over(request, {"X-Stream-Protocol-Version": V4}), options)
    await spdy.begin()
    return spdy, web.Response()


class _WebSocketSession:
    """A session in channels of a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, options: SessionOptions) -> None:
        self.sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self._socket = socket
        self._options = options
        self._stdin: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING)
        self._reading: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Tell the other side that the session is open, by an empty message."""
        channel = 1 if self._options.stdout else 2 if self._options.stderr else 3
        await self._socket.send_bytes(bytes([channel]))
        self._reading = asyncio.create_task(self._receive())

    async def read(self) -> bytes | None:
        return await self._stdin.get()

    async def write(self, stream: str, data: bytes) -> None:
        if getattr(self._options, stream):
            await self._socket.send_bytes(bytes([1 if stream == "stdout" else 2]) + data)

    async def gone(self) -> None:
        if self._reading is not None:
            await asyncio.shield(self._reading)

    async def finish(self, status: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            text = (
                json.dumps(status) if self._socket.ws_protocol == V4 or status["status"] != "Success" else ""
            )
            await self._socket.send_bytes(b"\x03" + text.encode())
            await self._socket.close()
        if self._reading is not None:
            self._reading.cancel()

    async def _receive(self) -> None:
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY or not message.data:
                    continue
                if message.data[0] == 0 and self._options.stdin:
                    await self._stdin.put(message.data[1:])
                elif message.data[0] == 4:
                    _put_size(self.sizes, message.data[1:])
        finally:
            await self._stdin.put(None)


class _SpdySession:
    """A session in SPDY streams."""

    def __init__(self, connection: SpdyConnection, options: SessionOptions) -> None:
        self.sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self._connection = connection
        self._options = options
        self._streams: dict[str, SpdyStream] = {}
        self._complete = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._resizing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Wait until the other side has opened its streams."""
        self._reading = asyncio.create_task(self._accept())
        complete = asyncio.create_task(self._complete.wait())
        await asyncio.wait(
            [complete, self._reading], timeout=_STREAMS_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        complete.cancel()
        if not self._complete.is_set():
            await self._connection.close()
            raise ConnectionResetError("the streams of a session were not opened in time")
        if "resize" in self._streams:
            self._resizing = asyncio.create_task(self._resize(self._streams["resize"]))

    async def read(self) -> bytes | None:
        return await self._streams["stdin"].read() if "stdin" in self._streams else None

    async def write(self, stream: str, data: bytes) -> None:
        if stream in self._streams:
            await self._streams[stream].write(data)

    async def gone(self) -> None:
        if self._reading is not None:
            await asyncio.shield(self._reading)

    async def finish(self, status: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            await self._streams["error"].write(json.dumps(status).encode())
            for name in ("error", "stdout", "stderr"):
                if name in self._streams:
                    await self._streams[name].close()
        await self._connection.close()
        for task in (self._reading, self._resizing):
            if task is not None:
                task.cancel()

    async def _accept(self) -> None:
        options = self._options
        names = {
            "stdin": options.stdin,
            "stdout": options.stdout,
            "stderr": options.stderr,
            "resize": options.terminal,
            "error": True,
        }
        wanted = {name for name, on in names.items() if on}
        async for stream in self._connection.opened():
            name = stream.headers.get("streamtype", "")
            if name in wanted and name not in self._streams:
                self._streams[name] = stream
            else:
                await stream.reset()
            if wanted <= self._streams.keys():
                self._complete.set()

    async def _resize(self, stream: SpdyStream) -> None:
        while (data := await stream.read()) is not None:
            for line in data.splitlines():
                _put_size(self.sizes, line)


def _put_size(sizes: asyncio.Queue[tuple[int, int]], text: bytes) -> None:
    with contextlib.suppress(msgspec.MsgspecError):
        size = msgspec.json.decode(text, type=_Size)
        sizes.put_nowait((size.width, size.height))
