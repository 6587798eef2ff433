"""Grants of the matcher: checked against the limits of their queues, then stored in batches while the round
goes on.

So the first work starts before the last is decided. A grant over a limit is cancelled instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.messages import MatchResult
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.indexes import hosts_by_index
from fluxqueue.queue.model.jobspecs import ranks_of
from fluxqueue.queue.model.records import FluxionJobId, Grant, Workload
from fluxqueue.queue.scheduling.cycle import Cycle
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.job_ids import JobIds
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["GrantWriter", "Promised"]

Answers = Sequence[tuple[Workload, MatchResult]]
Promised = Callable[[Workload], datetime | None]
"""Returns the first estimate of a workload's start."""


class GrantWriter:
    """Stores what the matcher granted. The caller holds the lock of the graph."""

    def __init__(self, ledger: Ledger, graph: GraphKeeper, job_ids: JobIds, promised: Promised) -> None:
        self._ledger = ledger
        self._graph = graph
        self._job_ids = job_ids
        self._promised = promised

    async def store(self, cycle: Cycle, answers: Answers) -> tuple[list[Grant], list[Grant]]:
        """Store the grants that are within the limits.

        Returns
        -------
        tuple[list[Grant], list[Grant]]
            All grants sent to the store, and those of them that it refused, because their workload is no
            longer pending.
        """
        grants = [
            _grant(workload, answer, self._promised(workload))
            for workload, answer in await self._within_limits(cycle, answers)
        ]
        reach(CrashPoint.MATCHED)
        try:
            refused = await self._ledger.grant(grants)
        except Exception:
            self._graph.invalidate()  # it has grants that may not be stored: it is filled again from what is
            raise
        reach(CrashPoint.GRANTED)
        for grant in grants:
            self._job_ids.forget(grant.workload)
        for grant in refused:
            cycle.quotas.remove_usage(grant.workload)
        cycle.granted += len(grants) - len(refused)
        return grants, refused

    async def _within_limits(self, cycle: Cycle, answers: Answers) -> list[tuple[Workload, MatchResult]]:
        """Count grants as use of their queues; cancel those over a limit."""
        quotas = cycle.quotas
        kept: list[tuple[Workload, MatchResult]] = []
        cancelled: list[FluxionJobId] = []
        for workload, answer in answers:
            nodes = [share.node for share in answer.shares]
            quotas.remove_usage(workload.id)
            over = quotas.refusal(workload) or quotas.excess(workload, nodes, answer.shares)
            if over is None:
                quotas.add_usage(workload, nodes, answer.shares)
                kept.append((workload, answer))
                continue
            quotas.set_aside(workload, over)
            cycle.over_limit.append(
                ReasonChange(workload=workload.id, reason=over.reason, message=over.message)
            )
            cancelled.append(FluxionJobId(answer.jobid))
            self._job_ids.forget(workload.id)
        if cancelled:
            await self._graph.fluxion.apply([CancelJobs(cancelled)], call=self._graph.call())
        return kept


def _grant(workload: Workload, answer: MatchResult, promised_at: datetime | None) -> Grant:
    return Grant(
        workload=workload.id,
        jobid=FluxionJobId(answer.jobid),
        shares=answer.shares,
        hosts=hosts_by_index([node for node, _ in ranks_of(answer.shares)], workload.done_indexes),
        generation=workload.generation,
        promised_at=promised_at,
        start=datetime.fromtimestamp(answer.at, UTC),
        end=datetime.fromtimestamp(answer.end, UTC) if workload.duration_s is not None else None,
    )
