"""The one thread that owns the engine.

The engine is a large mutable graph without locks; the Go service let its requests race on one and it crashed. Here a single thread holds
it, and whatever wants something of the engine hands over a function. Requests are thereby carried out one after the other, in the order
in which they came, while the event loop goes on moving bytes.

Who waited may give up, because its deadline passed or its connection broke. Work that has not begun is dropped. Work under way goes
on, and when it is done `abandoned` is called with its result in the same thread, so that what nobody will ever hear of can be undone.

The thread is a daemon: at the end of the program work that takes too long is left behind. Nobody waits for its answer any more, and the
graph ends with the process anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from fluxqueue.fluxion.engine import Engine

__all__ = ["EngineOwner", "OwnerClosed"]

Result = TypeVar("Result")


class OwnerClosed(RuntimeError):
    """The service is stopping: no more work is taken."""


class EngineOwner:
    """Carries out functions of the engine, one at a time, in a thread of their own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._row: SimpleQueue[tuple[Future[Any], Callable[[Engine], Any]] | None] = SimpleQueue()
        self._open = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._carry_out, name="fluxion-engine", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Engine], Result]) -> Future[Result]:
        """Put work in the row; for callers outside of the event loop.

        Raises
        ------
        OwnerClosed
            After `close`.
        """
        future: Future[Result] = Future()
        with self._lock:
            if not self._open:
                raise OwnerClosed("the service is stopping")
            self._row.put((future, work))
        return future

    async def run(self, work: Callable[[Engine], Result], abandoned: Callable[[Engine, Result], None] | None = None) -> Result:
        """Put work in the row and wait for it.

        Parameters
        ----------
        work
            Called with the engine in its thread.
        abandoned
            Called there with the result if the caller was cancelled while the work was under way.
        """
        future = self.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if abandoned is not None:
                future.add_done_callback(lambda done: self._undo(done, abandoned))
            raise

    def _undo(self, done: Future[Result], abandoned: Callable[[Engine, Result], None]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        result = done.result()
        with contextlib.suppress(OwnerClosed):  # the graph goes with the process
            self.submit(lambda engine: abandoned(engine, result))

    def _carry_out(self) -> None:
        while (item := self._row.get()) is not None:
            future, work = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(self._engine))
                except BaseException as error:
                    future.set_exception(error)
            del item, future, work  # a graph's message is not kept until the next request

    def close(self, wait_s: float) -> bool:
        """Drop what waits and end the thread; false if work under way did not end within ``wait_s``."""
        with self._lock:
            self._open = False
            with contextlib.suppress(Empty):
                while item := self._row.get_nowait():
                    item[0].cancel()
            self._row.put(None)
        self._thread.join(wait_s)
        return not self._thread.is_alive()
