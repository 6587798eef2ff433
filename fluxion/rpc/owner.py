"""The thread that owns the engine.

The engine is a large mutable graph without locks. The Go service let requests race on its graph, and it
crashed. Here one thread owns the engine, and callers submit functions to it. So requests are carried out one
after the other, in the order of their arrival, while the event loop continues to move bytes.

A caller may give up, because its deadline passed or its connection broke. Work that has not begun is dropped.
Work under way continues. When it is done, `abandoned` is called with its result in the same thread, so that a
result without a caller can be undone.

The thread is a daemon: at the end of the program, work that takes too long is abandoned. No caller waits for
its answer then, and the graph ends with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from fluxqueue.fluxion.engine.engine import Engine

__all__ = ["EngineOwner", "OwnerClosed"]

Result = TypeVar("Result")


class OwnerClosed(RuntimeError):
    """The service is stopping and accepts no more work."""


class EngineOwner:
    """Runs functions of the engine one at a time, in a thread of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._work: SimpleQueue[tuple[Future[Any], Callable[[Engine], Any]] | None] = SimpleQueue()
        self._open = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._carry_out, name="fluxion-engine", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Engine], Result]) -> Future[Result]:
        """Put work in the queue; for callers outside of the event loop.

        Raises
        ------
        OwnerClosed
            After `close`.
        """
        future: Future[Result] = Future()
        with self._lock:
            if not self._open:
                raise OwnerClosed("the service is stopping")
            self._work.put((future, work))
        return future

    async def run(
        self, work: Callable[[Engine], Result], abandoned: Callable[[Engine, Result], None] | None = None
    ) -> Result:
        """Put work in the queue and wait for it.

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
        while (item := self._work.get()) is not None:
            future, work = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(self._engine))
                except BaseException as error:
                    future.set_exception(error)
            del item, future, work  # else the message of a graph would be kept until the next request

    def close(self, wait_s: float) -> bool:
        """Drop waiting work and end the thread; return False if work under way did not end within
        ``wait_s``.
        """
        with self._lock:
            self._open = False
            with contextlib.suppress(Empty):
                while item := self._work.get_nowait():
                    item[0].cancel()
            self._work.put(None)
        self._thread.join(wait_s)
        return not self._thread.is_alive()
