"""What is read of the spec of a pod, read once for all pods of a gang that are alike.

Thousands of pods of a gang are separate objects with equal specs. To compare two specs costs little beside
reading one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from fluxqueue.api.pods import PodSpec

__all__ = ["AlikeSpecs"]

R = TypeVar("R")

_KINDS = 8
"""Different specs that are remembered: those of the roles of a gang."""


class AlikeSpecs(Generic[R]):
    """Reads specs, and remembers the result for the first few different ones.

    Parameters
    ----------
    read
        Called once for each of these, and each time for others.
    """

    def __init__(self, read: Callable[[PodSpec], R]) -> None:
        self._read = read
        self._known: list[tuple[PodSpec, R]] = []

    def __call__(self, spec: PodSpec) -> R:
        """Return what is read of a spec."""
        for known, result in self._known:
            if known == spec:
                return result
        result = self._read(spec)
        if len(self._known) < _KINDS:
            self._known.append((spec, result))
        return result
