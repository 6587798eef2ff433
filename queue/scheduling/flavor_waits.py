"""Follows when the work that waits may use further flavors of nodes (`fluxqueue.queue.model.flavors`).

How many flavors of a workload are closed is a part of the family of its request in the backlog. What is
refused to work with fewer flavors says nothing of work with more, and all work that waits for equally long
stays comparable. A workload whose next flavor opens is put into its backlog again, nothing else is done.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.flavors import closed_flavors, flavors_in, waits_since_s
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["FlavorWaits"]

_MAY_USE = "; it may use flavor "
_MOST_SHAPES = 100_000
_MOST_OVER = 1_024
"""Openings that count no more and are kept, beside as many as count."""
_WAITING = frozenset({Reason.WAITING_FOR_NODES, Reason.BLOCKED_BY_RESERVATION, Reason.RESERVATION})


class FlavorWaits:
    """Knows which flavors are closed to pending work, and when the next of them opens: by the time of day, by
    which the matcher plans.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._openings: list[tuple[int, WorkloadId]] = []
        self._next: dict[WorkloadId, int] = {}
        """When the next flavor of each opens, in Unix seconds."""
        self._waits: dict[str, tuple[int, ...]] = {}
        """How long work waits for its flavors, by shape: much work has one."""

    @property
    def next_opening(self) -> float:
        """When the next flavor of any work opens, in Unix seconds; infinite if none does."""
        return self._openings[0][0] if self._openings else float("inf")

    def closed(self, workload: Workload) -> int:
        """Return how many flavors a pending workload may not use yet, and follow it."""
        if (since_s := waits_since_s(workload)) and workload.shape not in self._waits:
            if len(self._waits) >= _MOST_SHAPES:
                self._waits.clear()
            self._waits[workload.shape] = tuple(
                each.wait_s for each in flavors_in(workload.jobspec) if each.wait_s
            )
        now_s = self._ledger.wall().timestamp() if since_s else 0.0
        waits = self._waits[workload.shape] if since_s else ()
        closed = [since_s + wait_s for wait_s in waits if since_s + wait_s > now_s]
        if not closed:
            self._next.pop(workload.id, None)
            return 0
        at = min(closed)
        if self._next.get(workload.id) != at:
            self._next[workload.id] = at
            heapq.heappush(self._openings, (at, workload.id))
        return len(closed)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Forget when flavors open to work that waits no more."""
        if workload_id not in self._next:
            return
        workload = self._ledger.get(workload_id)
        if workload is None or workload.state is not State.PENDING:
            del self._next[workload_id]
            if len(self._openings) > 2 * len(self._next) + _MOST_OVER:
                self._openings = [(at, each) for each, at in self._next.items()]
                heapq.heapify(self._openings)

    def begin_cycle(self) -> set[WorkloadId]:
        """Return the work of which a flavor opened since the last call."""
        now_s, opened = self._ledger.wall().timestamp(), set[WorkloadId]()
        while self._openings and self._openings[0][0] <= now_s:
            at, workload_id = heapq.heappop(self._openings)
            if self._next.get(workload_id) == at:
                del self._next[workload_id]
                opened.add(workload_id)
        return opened

    def is_outdated(self, workload: Workload) -> bool:
        """True if the reason of a workload names another flavor than the next, or another time."""
        if _MAY_USE not in workload.message:
            return False
        words = self._words(workload)
        return not words or words not in workload.message

    def refine(self, changes: Sequence[ReasonChange]) -> list[ReasonChange]:
        """Add to the reasons of work that waits for nodes which flavor it may use next, and from when on."""
        if not self._next:
            return list(changes)
        return [self._with_words(change) for change in changes]

    def _with_words(self, change: ReasonChange) -> ReasonChange:
        workload = self._ledger.get(change.workload) if change.reason in _WAITING else None
        words = self._words(workload) if workload is not None and workload.id in self._next else ""
        return replace(change, message=f"{change.message}{words}") if words else change

    def _words(self, workload: Workload) -> str:
        closed = closed_flavors(workload, self._ledger.wall())
        if not closed:
            return ""
        flavor, at = min(closed, key=lambda each: each[1])
        return f"{_MAY_USE}{flavor.name!r} too from {time_text(at)} on"
