"""When the next workloads of a queue would start if each had a reservation.

They are reserved in the graph one after the other, their starts are recorded, and all these reservations are
cancelled. The caller holds the lock of the graph.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence

from fluxqueue.api.fluxqueues import Policy
from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.messages import JobMatchRequest, MatchVerdict
from fluxqueue.queue.model.flavors import waits_since_s
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.refusals import EXPLAINED
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PlanAhead"]

_AT_ONCE = 20
_QUEUE_BUDGET_S = 0.4
"""The plan of one queue ends after so long."""


class PlanAhead:
    """Plans queues, with job ids that are used for nothing else."""

    def __init__(self, ledger: Ledger, graph: GraphKeeper) -> None:
        self._ledger = ledger
        self._graph = graph
        self._ids: list[FluxionJobId] = []

    async def _ask(
        self, batch: Sequence[Workload], ids: Sequence[FluxionJobId], discipline: Discipline, not_before: int
    ) -> list[int | None]:
        """Reserve nodes for workloads, one after the other, and return their starts; None: there is none.
        If that takes long, the first ones alone have an answer.
        """
        requests = [
            JobMatchRequest(
                workload.jobspec,
                jobid,
                reserve=True,
                duration_s=workload.duration_s or 0,
                policy=discipline.match_policy,
                not_before=not_before,
                waits_since=waits_since_s(workload),
            )
            for workload, jobid in zip(batch, ids, strict=True)
        ]
        answers = (await self._graph.fluxion.match_batch(requests, call=self._graph.call())).results
        return [
            answer.at if answer.verdict in (MatchVerdict.RESERVED, MatchVerdict.GRANTED) else None
            for answer in answers
        ]

    async def plan(
        self,
        first: Iterable[Workload],
        discipline: Discipline,
    ) -> dict[WorkloadId, int | None]:
        """Return the starts of the next workloads if each had a reservation; None: there is none.
        The graph is left as it was.
        """
        waiting = [*first]
        if waiting and not self._ids:
            self._ids = await self._ledger.next_jobids(EXPLAINED)
        in_order = discipline.policy is Policy.FCFS
        at_once, not_before = _AT_ONCE, 0
        starts: dict[WorkloadId, int | None] = {}
        used: list[FluxionJobId] = []
        until = time.monotonic() + _QUEUE_BUDGET_S
        try:
            while waiting and time.monotonic() < until:
                batch = waiting[:at_once]
                ids = self._ids[len(used) : len(used) + len(batch)]
                used += ids
                at = await self._ask(batch, ids, discipline, not_before)
                taken = _in_order(at) if in_order else len(at)
                starts.update(zip((workload.id for workload in batch[:taken]), at, strict=False))
                waiting = waiting[taken:]
                if unanswered := len(batch) - len(at):
                    del used[-unanswered:]
                if not in_order:
                    continue
                if (last := at[taken - 1]) is None:
                    break
                not_before, at_once = last, min(2 * taken, _AT_ONCE)
                if overtaking := ids[taken : len(at)]:  # they are asked for again, from there on
                    await self._graph.fluxion.apply([CancelJobs(overtaking)], call=self._graph.call())
                    del used[-len(overtaking) :]
        finally:
            if used:
                await self._graph.fluxion.apply([CancelJobs(used)], call=self._graph.call())
        return starts


def _in_order(starts: Sequence[int | None]) -> int:
    """Return how many starts are in the order in which they were asked for,
    up to the first that is not known, which counts.
    """
    for number, (before, start) in enumerate(itertools.pairwise(starts), 1):
        if before is None or (start is not None and start < before):
            return number
    return len(starts)
