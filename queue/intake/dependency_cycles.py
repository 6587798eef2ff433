"""Knows which workloads wait for each other in a cycle, so that none of them can start.

Whoever changes a dependency only notes its workload. One pass over all that was noted looks for the cycles of
these workloads, and of those that were in cycles with them, again. All other cycles stay as they are. So a
pass costs as much as what can be reached from what changed, however many cycles there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import thread_time

from fluxqueue.queue.intake.dependency_graph import DependencyGraph
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["DependencyCycles"]

_TURN_S = 0.02
"""CPU after which a pass lets others go on."""
_NAMED = 5
"""Members of a cycle that a message names."""
_LONGEST_CYCLE = 600


class DependencyCycles:
    """The cycles of a dependency graph, in words."""

    def __init__(self, graph: DependencyGraph, ledger: Ledger) -> None:
        self._graph = graph
        self._ledger = ledger
        self._texts: dict[str, str] = {}
        self._knots: dict[str, dict[str, None]] = {}
        """The members of all cycles that hang together, by each of them."""
        self._noted: dict[str, None] = {}

    def __contains__(self, uid: str) -> bool:
        """True if a workload was in a cycle when that was looked for."""
        return uid in self._knots

    @property
    def is_due(self) -> bool:
        """True if something was noted since the last pass."""
        return bool(self._noted)

    def text(self, uid: str) -> str:
        """Return a cycle that a workload waits in; empty if none is known."""
        return self._texts.get(uid, "")

    def note(self, uid: str) -> None:
        """Have the next pass look for the cycles of a workload, as its dependencies changed or it left."""
        self._texts.pop(uid, None)
        self._noted[uid] = None

    async def check(self) -> list[str]:
        """Look for the cycles of what was noted; return those of which something else is to be said now."""
        noted, self._noted = self._noted, {}
        again: dict[str, None] = {}
        for uid in noted:
            if uid not in again:
                again |= self._knots.get(uid, {uid: None})
        for uid in again:
            self._knots.pop(uid, None)
        found: dict[str, str] = {}
        began = thread_time()
        for cycles in self._graph.cycles(again):
            for cycle in cycles:
                self._tie(cycle)
                text = self._in_words(cycle)
                for uid in cycle:
                    found.setdefault(uid, text)
            if thread_time() - began > _TURN_S:
                await asyncio.sleep(0)
                began = thread_time()
        # until here, all were described by what was known before
        return [uid for uid in again | dict.fromkeys(found) if self._say(uid, found, again)]

    def _say(self, uid: str, found: dict[str, str], again: dict[str, None]) -> bool:
        """Set what is said of a workload; True if that differs. A cycle that did not change is still true."""
        before, after = self.text(uid), found.get(uid, "")
        if before == after or (before and uid not in again):
            return False
        if after:
            self._texts[uid] = after
        else:
            del self._texts[uid]
        return True

    def _tie(self, cycle: Sequence[str]) -> None:
        """Keep the members of a cycle together with those of all cycles that share one with it."""
        largest: dict[str, None] = {}
        for uid in cycle:
            largest = max(largest, self._knots.get(uid, {}), key=len)
        for uid in cycle:
            if (known := self._knots.get(uid, {uid: None})) is not largest:
                largest |= known
                self._knots.update(dict.fromkeys(known, largest))

    def _in_words(self, cycle: Sequence[str]) -> str:
        refs = [row.ref for uid in cycle[:_NAMED] if (row := self._ledger.by_uid(uid)) is not None]
        more = f"{len(cycle) - _NAMED} more and the first" if len(cycle) > _NAMED else "the first"
        return ", which waits for ".join([*refs, more])[:_LONGEST_CYCLE]
