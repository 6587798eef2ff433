"""What follows from the text of a request, remembered until the next sweep.

Such results are wanted again and again while work waits, and cost a reading of the text. The text is the key,
and may have many kilobytes. So each sweep forgets all of them: what waits is soon remembered again, and what
is gone takes no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar

__all__ = ["forget_all", "remembered"]

P = ParamSpec("P")
R = TypeVar("R")

_caches: list[Any] = []


def remembered(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that remembers this many results of a pure function until `forget_all`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cache: Any = lru_cache(maxsize=most)(function)
        _caches.append(cache)
        answer: Callable[P, R] = cache
        return answer

    return decorate


def forget_all() -> None:
    """Forget all results."""
    for cache in _caches:
        cache.cache_clear()
