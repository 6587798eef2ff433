"""How long to wait after the n-th failure in a row.

Two shapes, both doubling up to a cap. :func:`exponential_s` is exact and serves work queues, where each key has its own count and a
crowd cannot form. :func:`jittered_s` spreads clients that failed together, for instance all watches of all replicas when an API
server restarts: a uniform draw between the base and the doubled delay, so that the floor keeps a single client from hammering.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["exponential_s", "jittered_s"]

_MAX_DOUBLINGS = 64


def exponential_s(failures: int, *, base_s: float, cap_s: float) -> float:
    """Seconds to wait: ``base_s * 2 ** failures``, at most ``cap_s``; ``failures`` counts from 0 for the first."""
    return min(cap_s, base_s * 2.0 ** min(failures, _MAX_DOUBLINGS))


def jittered_s(failures: int, *, base_s: float, cap_s: float, random: Callable[[], float]) -> float:
    """Seconds to wait: uniform between ``base_s`` and twice the exponential delay, at most ``cap_s``.

    Parameters
    ----------
    failures
        0 for the first.
    base_s, cap_s
        Bounds of the result in seconds.
    random
        Draws from [0, 1).
    """
    high = exponential_s(failures + 1, base_s=base_s, cap_s=cap_s)
    return base_s + (high - base_s) * random()
