"""Settings of Python's garbage collector for a process with large caches."""

from __future__ import annotations

import gc

__all__ = ["settle"]

_YOUNG = 5_000
"""Each pod that is created and deleted leaves about three objects in reference cycles;
50,000 of them take 10 MB until they are freed."""


def settle() -> None:
    """Exclude all present objects from garbage collection, once the caches are filled.

    They are large and live as long as the process. To scan them in each collection would cost more than
    everything else the process does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
