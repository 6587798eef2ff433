"""Workloads that have ended, in the order of their ends:
what is exported of them needs no place in the cycle of a scheduler.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from fluxqueue.queue.model.records import FluxionJobId, Transition, WorkloadId
from fluxqueue.queue.model.traces import EndedWorkload
from fluxqueue.queue.store.rows import transition_of, workload_of
from fluxqueue.queue.store.transactions import Transactions

__all__ = ["EndedWorkloads"]

_MOST_TRANSITIONS = 500


class EndedWorkloads(Transactions):
    """The part of the store about what has ended."""

    async def ended_after(
        self, at: datetime, after: WorkloadId, *, settled_s: float, limit: int
    ) -> list[EndedWorkload]:
        """Return workloads whose end follows (`at`, `after`), in the order of end and id, with their newest
        transitions.

        Parameters
        ----------
        at, after
            End and id of the last workload that was read.
        settled_s
            Ends of the last so many seconds are left for later: a transaction with an earlier end may still
            be committed.
        """
        rows = await self._read("ended_after", at=at, after=after, settled_s=settled_s, limit=limit)
        ids = [row["id"] for row in rows]
        if not ids:
            return []
        transitions: defaultdict[WorkloadId, list[Transition]] = defaultdict(list)
        for transition in await self._records(
            transition_of, "last_transitions", ids=ids, limit=_MOST_TRANSITIONS
        ):
            transitions[transition.workload].append(transition)
        releases: defaultdict[WorkloadId, list[tuple[FluxionJobId, datetime]]] = defaultdict(list)
        for row in await self._read("releases", ids=ids):
            releases[WorkloadId(row["workload"])].append((FluxionJobId(row["jobid"]), row["released_at"]))
        return [
            EndedWorkload(
                workload=workload,
                transitions=tuple(transitions[workload.id]),
                releases=tuple(releases[workload.id]),
            )
            for workload in map(workload_of, rows)
        ]
