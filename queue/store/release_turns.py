"""What is to be released next: the namespaces take turns.

A thousand Jobs of one person that start together are released in seconds. In the order of their grants, the
Job of somebody else would be the last of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["ReleaseTurns"]

K = TypeVar("K", bound=Hashable)


class ReleaseTurns(Generic[K]):
    """Releases by namespace, in the order in which they were added."""

    def __init__(self) -> None:
        self._of: dict[str, dict[K, None]] = {}
        """Whose turn is next is first."""
        self._namespaces: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, release: K) -> bool:
        return release in self._namespaces

    def add(self, namespace: str, release: K) -> None:
        """Add a release of a namespace."""
        self._namespaces[release] = namespace
        self._of.setdefault(namespace, {})[release] = None

    def discard(self, release: K) -> None:
        """Remove a release, if it is there."""
        if (namespace := self._namespaces.pop(release, None)) is not None:
            del self._of[namespace][release]
            if not self._of[namespace]:
                del self._of[namespace]

    def take(self) -> K:
        """Remove and return the next one; call it only if there is one."""
        namespace = next(iter(self._of))
        own = self._of[namespace]
        release = next(iter(own))
        self.discard(release)
        if own:
            self._of[namespace] = self._of.pop(namespace)  # the last in turn
        return release

    def clear(self) -> None:
        """Remove all."""
        self._of.clear()
        self._namespaces.clear()
