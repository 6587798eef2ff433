"""Requests for the two kinds of work of the task ``schedule``: scheduling cycles and releases.

Only the leader requests, and only the leader works, in the same process. What is requested is a flag in its
memory, so many requests before a run are one, and a request that comes while a task works is served by that
task. That there is work at all is a row of procrastinate (`fluxqueue.queue.tasks.control_tasks`), which a
process that ends leaves for the next leader.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

__all__ = ["ControlTask", "Trigger"]


class ControlTask(enum.StrEnum):
    """What is requested. ``schedule`` and ``sweep`` are tasks of procrastinate;
    releases are carried out by the task ``schedule``.
    """

    SCHEDULE = "schedule"
    RELEASE = "release"
    SWEEP = "sweep"


def _ignore(_task: ControlTask) -> None:
    """Do nothing more."""


class Trigger:
    """Requests cycles and releases. Call it after the commit of the change that the run must see.

    Parameters
    ----------
    requested
        Called with each request.
    """

    def __init__(self, requested: Callable[[ControlTask], None] = _ignore) -> None:
        self._requested = requested
        self._flags = {task: asyncio.Event() for task in (ControlTask.SCHEDULE, ControlTask.RELEASE)}
        self._any = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> bool:
        """True if a request waits for a run."""
        return self._any.is_set()

    def schedule(self, within_s: float = 0.0) -> None:
        """Request a scheduling cycle that begins after now.

        Parameters
        ----------
        within_s
            The cycle may begin so many seconds later. Each cycle that begins before serves the request too.
        """
        if within_s <= 0:
            self.request(ControlTask.SCHEDULE)
        elif self._later is None and not self._flags[ControlTask.SCHEDULE].is_set():
            self._later = asyncio.get_running_loop().call_later(within_s, self.request, ControlTask.SCHEDULE)

    def release(self) -> None:
        """Request releases."""
        self.request(ControlTask.RELEASE)

    def request(self, task: ControlTask) -> None:
        """Request ``schedule`` or ``release``: a run of it begins after this call."""
        self._flags[task].set()
        self._any.set()
        self._requested(task)

    async def until_requested(self) -> None:
        """Wait until a request waits for a run."""
        await self._any.wait()

    async def take(self, task: ControlTask) -> None:
        """Wait for a request and take it. The run begins now: a request from now on needs another run."""
        await self._flags[task].wait()
        self._flags[task].clear()
        if not any(flag.is_set() for flag in self._flags.values()):
            self._any.clear()
        if task is ControlTask.SCHEDULE and self._later is not None:
            self._later.cancel()
            self._later = None
