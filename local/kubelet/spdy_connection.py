"""A connection with SPDY streams, taken over from an HTTP request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from aiohttp import web

from fluxqueue.local.kubelet.spdy import Data, Decoder, Encoder, GoAway, InvalidFrame, Open, Ping, Reset

__all__ = ["SpdyConnection", "SpdyStream", "take_over"]

_MOST_STREAMS = 256
_MOST_WAITING = 64
_READ = 64 << 10


class SpdyStream:
    """A stream that the other side has opened."""

    def __init__(self, connection: SpdyConnection, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self._connection = connection
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING)
        self._ended = False
        self._closed = False

    async def read(self) -> bytes | None:
        """Return the next bytes; None at the end."""
        if self._ended and self._received.empty():
            return None
        data = await self._received.get()
        if data is None:
            self._ended = True
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; nothing once it is closed."""
        if not self._closed:
            await self._connection.send_data(self.number, data, fin=False)

    async def close(self) -> None:
        """Say that no more bytes follow."""
        if not self._closed:
            self._closed = True
            await self._connection.send_data(self.number, b"", fin=True)

    async def reset(self) -> None:
        """Give the stream up."""
        self._closed = True
        with contextlib.suppress(OSError):
            await self._connection.send_reset(self.number)

    async def receive(self, data: bytes | None) -> None:
        """Take bytes of the connection; a slow reader slows the connection down."""
        await self._received.put(data)

    def give_up(self) -> None:
        """End it at once: nothing more can arrive."""
        self._closed = True
        with contextlib.suppress(asyncio.QueueFull):
            self._received.put_nowait(None)
        self._ended = True


class SpdyConnection:
    """The streams of one connection.

    Parameters
    ----------
    reader, writer
        The connection, after its upgrade.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._encoder = Encoder()
        self._streams: dict[int, SpdyStream] = {}
        self._last = 0

    async def opened(self) -> AsyncIterator[SpdyStream]:
        """Read the connection to its end; yield each stream that is opened, after it has been accepted."""
        decoder = Decoder()
        try:
            while data := await self._reader.read(_READ):
                for frame in decoder.feed(data):
                    if isinstance(frame, Open):
                        if len(self._streams) >= _MOST_STREAMS:
                            raise InvalidFrame(f"more than {_MOST_STREAMS} streams are open")
                        stream = SpdyStream(self, frame.stream, frame.headers)
                        self._streams[frame.stream] = stream
                        self._last = max(self._last, frame.stream)
                        await self._send(self._encoder.reply(frame.stream))
                        if frame.fin:
                            await stream.receive(None)
                        yield stream
                    elif isinstance(frame, Data):
                        await self._receive(frame)
                    elif isinstance(frame, Reset):
                        if (reset := self._streams.pop(frame.stream, None)) is not None:
                            reset.give_up()
                    elif isinstance(frame, Ping):
                        await self._send(self._encoder.ping(frame.number))
                    elif isinstance(frame, GoAway):
                        return
        except (OSError, InvalidFrame):
            return
        finally:
            for stream in self._streams.values():
                stream.give_up()

    def forget(self, stream: SpdyStream) -> None:
        """Free a stream that has been used up."""
        self._streams.pop(stream.number, None)

    async def close(self) -> None:
        """Say that the connection ends, and close it."""
        with contextlib.suppress(OSError):
            await self._send(self._encoder.go_away(self._last))
        self._writer.close()

    async def send_data(self, number: int, data: bytes, *, fin: bool) -> None:
        """Send bytes of a stream; wait while the connection is full."""
        await self._send(self._encoder.data(number, data, fin=fin))

    async def send_reset(self, number: int) -> None:
        """Give a stream up."""
        await self._send(self._encoder.reset(number))

    async def _receive(self, frame: Data) -> None:
        stream = self._streams.get(frame.stream)
        if stream is not None:
            if frame.data:
                await stream.receive(frame.data)
            if frame.fin:
                await stream.receive(None)

    async def _send(self, data: bytes) -> None:
        if self._writer.is_closing():  # a closed TLS connection fails in ways of its own
            raise ConnectionResetError("the connection has ended")
        self._writer.write(data)
        await self._writer.drain()


class _Taken(asyncio.StreamReaderProtocol):
    """The protocol of a connection that was one of the HTTP server, which still has to know of its end."""

    def __init__(self, reader: asyncio.StreamReader, former: asyncio.BaseProtocol) -> None:
        super().__init__(reader)
        self._former = former

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._former.connection_lost(exc)


def take_over(request: web.Request, headers: Mapping[str, str]) -> SpdyConnection:
    """Answer an upgrade to SPDY/3.1, and take the connection from the HTTP server."""
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the connection has ended")
    reader = asyncio.StreamReader()
    protocol = _Taken(reader, request.protocol)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Connection: Upgrade",
        "Upgrade: SPDY/3.1",
        *(f"{name}: {text}" for name, text in headers.items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    return SpdyConnection(reader, writer)
