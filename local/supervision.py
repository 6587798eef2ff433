"""A supervisor that restarts programs which have ended, with a growing delay.

It works like the kubelet, with shorter delays: the first restart is immediate, the next ones follow after 1,
2, 4, 5, 5 ... s, and the count is reset when a program has run for a minute. The delay stays short, because a
queue ends by design when it loses its Lease, and it may have been killed several times just before, while
workloads wait. Restarts are counted and reported.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["RestartBackoff", "Supervised", "Supervisor"]

_FORGIVEN_AFTER_S = 60.0
_LONGEST_S = 5.0


class Supervised(Protocol):
    """A program that the supervisor restarts."""

    @property
    def name(self) -> str:
        """Name for messages."""

    def died(self) -> bool:
        """True if it has ended although it should run."""

    def revive(self) -> None:
        """Restart it; if this raises, it is tried again later."""

    def tend(self) -> None:
        """Update whatever must be kept up to date; called in every round."""


@dataclass
class RestartBackoff:
    """When the next restart is due.

    Attributes
    ----------
    restarts
        Total number of restarts.
    """

    restarts: int = 0
    _streak: int = 0
    _last: float = float("-inf")
    _due: float | None = None

    def may_restart(self, now: float) -> bool:
        """Return true if a program that has ended may be restarted now, and count the restart."""
        if self._due is None:
            if now - self._last > _FORGIVEN_AFTER_S:
                self._streak = 0
            delay = 0.0 if self._streak == 0 else min(2.0 ** (self._streak - 1), _LONGEST_S)
            self._due = now + delay
        if now < self._due:
            return False
        self._due = None
        self._last = now
        self._streak += 1
        self.restarts += 1
        return True


class Supervisor:
    """A thread that restarts a set of programs.

    Parameters
    ----------
    things
        The programs, in the order in which they are restarted.
    report
        Called with a sentence for each restart.
    interval_s
        Seconds between two rounds.
    """

    def __init__(
        self, things: Sequence[Supervised], report: Callable[[str], None], interval_s: float = 0.25
    ) -> None:
        self._things = things
        self._report = report
        self._interval_s = interval_s
        self._backoffs = {thing.name: RestartBackoff() for thing in things}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fluxqueue-supervisor", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; returns when no restart is in progress."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(90)

    def restarts(self, name: str) -> int:
        """Return how often a program was restarted."""
        return self._backoffs[name].restarts

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            for thing in self._things:
                if self._ended.is_set():
                    return
                self._supervise(thing)

    def _supervise(self, thing: Supervised) -> None:
        try:
            if thing.died() and self._backoffs[thing.name].may_restart(time.monotonic()):
                self._report(f"{thing.name} ended: starting it again (restart {self.restarts(thing.name)})")
                thing.revive()
            thing.tend()
        except Exception as error:  # the others must still be supervised, and this one is tried again
            self._report(f"{thing.name}: {error}")
