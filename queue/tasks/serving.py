"""What the task ``schedule`` does once a worker runs it: cycles and releases, until nobody has asked for more
for a while.

A cycle asks Fluxion and stores what is granted; releases begin while it still goes on, and neither waits for
the other. The row of the task stands for every request that comes meanwhile, so a burst needs one task, and
so does each Job of a slow trickle. A task that has worked for a second ends as soon as nothing is under way,
also if more is requested: the next row stands for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

__all__ = ["Serving", "within"]

_MORE_WITHIN_S: Final = 0.15
"""A task ends when nothing was requested for this long."""
_LONG_S: Final = 1.0
_LONGEST_REST_S: Final = 0.25

Handle = Callable[[ControlTask], Awaitable[float | None]]
"""Carries out cycles or releases; returns None, or the seconds until they are to be tried again."""


class Serving:
    """One run of the task."""

    def __init__(self, trigger: Trigger, handle: Handle) -> None:
        self._trigger = trigger
        self._handle = handle
        self._busy: set[ControlTask] = set()
        self._handled = 0
        self._closing = asyncio.Event()
        self._ended = asyncio.Event()
        self._ends_after = asyncio.get_running_loop().time() + _LONG_S

    async def run(self) -> None:
        """Serve requests until none has come for a while.
        If none is known, some process lost it: both kinds are carried out.
        """
        if not self._trigger.waiting:
            self._trigger.schedule()
            self._trigger.release()
        kinds = (ControlTask.SCHEDULE, ControlTask.RELEASE)
        serving = [asyncio.create_task(self._serve(kind), name=f"control task {kind}") for kind in kinds]
        try:
            await self._until_quiet()
        finally:
            for each in serving:
                each.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    def close(self) -> None:
        """Begin nothing more, and end as soon as nothing is under way."""
        self._closing.set()
        if not self._busy:
            self._ended.set()

    async def _serve(self, kind: ControlTask) -> None:
        """Carry out one kind of work after each request. Between two cycles passes twice the time that the
        first one took.

        So long cycles are few, and each serves many requests.
        """
        loop = asyncio.get_running_loop()
        while not self._ended.is_set():
            await self._trigger.take(kind)
            if self._ended.is_set():  # since it was woken: what begins now would be cancelled
                self._trigger.request(kind)
                return
            self._busy.add(kind)
            began = loop.time()
            if (again_s := await self._handle(kind)) is not None:
                await self._ask_again(kind, again_s)
            elif kind is ControlTask.SCHEDULE:
                await within(min(2 * (loop.time() - began), _LONGEST_REST_S), self._closing.wait())
            self._busy.discard(kind)
            self._handled += 1
            if not self._busy and (self._closing.is_set() or loop.time() > self._ends_after):
                self._ended.set()

    async def _ask_again(self, kind: ControlTask, again_s: float) -> None:
        """Request what failed after a pause, or with the next request."""
        await within(again_s, self._trigger.take(kind))
        self._trigger.request(kind)

    async def _until_quiet(self) -> None:
        while not self._ended.is_set():
            handled = self._handled
            await within(_MORE_WITHIN_S, self._ended.wait())
            if handled == self._handled and not self._busy and not self._trigger.waiting:
                return


async def within(seconds: float, happens: Awaitable[object]) -> bool:
    """Wait for something for some seconds; True if it happened."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await happens
            return True
    return False
