"""Tells work that waits for cordoned or NotReady nodes from work that waits for other work to end.

If the nodes that are up could not hold it even when empty, the end of other jobs does not help. It waits for
the other nodes to come back.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import replace

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.formatting import some_of
from fluxqueue.fluxion.messages import MatchVerdict
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.jobspecs import without_nodes
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.backlogs import Backlogs
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Outages"]

_MOST_QUESTIONS = 50
"""In one cycle."""
_NAMED = 5
_TOLD = re.compile(r"the nodes that are up could not hold it: (.*) cordoned or not ready")


class Outages:
    """Which requests need a node that is not up, valid as long as the graph has the same version.

    Parameters
    ----------
    ledger
        Source of the workloads.
    graph
        The nodes. The caller holds its lock.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper) -> None:
        self._ledger = ledger
        self._graph = graph
        self._version = -1
        self._needs: dict[str, bool] = {}
        self._questions = 0
        self._told: dict[WorkloadId, str] = {}
        """The nodes that the reason of waiting work names."""

    def note_shown(self, workload: Workload) -> None:
        """Note what is said of a workload that changed."""
        told = _TOLD.match(workload.message) if workload.reason is Reason.NODES_UNAVAILABLE else None
        if told is not None:
            self._told[workload.id] = told[1]
        else:
            self._told.pop(workload.id, None)

    def outdated(self, waiting: Backlogs) -> set[WorkloadId]:
        """Return the waiting work that is told of other nodes than those that are not up now."""
        for gone in [each for each in self._told if each not in waiting]:
            del self._told[gone]
        closed = _closed(self._down()) if self._told else ""
        return {workload for workload, told in self._told.items() if told != closed}

    def _down(self) -> list[str]:
        return sorted(name for name, spec in self._graph.nodes.items() if spec.down)

    async def refine(
        self, changes: Sequence[ReasonChange], reserved: Container[WorkloadId]
    ) -> list[ReasonChange]:
        """Give the reason ``NodesUnavailable`` to workloads without a reservation that need nodes which are
        not up.
        """
        down = self._down()
        if not down:
            return list(changes)
        if self._version != self._graph.version:
            self._version = self._graph.version
            self._needs.clear()
        text = f"the nodes that are up could not hold it: {_closed(down)} cordoned or not ready"
        self._questions = 0
        refined: list[ReasonChange] = []
        for change in changes:
            workload = self._ledger.get(change.workload)
            waits = (
                change.reason is Reason.WAITING_FOR_NODES
                and workload is not None
                and workload.id not in reserved
            )
            if waits and workload is not None and await self._needs_them(workload, down):
                change = replace(change, reason=Reason.NODES_UNAVAILABLE, message=text)
            refined.append(change)
        return refined

    async def _needs_them(self, workload: Workload, down: Sequence[str]) -> bool:
        if len(down) == len(self._graph.nodes):
            return True
        if workload.shape not in self._needs:
            if self._questions >= _MOST_QUESTIONS:
                return False  # a later cycle asks
            self._questions += 1
            answer = await self._graph.fluxion.satisfy(
                without_nodes(workload.jobspec, down), call=self._graph.call()
            )
            self._needs[workload.shape] = answer.verdict is MatchVerdict.UNSATISFIABLE
        return self._needs[workload.shape]


def _closed(down: Sequence[str]) -> str:
    return f"{some_of(down, _NAMED)} {'is' if len(down) == 1 else 'are'}"
