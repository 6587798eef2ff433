"""What ended and should run is started again, with growing patience.

The kubelet's habit, in a local plane's measure: the first restart comes at once, then after 1, 2, 4, 5, 5 ... s, and the count is
forgotten once a program has lived for a minute. It grows no further, because a queue that ends as it should when its Lease is lost may
have been killed several times just before, and all that was submitted waits for it. Restarts are counted and told, never hidden.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Backoff", "Supervised", "Supervisor"]

_FORGIVEN_AFTER_S = 60.0
_LONGEST_S = 5.0


class Supervised(Protocol):
    """Something that may end without being told to."""

    @property
    def name(self) -> str:
        """For messages."""

    def died(self) -> bool:
        """Whether it ended although it should run."""

    def revive(self) -> None:
        """Start it again; may raise, then it is tried again later."""

    def tend(self) -> None:
        """Called every round, for what has to be kept up to date."""


@dataclass
class Backoff:
    """When the next restart is due.

    Attributes
    ----------
    restarts
        How many there were in all.
    """

    restarts: int = 0
    _streak: int = 0
    _last: float = float("-inf")
    _due: float | None = None

    def may_restart(self, now: float) -> bool:
        """Tell, for something that is down, whether its time has come; counts the restart if so."""
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
    """A thread that looks after a set of things.

    Parameters
    ----------
    things
        In the order in which they are revived.
    report
        Told what happened, in a sentence.
    interval_s
        Between rounds.
    """

    def __init__(self, things: Sequence[Supervised], report: Callable[[str], None], interval_s: float = 0.25) -> None:
        self._things = things
        self._report = report
        self._interval_s = interval_s
        self._backoffs = {thing.name: Backoff() for thing in things}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fluxqueue-supervisor", daemon=True)

    def start(self) -> None:
        """Begin to look after them."""
        self._thread.start()

    def stop(self) -> None:
        """Look away; returns when no restart is under way any more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(90)

    def restarts(self, name: str) -> int:
        """How often this one was started again."""
        return self._backoffs[name].restarts

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            for thing in self._things:
                if self._ended.is_set():
                    return
                self._look_after(thing)

    def _look_after(self, thing: Supervised) -> None:
        try:
            if thing.died() and self._backoffs[thing.name].may_restart(time.monotonic()):
                self._report(f"{thing.name} ended: starting it again (restart {self.restarts(thing.name)})")
                thing.revive()
            thing.tend()
        except Exception as error:  # whatever it is, the others must be looked after, and this one is tried again
            self._report(f"{thing.name}: {error}")
