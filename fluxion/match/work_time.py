"""CPU seconds that a thread spent on its own work: full collections of garbage do not count.

Such a collection takes the longer the larger the graph is, and comes at any time. It is no cost of the
request that meets it.
"""

from __future__ import annotations

import gc
import threading
from time import thread_time
from typing import Literal

__all__ = ["work_time"]

_ALL = 2
"""The oldest generation: collecting it visits all objects."""


class _Collections(threading.local):
    """CPU that full collections took in each thread."""

    began_s = 0.0
    took_s = 0.0

    def note(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        """Count a collection; called at its start and at its end, in the thread that makes it."""
        if info["generation"] < _ALL:
            return
        if phase == "start":
            self.began_s = thread_time()
        else:
            self.took_s += thread_time() - self.began_s


_COLLECTIONS = _Collections()
gc.callbacks.append(_COLLECTIONS.note)


def work_time() -> float:
    """Return the CPU seconds that this thread has spent so far, without full collections of garbage."""
    return thread_time() - _COLLECTIONS.took_s
