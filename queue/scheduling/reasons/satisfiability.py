"""Which requests could never start in the cluster as it is, and which of those could start in a larger one.

Satisfiability (could the request match this graph with nothing allocated and all nodes up?) depends on the
family and the count of a request alone, and it is monotone in the count, and in the amounts of a slot within
a group of families (`fluxqueue.queue.scheduling.policies.demands`). So a few questions about the largest
answer for all shapes. A cycle asks a limited number of them, so that a queue of many shapes does not hold it
up.

A request that does not fit the cluster may fit one with more nodes
(`fluxqueue.queue.scheduling.graph.node_shapes`). Its workload then waits for nodes that somebody adds or that
are requested from an autoscaler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import le
from typing import TypeVar

import structlog

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, MatchVerdict
from fluxqueue.fluxion.rpc.failures import InternalError, InvalidCall
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.moldable import smallest
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShapes
from fluxqueue.queue.scheduling.policies.demands import Demand, demand_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["SatisfiabilityCache", "in_namespace_turns"]

log = structlog.get_logger()

_T = TypeVar("_T")

_FOR_NOW = (Reason.WAITING_FOR_NODES, Reason.RESERVATION)
_QUESTIONS = 200
_LONGEST_S = 0.25
"""For these questions in a cycle, beyond the first few."""
_FEW = 4
_MOST_SHAPES = 100_000
_PART = 4_096
"""Workloads, or requests, after which others get a turn: to read a request takes 10 to 20 µs."""
_MOST_SIZES = 64
"""Of the sizes of a group that are known to fit."""


class SatisfiabilityCache:
    """Answers of the matcher, valid as long as the graph has the same version. The caller holds the lock of
    the graph.

    Parameters
    ----------
    ledger
        Source of the workloads.
    graph
        Whose ``version`` limits the answers.
    node_shapes
        Nodes by which the cluster may grow.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper, node_shapes: NodeShapes) -> None:
        self._ledger = ledger
        self._graph = graph
        self._node_shapes = node_shapes
        self._version = -1
        self._unsatisfiable: dict[str, MatchResult] = {}
        self._checked: set[str] = set()
        self._needed_shapes: dict[str, tuple[str, ...]] = {}
        self._demands: dict[str, Demand] = {}
        self._fits: dict[str, int] = {}
        self._sizes_that_fit: dict[str, list[tuple[int, ...]]] = {}
        """Count and amounts of a slot, by group."""
        self._fails: dict[str, tuple[int, MatchResult]] = {}

    @property
    def version(self) -> int:
        """The version of the graph, for which all answers hold."""
        return self._graph.version

    @property
    def unsatisfiable(self) -> Mapping[str, MatchResult]:
        """Answers for the shapes of requests that do not fit the empty graph."""
        if self._version != self._graph.version:
            self._version = self._graph.version
            self._unsatisfiable, self._checked, self._needed_shapes = {}, set(), {}
            self._fits.clear()
            self._sizes_that_fit.clear()
            self._fails.clear()
        return self._unsatisfiable

    def fits(self, shape: str) -> bool:
        """True if it is known that requests of a shape fit the empty graph."""
        return shape not in self.unsatisfiable and shape in self._checked

    def learn(self, changes: Sequence[ReasonChange], match_policies: Mapping[str, str]) -> None:
        """Take over the answers of a pass.
        Those by the match policy of a queue hold for that queue alone and are not taken.
        """
        for change in changes:
            workload = self._ledger.get(change.workload) if change.reason is Reason.UNSATISFIABLE else None
            if workload is not None and workload.queue not in match_policies:
                self._unsatisfiable[workload.shape] = MatchResult(
                    MatchVerdict.UNSATISFIABLE, reason=change.message
                )

    def learn_refused(self, changes: Sequence[ReasonChange], match_policies: Mapping[str, str]) -> None:
        """Take over that what a pass refused for now fits the empty graph: the matcher has looked.
        They are its reasons as they came.
        """
        for change in changes:
            workload = self._ledger.get(change.workload) if change.reason in _FOR_NOW else None
            if (
                workload is not None
                and workload.queue not in match_policies
                and workload.shape not in self.unsatisfiable
            ):
                self._checked.add(workload.shape)

    async def check(self, workloads: Collection[WorkloadId]) -> set[WorkloadId]:
        """Ask which of these workloads could never start, of each namespace in turn;
        return those left for the next cycle.
        """
        asked = 0
        unknown: dict[str, tuple[Demand, Workload]] = {}
        for number, workload_id in enumerate(workloads, start=1):
            if not number % _PART:
                await asyncio.sleep(0)
            workload = self._ledger.get(workload_id)
            if (
                workload is not None
                and workload.shape not in self.unsatisfiable
                and workload.shape not in self._checked
            ):
                unknown.setdefault(workload.shape, (self._demand(workload.shape, workload.jobspec), workload))
        largest_first = sorted(
            unknown.values(), key=lambda pair: (pair[0].group, pair[0].amounts, pair[0].count), reverse=True
        )
        began_s = time.perf_counter()
        in_turns = in_namespace_turns(largest_first, lambda pair: pair[1].namespace)
        for number, (demand, workload) in enumerate(in_turns, start=1):
            if not number % _PART:
                await asyncio.sleep(0)
            failed = self._fails.get(demand.family)
            if failed is not None and demand.count == failed[0]:
                self._unsatisfiable[workload.shape] = failed[1]
            elif not self._is_known_to_fit(demand):
                if asked >= _QUESTIONS or (asked >= _FEW and time.perf_counter() - began_s > _LONGEST_S):
                    continue
                asked += 1
                self._note(demand, workload.shape, await self._ask(workload))
            self._checked.add(workload.shape)
        left = unknown.keys() - self._checked
        found = ((workload_id, self._ledger.get(workload_id)) for workload_id in workloads) if left else ()
        return {
            workload_id for workload_id, workload in found if workload is not None and workload.shape in left
        }

    def _is_known_to_fit(self, demand: Demand) -> bool:
        if demand.count <= self._fits.get(demand.family, 0):
            return True
        size = demand.count, *demand.amounts
        return any(all(map(le, size, known)) for known in self._sizes_that_fit.get(demand.group, ()))

    def _note(self, demand: Demand, shape: str, answer: MatchResult | None) -> None:
        """Take over the answer about a demand."""
        if answer is None:
            return
        if answer.verdict is MatchVerdict.UNSATISFIABLE:
            self._unsatisfiable[shape] = answer
            self._fails[demand.family] = demand.count, answer
            return
        self._fits[demand.family] = max(demand.count, self._fits.get(demand.family, 0))
        if demand.group:
            sizes = self._sizes_that_fit.setdefault(demand.group, [])
            sizes.append((demand.count, *demand.amounts))
            del sizes[:-_MOST_SIZES]

    async def _ask(self, workload: Workload) -> MatchResult | None:
        """Return the answer of the matcher; None if it fails on this request,
        which keeps no other from its reason.
        """
        try:
            return await self._graph.fluxion.satisfy(smallest(workload.jobspec), call=self._graph.call())
        except (InternalError, InvalidCall) as error:
            OBJECT_FAILURES.labels("cycle").inc()
            log.warning("satisfiability.not_asked", workload=workload.id, error=str(error))
            return None

    def _demand(self, shape: str, jobspec: str) -> Demand:
        if len(self._demands) > _MOST_SHAPES:
            self._demands.clear()
        demand = self._demands.get(shape)
        if demand is None:
            demand = self._demands[shape] = demand_of(jobspec)
        return demand

    async def check_growth(self, workloads: Iterable[WorkloadId]) -> set[WorkloadId]:
        """Ask which workloads that could never start could start in a larger cluster;
        return those left for the next cycle.
        """
        if not self._node_shapes.any:
            return set()
        if not self.unsatisfiable:
            self._node_shapes.forget()
        asked: dict[str, str] = {}
        later: set[WorkloadId] = set()
        for workload_id in workloads:
            workload = self._ledger.get(workload_id)
            if (
                workload is None
                or workload.shape not in self.unsatisfiable
                or workload.shape in self._needed_shapes
                or workload.shape in asked
            ):
                continue
            if len(asked) >= _QUESTIONS:
                later.add(workload_id)
            else:
                asked[workload.shape] = workload.jobspec
        if asked:
            needed = await self._node_shapes.needed(
                [*asked.values()], self._graph.nodes, self._graph.added_pools
            )
            self._needed_shapes.update(zip(asked, needed, strict=True))
        return later

    def needed_shapes(self, shape: str) -> tuple[str, ...]:
        """Return the node shapes that must be added for a request that fits no present node;
        empty if more nodes do not help.
        """
        return self._needed_shapes.get(shape, ()) if shape in self.unsatisfiable else ()


def in_namespace_turns(items: Iterable[_T], namespace: Callable[[_T], str]) -> list[_T]:
    """Return all items, one of each namespace after the other."""
    by_namespace: dict[str, list[_T]] = {}
    for each in items:
        by_namespace.setdefault(namespace(each), []).append(each)
    left, found, turn = list(by_namespace.values()), list[_T](), 0
    while left:
        found += [each[turn] for each in left]
        turn += 1
        left = [each for each in left if len(each) > turn]
    return found
