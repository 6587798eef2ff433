"""Settings of Python's garbage collector for a process with large caches."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from time import thread_time
from typing import Any, Final

__all__ = ["settle"]

_YOUNG: Final = 5_000
"""Each pod that is created and deleted leaves about three objects in reference cycles;
50,000 of them take 10 MB until they are freed."""
_MIDDLE: Final = 20
_OLD: Final = 5
"""A full collection follows half a million new objects."""
_LONG_S: Final = 0.1
"""CPU of a full collection after which what is left is not scanned again."""


class _Growth:
    """Excludes what a long collection left from later ones.

    A collection lets no thread run, not even the one that renews the Lease. Each waiting Job is a hundred
    objects that live as long as it waits. With 50,000 of them a full collection takes 2 s of CPU, and there
    is one each time they have grown by a quarter. After a long one its objects are excluded: each is scanned
    once. What becomes a reference cycle later is not freed until the process ends: calls under way, a few at
    a time.
    """

    def __init__(self) -> None:
        self._began = 0.0

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] != 2:
            return
        if phase == "start":
            self._began = thread_time()
        elif thread_time() - self._began > _LONG_S:
            gc.freeze()


_growth: Final = _Growth()


def settle() -> None:
    """Exclude all present objects from garbage collection, once the caches are filled, and those that come
    later as soon as a collection of them takes long.

    They are large and live as long as the process. To scan them in each collection would cost more than
    everything else the process does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    if _growth not in gc.callbacks:
        gc.callbacks.append(_growth)
