"""Requests for the control tasks ``schedule`` and ``release``: flags in the memory of the leader.

Only the leader makes requests, and only the leader runs the tasks, in the same process. So a request needs no row and no round trip, and
it is lost only together with the process; the next leader runs each task at its start. Many requests before a run are one.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

__all__ = ["ControlTask", "Trigger"]


class ControlTask(enum.StrEnum):
    """The kinds of control tasks."""

    SCHEDULE = "schedule"
    RELEASE = "release"
    SWEEP = "sweep"


def _ignore(_task: ControlTask) -> None:
    """Do nothing more."""


class Trigger:
    """Requests control tasks. Call it after the commit of the change that the task must see.

    Parameters
    ----------
    requested
        Called with each request.
    """

    def __init__(self, requested: Callable[[ControlTask], None] = _ignore) -> None:
        self._requested = requested
        self._flags = {task: asyncio.Event() for task in (ControlTask.SCHEDULE, ControlTask.RELEASE)}
        self._later: asyncio.TimerHandle | None = None

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
        self._requested(task)

    async def take(self, task: ControlTask) -> None:
        """Wait for a request and take it. The run begins now: a request from now on needs another run."""
        await self._flags[task].wait()
        self._flags[task].clear()
        if task is ControlTask.SCHEDULE and self._later is not None:
            self._later.cancel()
            self._later = None
