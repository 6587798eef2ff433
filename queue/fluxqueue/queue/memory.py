"""How the leader's garbage collector is set, once its caches are filled."""

from __future__ import annotations

import gc

__all__ = ["settle"]

_YOUNG = 5_000
"""Every pod that comes and goes leaves about three objects that hold each other. At ten times this number they take 10 MB until they go."""


def settle() -> None:
    """Look through what is there by now no more: it is large and lives as long as the process.

    To go through the caches again and again for garbage would cost more than all else the process does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
