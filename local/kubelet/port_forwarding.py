"""``port-forward``: connections to ports of a pod, in SPDY streams or in channels of a WebSocket.

With SPDY, each connection has two streams with the same ``requestid``: ``data`` and ``error``. The older
WebSocket (of the Python client) has the ports in its query, two channels for each, and begins each channel
with the number of its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMsgType, web

from fluxqueue.local.kubelet.sessions import V4
from fluxqueue.local.kubelet.spdy_connection import SpdyConnection, SpdyStream, take_over

__all__ = ["forward_ports"]

PROTOCOL = "portforward.k8s.io"
_CONNECT_TIMEOUT_S = 10.0
_MOST_PORTS = 64
_MOST_MESSAGE = 4 << 20
_MOST_WAITING = 64
_READ = 32 << 10

Read = Callable[[], Awaitable[bytes | None]]
Write = Callable[[bytes], Awaitable[None]]


async def forward_ports(request: web.Request, address: str) -> web.StreamResponse:
    """Forward ports of the pod with this address."""
    upgrade = request.headers.get("Upgrade", "").lower()
    if upgrade == "websocket":
        return await _in_channels(request, address)
    if upgrade != "spdy/3.1":
        raise web.HTTPBadRequest(text="this needs an upgrade to SPDY/3.1 or to a WebSocket")
    connection = take_over(request, {"X-Stream-Protocol-Version": PROTOCOL})
    waiting: dict[str, SpdyStream] = {}
    tasks: set[asyncio.Task[None]] = set()
    try:
        async for stream in connection.opened():
            key = stream.headers.get("requestid", "")
            other = waiting.pop(key, None)
            if other is None:
                waiting[key] = stream
                continue
            pair = {each.headers.get("streamtype"): each for each in (stream, other)}
            if pair.keys() != {"data", "error"}:
                await stream.reset()
                continue
            task = asyncio.create_task(_forward(address, connection, pair["data"], pair["error"]))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    finally:
        for task in tasks:
            task.cancel()
        await connection.close()
    return web.Response()


async def _forward(address: str, connection: SpdyConnection, data: SpdyStream, error: SpdyStream) -> None:
    with contextlib.suppress(OSError):
        problem = await _copy(address, data.headers.get("port", ""), data.read, data.write)
        if problem:
            await error.write(problem.encode())
        await data.close()
        await error.close()
    connection.forget(data)
    connection.forget(error)


async def _copy(address: str, port: str, read: Read, write: Write) -> str:
    """Connect to a port and copy both ways until the program closes the connection;
    return what went wrong.
    """
    if not port.isdecimal() or not 0 < int(port) < 65536:
        return f"{port!r} is no port"
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(address, int(port)), _CONNECT_TIMEOUT_S
        )
    except (OSError, TimeoutError) as failed:
        return f"nothing listens on port {port} of the pod's address {address}: {failed}"

    async def send() -> None:
        with contextlib.suppress(OSError):
            while (part := await read()) is not None:
                writer.write(part)
                await writer.drain()
            writer.write_eof()

    sending = asyncio.create_task(send())
    try:
        while part := await reader.read(_READ):
            await write(part)
    except OSError as failed:
        return str(failed)
    finally:
        sending.cancel()
        writer.close()
    return ""


async def _in_channels(request: web.Request, address: str) -> web.StreamResponse:
    ports = [
        port
        for text in request.query.getall("port", request.query.getall("ports", []))
        for port in text.split(",")
    ]
    if (
        not ports
        or len(ports) > _MOST_PORTS
        or not all(port.isdecimal() and 0 < int(port) < 65536 for port in ports)
    ):
        raise web.HTTPBadRequest(text=f"between 1 and {_MOST_PORTS} ports are needed")
    socket = web.WebSocketResponse(protocols=(V4,), max_msg_size=_MOST_MESSAGE)
    await socket.prepare(request)
    queues: list[asyncio.Queue[bytes | None]] = [asyncio.Queue(_MOST_WAITING) for _ in ports]

    async def forward(index: int, port: str) -> None:
        data, error = bytes([2 * index]), bytes([2 * index + 1])

        async def write(part: bytes) -> None:
            await socket.send_bytes(data + part)

        with contextlib.suppress(OSError):
            for channel in (data, error):
                await socket.send_bytes(channel + struct.pack("<H", int(port)))
            problem = await _copy(address, port, queues[index].get, write)
            if problem:
                await socket.send_bytes(error + problem.encode())

    async def receive() -> None:
        async for message in socket:
            if (
                message.type is WSMsgType.BINARY
                and message.data
                and message.data[0] % 2 == 0
                and message.data[0] < 2 * len(ports)
            ):
                await queues[message.data[0] // 2].put(message.data[1:])

    receiving = asyncio.create_task(receive())
    forwards = asyncio.gather(*(forward(index, port) for index, port in enumerate(ports)))
    ends: set[asyncio.Future[Any]] = {receiving, forwards}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        receiving.cancel()
        forwards.cancel()
    with contextlib.suppress(OSError):
        await socket.close()
    return socket
