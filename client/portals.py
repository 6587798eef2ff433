"""An event loop in a thread of its own, so that code without ``async`` can use the asynchronous client from
any thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["Portal"]

T = TypeVar("T")
_END_S = 30.0
_BETWEEN = ("asyncio.", "concurrent.futures.", __name__)


class Portal:
    """Runs coroutines in a background thread; it ends with `close`.

    The thread is a daemon: a program that forgets to close does not hang at its end.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fluxqueue-client", daemon=True)
        self._thread.start()
        self._contexts: list[AbstractAsyncContextManager[Any]] = []
        self._process = os.getpid()
        self._closing = threading.Lock()
        self._closed = False

    @property
    def closed(self) -> bool:
        """True if it runs nothing any more."""
        return self._closed

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; Ctrl-C cancels it.

        Raises
        ------
        RuntimeError
            The portal is closed, this is its own thread, or a process that was forked since, which has no
            such thread.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this thread runs the client: call it from another one, or use AsyncClient")
        return _result(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine, and return its future."""
        if self._process != os.getpid():
            work.close()
            raise RuntimeError(
                "the client was opened by the process of which this one is a fork: open another one here"
            )
        # What starts while the portal closes would never end.
        with self._closing:
            if self._closed:
                work.close()
                raise RuntimeError("the client is closed: open another one")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wake(self, event: asyncio.Event) -> None:
        """Set an event of the loop, from any thread."""
        with self._closing:
            if not self._closed:
                self._loop.call_soon_threadsafe(event.set)

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter an asynchronous context, which is left when the portal closes."""

        async def enter() -> T:
            return await context.__aenter__()

        entered = self.call(enter())
        self._contexts.append(context)
        return entered

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an asynchronous iterator; it is closed if the caller stops early."""

        async def following() -> tuple[T] | None:
            async for item in items:
                return (item,)
            return None

        async def end() -> None:
            # After Ctrl-C the last step may still be ending: it was cancelled, and closes what it has open.
            await asyncio.gather(*steps, return_exceptions=True)
            if (close := getattr(items, "aclose", None)) is not None:
                await close()

        async def step() -> tuple[T] | None:
            steps[:] = [asyncio.ensure_future(following())]
            return await steps[0]

        steps: list[asyncio.Future[tuple[T] | None]] = []
        try:
            while (item := self.call(step())) is not None:
                yield item[0]
        finally:
            if not self._closed:
                self.call(end())

    def close(self) -> None:
        """Leave the contexts, cancel what runs, and end the thread."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        if self._process != os.getpid():
            return  # the thread and the connections belong to the process that opened them
        try:
            for context in reversed(self._contexts):
                _result(asyncio.run_coroutine_threadsafe(_left(context), self._loop))
            _result(asyncio.run_coroutine_threadsafe(self._cancel_others(), self._loop))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _cancel_others(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _result(future: concurrent.futures.Future[T]) -> T:
    try:
        return future.result()
    except Exception as error:
        future.cancel()
        raise error.with_traceback(_readable(error.__traceback__)) from error.__cause__
    except BaseException:  # Ctrl-C
        future.cancel()
        raise


def _readable(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that pass an error from the event loop to this thread:
    they explain nothing.
    """
    if trace is None:
        return None
    below = _readable(trace.tb_next)
    if trace.tb_frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        return below
    return TracebackType(below, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


async def _left(context: AbstractAsyncContextManager[Any]) -> None:
    await context.__aexit__(None, None, None)
