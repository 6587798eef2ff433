"""What waits, in a line for each namespace: the namespaces take turns.

A thousand Jobs of one person that start together are released in seconds, and a thousand that are refused
together have as many Events. In the order of their arrival, what somebody else has would be the last of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["NamespaceLines"]

K = TypeVar("K", bound=Hashable)


class NamespaceLines(Generic[K]):
    """Items by namespace, in the order in which they were added."""

    def __init__(self) -> None:
        self._of: dict[str, dict[K, None]] = {}
        """Whose turn is next is first."""
        self._namespaces: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, item: K) -> bool:
        return item in self._namespaces

    def length(self, namespace: str) -> int:
        """Return how many items of a namespace wait."""
        return len(self._of.get(namespace, ()))

    def add(self, namespace: str, item: K) -> None:
        """Add an item of a namespace; one that waits already keeps its place."""
        self._namespaces[item] = namespace
        self._of.setdefault(namespace, {})[item] = None

    def discard(self, item: K) -> None:
        """Remove an item, if it is there."""
        if (namespace := self._namespaces.pop(item, None)) is not None:
            del self._of[namespace][item]
            if not self._of[namespace]:
                del self._of[namespace]

    def take(self) -> K:
        """Remove and return the next one; call it only if there is one."""
        namespace = next(iter(self._of))
        own = self._of[namespace]
        item = next(iter(own))
        self.discard(item)
        if own:
            self._of[namespace] = self._of.pop(namespace)  # the last in turn
        return item

    def clear(self) -> None:
        """Remove all."""
        self._of.clear()
        self._namespaces.clear()
