"""Requests for scheduling cycles in a while. Many requests become one."""

from __future__ import annotations

import asyncio

from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["SOON_S", "Wakeup"]

SOON_S = 0.05
"""How long changes are collected before a cycle."""


class Wakeup:
    """The next requested cycle.

    Parameters
    ----------
    trigger
        How the cycle is requested once its time has come.
    """

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        self._at = float("inf")
        self._timer: asyncio.TimerHandle | None = None

    def soon(self, delay_s: float = SOON_S) -> None:
        """Request a cycle after a delay. Of several requests that wait the earliest counts."""
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_s
        if self._at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._at, self._timer = float("inf"), None
        self._trigger.schedule()
