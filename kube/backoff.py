"""Delays after consecutive failures; both kinds double up to a cap.

:func:`exponential_s` is exact. Work queues use it, where each key has its own count. :func:`jittered_s`
spreads clients that failed at the same time, for example the watches of all replicas when an API server
restarts. It is drawn uniformly between the base and the doubled delay, so that no client retries without a
pause.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["exponential_s", "jittered_s"]

_MAX_DOUBLINGS = 64


def exponential_s(failures: int, *, base_s: float, cap_s: float) -> float:
    """Return ``base_s * 2 ** failures`` seconds, at most ``cap_s``; ``failures`` is 0 for the first."""
    return min(cap_s, base_s * 2.0 ** min(failures, _MAX_DOUBLINGS))


def jittered_s(failures: int, *, base_s: float, cap_s: float, random: Callable[[], float]) -> float:
    """Return a delay in seconds, uniform between ``base_s`` and twice the exponential delay, at most
    ``cap_s``.

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
