"""File descriptors on the event loop: pipes and terminals, read and written without blocking."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import AsyncIterator

__all__ = ["read_parts", "set_size", "write_all"]

_READ = 64 << 10


async def read_parts(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what comes out of a descriptor, which must not block, until its end."""
    while True:
        try:
            data = os.read(descriptor, _READ)
        except BlockingIOError:
            await _usable(descriptor, writing=False)
            continue
        except OSError:  # no process has the other side of the terminal any more
            return
        if not data:
            return
        yield data


async def write_all(descriptor: int, data: bytes) -> None:
    """Write everything to a descriptor, which must not block.

    Raises
    ------
    OSError
        Nobody reads it any more.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            await _usable(descriptor, writing=True)


def set_size(terminal: int, width: int, height: int) -> None:
    """Tell a terminal its size, of which its programs are told in turn."""
    clipped = [min(max(number, 0), 0xFFFF) for number in (height, width)]
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *clipped, 0, 0))


def _resolve(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _usable(descriptor: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    usable: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    add(descriptor, _resolve, usable)
    try:
        await usable
    finally:
        remove(descriptor)
