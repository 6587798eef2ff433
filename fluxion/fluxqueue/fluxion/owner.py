"""The one thread that owns the engine.

The engine is a large mutable graph without locks; the Go service let its requests race on one and it crashed. Here a thread pool of one
worker holds it, and whatever wants something of the engine hands over a function. Requests are thereby carried out one after the
other, in the order in which they came, while the event loop goes on moving bytes.

Who waited may give up, because its deadline passed or its connection broke. Work that has not begun is dropped. Work under way goes
on, and when it is done `abandoned` is called with its result in the same thread, so that what nobody will ever hear of can be undone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from fluxqueue.fluxion.engine import Engine

__all__ = ["EngineOwner"]

Result = TypeVar("Result")


class EngineOwner:
    """Carries out functions of the engine, one at a time, in a thread of their own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fluxion-engine")

    def submit(self, work: Callable[[Engine], Result]) -> Future[Result]:
        """Put work in the row; for callers outside of the event loop."""
        return self._thread.submit(work, self._engine)

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
        with contextlib.suppress(RuntimeError):  # closed meanwhile: the graph goes with the process
            self.submit(lambda engine: abandoned(engine, result))

    def close(self) -> None:
        """Finish what is under way, drop what waits, end the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)
