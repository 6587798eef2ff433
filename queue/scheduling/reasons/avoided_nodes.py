"""Matches work without the nodes that refused one of its pods,
unless it needs them (`fluxqueue.queue.model.requeue_states`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchVerdict
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.jobspecs import without_nodes
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.requeue_records import NodeRefusal
from fluxqueue.queue.model.requeue_states import refusals_in_words
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["AvoidedNodes"]

_MOST_ANSWERS = 10_000
_WAITING = frozenset({Reason.WAITING_FOR_NODES, Reason.BLOCKED_BY_RESERVATION, Reason.RESERVATION})


class AvoidedNodes:
    """Which nodes the work of a cycle is matched without.

    Parameters
    ----------
    ledger
        Its clock decides which refusals still count.
    graph
        Is asked whether the other nodes could ever hold the work. The caller holds its lock.

    Attributes
    ----------
    avoiding
        The nodes left out in this cycle, by workload. If such a request does not fit, others like it still
        may.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper) -> None:
        self.avoiding: dict[WorkloadId, Mapping[str, NodeRefusal]] = {}
        self._ledger = ledger
        self._graph = graph
        self._version = -1
        self._dispensable: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._ends: dict[WorkloadId, datetime] = {}

    def take_ended(self) -> bool:
        """Return whether a node may be matched again that a workload was matched without,
        since the last call.
        """
        now = self._ledger.clock()
        before = len(self._ends)
        self._ends = {workload: end for workload, end in self._ends.items() if end > now}
        return len(self._ends) < before

    def begin_cycle(self) -> None:
        """Forget the nodes left out in the former cycle, and answers about a former graph."""
        self.avoiding.clear()
        if self._version != self._graph.version or len(self._dispensable) > _MOST_ANSWERS:
            self._version = self._graph.version
            self._dispensable.clear()

    async def exclude(self, workloads: Sequence[Workload]) -> list[tuple[str, ...]]:
        """Return the nodes to leave out for each of these workloads."""
        return [
            await self._exclude(workload) if workload.requeue_state.refused else () for workload in workloads
        ]

    async def _exclude(self, workload: Workload) -> tuple[str, ...]:
        refused = workload.refused_by(self._ledger.clock())
        nodes = tuple(sorted(refused))
        if not nodes or not await self._can_do_without(workload, nodes):
            return ()
        self.avoiding[workload.id] = refused
        self._ends[workload.id] = min(refusal.until for refusal in refused.values())
        return nodes

    async def _can_do_without(self, workload: Workload, nodes: tuple[str, ...]) -> bool:
        key = workload.shape, nodes
        if key not in self._dispensable:
            answer = await self._graph.fluxion.satisfy(
                without_nodes(workload.jobspec, nodes), call=self._graph.call()
            )
            self._dispensable[key] = answer.verdict is not MatchVerdict.UNSATISFIABLE
        return self._dispensable[key]

    def refine(self, changes: Sequence[ReasonChange]) -> list[ReasonChange]:
        """Add to the reasons of work that waits which nodes it avoids, until when,
        and why its last pod failed there.
        """
        return [
            replace(
                change,
                message=f"{change.message}; {refusals_in_words(refused)}{self._failure_of(change.workload)}",
            )
            if change.reason in _WAITING and (refused := self.avoiding.get(change.workload))
            else change
            for change in changes
        ]

    def _failure_of(self, workload_id: WorkloadId) -> str:
        workload = self._ledger.get(workload_id)
        return (
            f": {workload.requeue_state.failure}"
            if workload is not None and workload.requeue_state.failure
            else ""
        )
