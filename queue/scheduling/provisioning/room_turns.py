"""Which requests for nodes have room for their room pods, and which is next.

A namespace may have so many room pods at one time, and all together so many. Work that waits for room is
taken in turns of namespaces, and in each namespace the oldest first. Nobody passes the next one, so wide work
gets its turn. Work whose namespace has no room holds up only work of that namespace.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.kube.kinds import Key
from fluxqueue.queue.model.records import WorkloadId

__all__ = ["RoomAsked", "RoomTurns"]


@dataclass(frozen=True, slots=True, order=True)
class RoomAsked:
    """What a request asks room for: so many pods for a workload of a namespace. The older one is less."""

    submitted_at: datetime
    workload: WorkloadId
    namespace: str
    pods: int


class RoomTurns:
    """Counts room pods.

    Parameters
    ----------
    of_namespace, of_all
        Most pods at one time.
    """

    def __init__(self, of_namespace: int, of_all: int) -> None:
        self._of_namespace = of_namespace
        self._of_all = of_all
        self._counted: dict[Key, RoomAsked] = {}
        self._held: Counter[str] = Counter()
        """Pods of each namespace for which there is room."""
        self._waiting: dict[Key, RoomAsked] = {}
        self._lines: dict[str, list[RoomAsked]] = {}
        """What waits of each namespace, oldest first."""
        self._turns = itertools.count(1)
        self._had_turn: dict[str, int] = {}
        """The last turn of each namespace, since work waits."""

    def pods(self, key: Key) -> int | None:
        """Return how many pods a request has room for; None if it has none."""
        counted = self._counted.get(key)
        return counted.pods if counted is not None else None

    def take(self, key: Key, asked: RoomAsked) -> str:
        """Give a request room, or let it wait; return why it waits, empty if it has room."""
        if self._counted.get(key) == asked:
            return ""
        self._remove(key)
        self._waiting[key] = asked
        insort(self._lines.setdefault(asked.namespace, []), asked)
        if not self._fits(asked) or self._next() != asked:
            return self._why(asked)
        self._had_turn[asked.namespace] = next(self._turns)
        self.hold(key, asked)
        return ""

    def hold(self, key: Key, asked: RoomAsked) -> None:
        """Count a request whose pods exist, or may be created now."""
        self.leave(key)
        self._counted[key] = asked
        self._held[asked.namespace] += asked.pods

    def leave(self, key: Key) -> None:
        """Let a request neither have room nor wait."""
        self._remove(key)
        if not self._waiting:
            self._had_turn.clear()

    def next(self) -> WorkloadId | None:
        """Return the work that may ask now; None if none waits, or there is no room for the next one."""
        asked = self._next()
        return asked.workload if asked is not None and self._fits(asked) else None

    def in_the_way(self, keys: Iterable[Key]) -> set[Key]:
        """Return which of these requests are to end, so that work that waits has room: the first of them,
        and no more than it needs.
        """
        counted = [(key, self._counted[key]) for key in keys if key in self._counted]
        ending: set[Key] = set()
        for asked in self._blocked():
            own = self._held[asked.namespace] + asked.pods - self._of_namespace
            room = self._held.total() + asked.pods - self._of_all
            needed: set[Key] = set()
            # room in its share is only made by its own namespace
            for key, each in sorted(
                counted, key=lambda pair: own > 0 and pair[1].namespace != asked.namespace
            ):
                if own > 0 or room > 0:
                    needed.add(key)
                    room -= each.pods
                    own -= each.pods if each.namespace == asked.namespace else 0
            if own <= 0 and room <= 0:
                ending.update(needed)
        return ending

    def _blocked(self) -> list[RoomAsked]:
        """Return what waits for others to end: the next one, and the oldest of each full namespace."""
        first = self._next()
        full = [line[0] for line in self._lines.values() if not self._within_share(line[0])]
        return [*full, first] if first is not None and not self._fits(first) else full

    def _remove(self, key: Key) -> None:
        if (counted := self._counted.pop(key, None)) is not None:
            self._held[counted.namespace] -= counted.pods
            if not self._held[counted.namespace]:
                del self._held[counted.namespace]
        if (asked := self._waiting.pop(key, None)) is not None:
            line = self._lines[asked.namespace]
            del line[bisect_left(line, asked)]
            if not line:
                del self._lines[asked.namespace]

    def _next(self) -> RoomAsked | None:
        first = (line[0] for line in self._lines.values())
        return min(
            (asked for asked in first if self._within_share(asked)),
            key=lambda asked: (self._had_turn.get(asked.namespace, 0), asked),
            default=None,
        )

    def _within_share(self, asked: RoomAsked) -> bool:
        return self._held[asked.namespace] + asked.pods <= self._of_namespace

    def _fits(self, asked: RoomAsked) -> bool:
        return self._held.total() + asked.pods <= self._of_all

    def _why(self, asked: RoomAsked) -> str:
        if self._lines[asked.namespace][0] != asked:
            return (
                f"older work of namespace {asked.namespace} waits for nodes to be requested: its own "
                f"{asked.pods:,} pods for that are created afterwards"
            )
        whose, held, most = "other work", self._held.total(), self._of_all
        if not self._within_share(asked):
            whose += f" of namespace {asked.namespace}"
            held, most = self._held[asked.namespace], self._of_namespace
        return (
            f"nodes are requested for {whose} by {held:,} of at most {most:,} pods: its own {asked.pods:,} "
            "are created when there is room and it is its turn"
        )
