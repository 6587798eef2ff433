"""``exec`` and ``attach``: commands in containers, and their own streams, connected with a session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from fluxqueue.local.kubelet.children import Child, StartFailed
from fluxqueue.local.kubelet.container_runner import ContainerRunner
from fluxqueue.local.kubelet.container_streams import ContainerStreams
from fluxqueue.local.kubelet.sessions import (
    SUCCESS,
    Session,
    SessionOptions,
    ended_with,
    failure,
    open_session,
)
from fluxqueue.local.kubelet.specs import Container
from fluxqueue.local.kubelet.terminals import read_parts, set_size, write_all

__all__ = ["attach", "execute"]

_OUTPUT_AFTER_END_S = 1.0
_MOST_WORDS = 4096


async def execute(request: web.Request, runner: ContainerRunner) -> web.StreamResponse:
    """Run a command in a container, connected with a session."""
    words = request.query.getall("command", [])
    if not words or len(words) > _MOST_WORDS:
        raise web.HTTPBadRequest(text="a command is needed")
    options = SessionOptions.read(request.query)
    session, answer = await open_session(request, options)
    with _Streams(options) as streams:
        try:
            child = await runner.enter(words, *streams.theirs, terminal=options.terminal)
        except StartFailed as failed:
            await session.finish(failure(f"error executing command in container: {failed}"))
            return answer
        finally:
            streams.started()
        code = await _connected(session, child, streams)
    await session.finish(SUCCESS if code == 0 else ended_with(code))
    return answer


class _Streams:
    """The streams of a command: ours and those of its process."""

    def __init__(self, options: SessionOptions) -> None:
        self.terminal: int | None = None
        self.stdin: int | None = None
        self.outputs: dict[str, int] = {}
        if options.terminal:
            self.terminal, slave = pty.openpty()
            self.theirs = (slave, slave, slave)
            self.stdin = self.terminal if options.stdin else None
            self.outputs = {"stdout": self.terminal}
        else:
            pipes = {name: os.pipe() for name in ("stdout", "stderr")}
            self.outputs = {name: readable for name, (readable, _) in pipes.items()}
            stdin = os.open(os.devnull, os.O_RDONLY)
            if options.stdin:
                os.close(stdin)
                stdin, self.stdin = os.pipe()
            self.theirs = (stdin, pipes["stdout"][1], pipes["stderr"][1])
        for descriptor in self._ours():
            os.set_blocking(descriptor, False)

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._ours():
            os.close(descriptor)

    def started(self) -> None:
        """Close the ends that the process has now."""
        for descriptor in set(self.theirs):
            os.close(descriptor)

    def close_stdin(self) -> None:
        """Tell the process that no more input follows; a terminal stays open."""
        if self.stdin is not None and self.stdin != self.terminal:
            os.close(self.stdin)
        self.stdin = None

    def _ours(self) -> set[int]:
        return {each for each in (*self.outputs.values(), self.stdin, self.terminal) if each is not None}


async def _connected(session: Session, child: Child, streams: _Streams) -> int:
    """Connect a process with a session until it ends; a process whose other side is gone is ended."""
    senders = [_Sender(session, name, descriptor) for name, descriptor in streams.outputs.items()]
    outputs = [asyncio.create_task(each.run()) for each in senders]
    work: list[asyncio.Task[None]] = [
        _quiet(_feed(session, streams)),
        _quiet(_resize(session, streams.terminal)),
    ]
    gone = _quiet(session.gone())
    try:
        ended: set[asyncio.Future[Any]] = {asyncio.shield(child.ended), gone}
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        if not child.ended.done():
            child.signal_group(signal.SIGHUP)
            child.signal_group(signal.SIGKILL)
        code = await asyncio.shield(child.ended)
        pending: set[asyncio.Future[Any]] = {*outputs}
        # a process in background may have the other end for ever, but a slow reader gets everything
        while pending and not gone.done():
            _, pending = await asyncio.wait({*pending}, timeout=_OUTPUT_AFTER_END_S)
            if not any(each.sending for each in senders):
                break
        return code
    finally:
        child.signal_group(signal.SIGKILL)
        for task in (*work, *outputs, gone):
            task.cancel()
        await asyncio.gather(*work, *outputs, gone, return_exceptions=True)


def _quiet(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task that ends quietly if the other side is gone."""

    async def run() -> None:
        with contextlib.suppress(OSError):
            await work

    return asyncio.create_task(run())


class _Sender:
    """Sends one output of a command; ``sending`` is false while there is nothing to send."""

    def __init__(self, session: Session, name: str, descriptor: int) -> None:
        self.sending = False
        self._session = session
        self._name = name
        self._descriptor = descriptor

    async def run(self) -> None:
        with contextlib.suppress(OSError):
            async for part in read_parts(self._descriptor):
                self.sending = True
                await self._session.write(self._name, part)
                self.sending = False
        self.sending = False


async def _feed(session: Session, streams: _Streams) -> None:
    while (data := await session.read()) is not None:
        if streams.stdin is None:
            return
        await write_all(streams.stdin, data)
    streams.close_stdin()


async def _resize(session: Session, terminal: int | None) -> None:
    while True:
        size = await session.sizes.get()
        if terminal is not None:
            set_size(terminal, *size)


async def attach(request: web.Request, runner: ContainerRunner) -> web.StreamResponse:
    """Connect the streams of a container itself with a session."""
    streams = runner.streams
    if runner.log is None or runner.pid is None or streams is None:
        raise web.HTTPBadRequest(text=f"container {runner.container.name} does not run")
    options = SessionOptions.read(request.query)
    queue = runner.log.listen()
    log = runner.log
    try:
        session, answer = await open_session(request, options)
        work = [
            _quiet(_feed_container(session, runner.container, streams)),
            _quiet(_resize(session, streams.terminal)),
        ]
        gone = _quiet(session.gone())
        try:
            output = _quiet(_send_output(session, queue))
            await asyncio.wait([output, gone], return_when=asyncio.FIRST_COMPLETED)
            output.cancel()
        finally:
            for task in (*work, gone):
                task.cancel()
        await session.finish(SUCCESS)
    finally:
        log.forget(queue)
    return answer


async def _send_output(session: Session, queue: asyncio.Queue[tuple[str, bytes] | None]) -> None:
    while (part := await queue.get()) is not None:
        await session.write(*part)


async def _feed_container(session: Session, container: Container, streams: ContainerStreams) -> None:
    while (data := await session.read()) is not None:
        if streams.stdin is None:
            return
        await write_all(streams.stdin, data)
    if container.stdin_once:
        streams.close_stdin()
