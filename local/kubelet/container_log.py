"""The log of a container: each line with its time and stream, in the form of the container runtimes, bounded,
and readable while it grows.

The form is that of CRI: ``2026-11-26T20:00:00.000000001Z stdout F text``; ``P`` instead of ``F`` for a part
of a long line. A file that has reached its limit becomes the older one of two, as the kubelet rotates logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

__all__ = ["ContainerLog", "LogOptions"]

MOST_BYTES = 10 << 20
LONGEST_LINE = 16 << 10
_CHUNK = 64 << 10


@dataclass(frozen=True)
class LogOptions:
    """What of a log is wanted; see ``kubectl logs``.

    Attributes
    ----------
    tail, limit_bytes, since
        None for everything.
    stream
        ``stdout`` or ``stderr`` for one of them.
    """

    follow: bool = False
    tail: int | None = None
    timestamps: bool = False
    since: datetime | None = None
    limit_bytes: int | None = None
    stream: str = ""


class ContainerLog:
    """The log of one run of a container.

    Parameters
    ----------
    path
        The file; the older part has the suffix ``.old``.
    most_bytes
        When a new file begins.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most = most_bytes
        self._rest = {"stdout": b"", "stderr": b""}
        self._waiting: set[asyncio.Future[None]] = set()
        self._listeners: set[asyncio.Queue[tuple[str, bytes] | None]] = set()
        self._closed = False
        self._old_begins = 0  # where each of the two files begins in all that was ever written
        self._begins = self._old.stat().st_size if self._old.exists() else 0
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._file: BinaryIO | None = None

    @classmethod
    def of_ended(cls, path: Path) -> ContainerLog:
        """Return the log of a run that has ended."""
        log = cls(path)
        log.close()
        return log

    def write(self, stream: str, data: bytes) -> None:
        """Add what the container has written."""
        if self._closed:
            return
        *lines, rest = (self._rest[stream] + data).split(b"\n")
        prefix = _now() + f" {stream} ".encode()
        out = [prefix + b"F " + line + b"\n" for line in lines]
        while len(rest) > LONGEST_LINE:
            out.append(prefix + b"P " + rest[:LONGEST_LINE] + b"\n")
            rest = rest[LONGEST_LINE:]
        self._rest[stream] = rest
        self._put(b"".join(out))
        for listener in self._listeners:
            # it is slower than the container, which must not wait for it
            with contextlib.suppress(asyncio.QueueFull):
                listener.put_nowait((stream, data))

    def close(self) -> None:
        """End the log: the container has ended."""
        if self._closed:
            return
        self._put(
            b"".join(
                _now() + f" {stream} P ".encode() + rest + b"\n"
                for stream, rest in self._rest.items()
                if rest
            )
        )
        self._closed = True
        if self._file is not None:
            self._file.close()
        self._wake()
        for listener in self._listeners:
            if listener.full():  # whoever is too slow loses output, but not the end
                listener.get_nowait()
            listener.put_nowait(None)

    def listen(self) -> asyncio.Queue[tuple[str, bytes] | None]:
        """Return a queue that gets what is written from now on, and None at the end; `forget` ends it."""
        queue: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue(1024)
        if self._closed:
            queue.put_nowait(None)
        self._listeners.add(queue)
        return queue

    def forget(self, queue: asyncio.Queue[tuple[str, bytes] | None]) -> None:
        """End a queue of `listen`."""
        self._listeners.discard(queue)

    def end_of(self, most: int) -> str:
        """Return the last bytes of the text, for a termination message."""
        text = b"".join(content for _, _, content in self._lines(self._path, LogOptions()))
        return text[-most:].decode(errors="replace")

    async def read(self, options: LogOptions) -> AsyncIterator[bytes]:
        """Yield the wanted text in parts; a followed log ends with its container.
        Where a part is lost, a line says so.
        """
        left = options.limit_bytes if options.limit_bytes is not None else 1 << 62
        chosen: Iterable[tuple[bytes, bytes, bytes]] = ()
        if options.tail is not None:
            chosen = deque(self._lines(self._path, options), maxlen=options.tail)
        begins, reader = self._open(0 if options.tail is None else self._begins)
        try:
            reader.seek(0, os.SEEK_SET if options.tail is None else os.SEEK_END)
            for line in chosen:
                left -= len(text := _shown(line, options)[:left])
                yield text
            while left > 0:
                began = reader.tell()
                parts = [_shown(line, options) for line in _parsed(reader, options, most=_CHUNK)]
                if reader.tell() > began:
                    left -= len(text := b"".join(parts)[:left])
                    yield text
                    await asyncio.sleep(0)
                elif begins < self._begins:  # this file is complete
                    reader.close()
                    end = begins + began
                    begins, reader = self._open(end)
                    if begins > end:
                        lost = (
                            f"[{begins - end} bytes of the log were lost here: "
                            "it was read more slowly than written]\n"
                        )
                        yield _shown((_now(), b"", lost.encode()), options)
                elif self._closed or not options.follow:
                    return
                else:
                    await self._more()
        finally:
            reader.close()

    def _open(self, position: int) -> tuple[int, BinaryIO]:
        """Open the file with a position of all that was ever written, or what is left after it;
        return also where that begins.
        """
        if position < self._begins:
            return self._old_begins, self._old.open("rb")
        return self._begins, self._path.open("rb")

    @property
    def _old(self) -> Path:
        return self._path.with_name(self._path.name + ".old")

    def _lines(self, path: Path, options: LogOptions) -> Iterator[tuple[bytes, bytes, bytes]]:
        for each in (self._old, path):
            with contextlib.suppress(FileNotFoundError), each.open("rb") as file:
                yield from _parsed(file, options)

    def _put(self, data: bytes) -> None:
        if not data:
            return
        if self._file is not None and self._file.tell() + len(data) > self._most:
            self._old_begins, self._begins = self._begins, self._begins + self._file.tell()
            self._file.close()
            self._path.replace(self._old)
            self._file = None
        if self._file is None:
            self._file = self._path.open("ab")
        self._file.write(data)
        self._file.flush()
        self._wake()

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def _more(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)


def _now() -> bytes:
    return f"{datetime.now(UTC).isoformat(timespec='microseconds').removesuffix('+00:00')}000Z".encode()


def _parsed(file: BinaryIO, options: LogOptions, most: int = 1 << 62) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield (time, stream, text) of complete lines that are wanted; an incomplete line is left for later."""
    began = file.tell()
    since = options.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f").encode() if options.since else b""
    while file.tell() - began < most:
        at = file.tell()
        line = file.readline()
        if not line.endswith(b"\n"):
            file.seek(at)
            return
        moment, stream, kind, text = line.split(b" ", 3)
        if moment < since or (options.stream and stream != options.stream.encode()):
            continue
        yield moment, stream, text[:-1] if kind == b"P" else text


def _shown(line: tuple[bytes, bytes, bytes], options: LogOptions) -> bytes:
    moment, _, text = line
    return moment + b" " + text if options.timestamps else text
