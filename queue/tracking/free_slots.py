"""Slots without a pod, of which each of many pods gets one:
all pods together cost as many steps as there are pods and slots.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from fluxqueue.queue.model.records import Slot

__all__ = ["FreeSlots"]


class FreeSlots:
    """Free slots in order of preference.

    Parameters
    ----------
    slots
        The preferred first.
    """

    def __init__(self, slots: Iterable[Slot]) -> None:
        self._slots = list(slots)
        self._left = {slot.rank: slot for slot in self._slots}
        self._on_node: dict[str, list[Slot]] = {}
        for slot in reversed(self._slots):
            self._on_node.setdefault(slot.node, []).append(slot)
        self._first = 0
        self._first_of: dict[Hashable, int] = {}

    def take(self, slot: Slot) -> None:
        """Give a slot to a pod."""
        del self._left[slot.rank]

    def of_rank(self, rank: int) -> Slot | None:
        """Return the slot of this rank if it is free."""
        return self._left.get(rank)

    def on_node(self, node: str) -> Slot | None:
        """Return the first free slot on a node."""
        there = self._on_node.get(node, [])
        while there and there[-1].rank not in self._left:
            there.pop()
        return there[-1] if there else None

    def first_open(self, kind: Hashable, closed: Callable[[str], bool]) -> Slot | None:
        """Return the first free slot on a node that is not closed to pods of a kind,
        for which ``closed`` always answers the same.
        """
        self._first = self._next(self._first, lambda _node: False)
        at = self._first_of[kind] = self._next(max(self._first, self._first_of.get(kind, 0)), closed)
        return self._slots[at] if at < len(self._slots) else None

    def _next(self, at: int, closed: Callable[[str], bool]) -> int:
        while at < len(self._slots) and (
            self._slots[at].rank not in self._left or closed(self._slots[at].node)
        ):
            at += 1
        return at
