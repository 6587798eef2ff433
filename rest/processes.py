"""Commands as processes: what they write, up to a limit, and their end."""

from __future__ import annotations

import asyncio
import contextlib

__all__ = ["CHUNK", "LONGEST_OUTPUT", "collect", "stop"]

_END_S = 5.0
CHUNK = 64 * 1024
LONGEST_OUTPUT = 16 * 2**20


async def collect(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Return what a command writes, and stop it once that is more than `LONGEST_OUTPUT`:
    the memory of the container has to hold it.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    kept = {process.stdout: bytearray(), process.stderr: bytearray()}

    async def read(stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(CHUNK):
            kept[stream] += piece
            if len(kept[stream]) > LONGEST_OUTPUT:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                return

    await asyncio.gather(read(process.stdout), read(process.stderr))
    await _ended(process)
    return bytes(kept[process.stdout]), bytes(kept[process.stderr])


async def stop(process: asyncio.subprocess.Process) -> None:
    """Stop a process and wait until it has ended."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(_ended(process), _END_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a process, and drop what it still writes:
    asyncio waits until the pipes are empty, full ones included.
    """

    async def drop(stream: asyncio.StreamReader | None) -> None:
        while stream is not None and await stream.read(CHUNK):
            pass

    await asyncio.gather(process.wait(), drop(process.stdout), drop(process.stderr))
