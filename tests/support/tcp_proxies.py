"""A TCP connection that can be broken on purpose, in each way that networks break.

``cut`` resets every connection. ``stall`` transfers bytes in and not out, like a firewall that lost the
connection. ``deafen`` transfers requests and delays the answers, so that a write happens without an answer.
``refuse`` resets new connections. ``restore`` ends these faults. TLS is not changed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TcpProxy:
    """A proxy between a free loopback port and a server's port; :func:`proxy_to` opens it."""

    def __init__(self, upstream: int) -> None:
        self.port = 0
        self.accepted = 0
        self._upstream = upstream
        self._refusing = False
        self._upwards = asyncio.Event()
        self._downwards = asyncio.Event()
        self._upwards.set()
        self._downwards.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    def cut(self) -> None:
        for writer in [*self._writers]:
            writer.transport.abort()

    def stall(self) -> None:
        self._upwards.clear()
        self._downwards.clear()

    def deafen(self) -> None:
        self._downwards.clear()

    def refuse(self) -> None:
        self._refusing = True
        self.cut()

    def restore(self) -> None:
        self._refusing = False
        self._upwards.set()
        self._downwards.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._refusing:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        own = {writer}
        self._writers |= own
        try:  # from here on the test may end, and this task with it, also while it connects
            with contextlib.suppress(OSError):
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
                own.add(up_writer)
                self._writers |= own
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, up_writer, self._upwards))
                    group.create_task(_pump(up_reader, writer, self._downwards))
        finally:
            self._writers -= own
            self._tasks.discard(task)
            for one in own:
                one.transport.abort()
                with contextlib.suppress(OSError):
                    await one.wait_closed()

    async def close(self) -> None:
        self.cut()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            await gate.wait()
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[TcpProxy]:
    """Open a proxy to a loopback port."""
    proxy = TcpProxy(port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
