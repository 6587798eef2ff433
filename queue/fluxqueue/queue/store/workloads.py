"""Workloads: found, waiting, moved along their states, remembered.

The intake is level-triggered and repeats itself, so `upsert` compares what it says now with what it said before (``found_reason``,
the specification), never with what the scheduler wrote since: a sweep over unchanged objects changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.records import Epoch, FluxionJobId, NewWorkload, ReasonChange, StoredNow, Transition, Workload, WorkloadId
from fluxqueue.queue.store.rows import Counts
from fluxqueue.queue.store.transactions import Transactions

__all__ = ["Workloads"]


class Workloads(Transactions):
    """The part of the store about workloads and their history."""

    async def upsert(self, epoch: Epoch, found: Sequence[NewWorkload]) -> list[StoredNow]:
        """Take in what the intake found.

        New ones begin as Pending. Of pending ones, those whose specification or reason is not what it was when last found are brought
        up to date, keeping ``submitted_at`` and id; a changed specification also clears a reason the scheduler gave. All others, ended
        and forgotten ones included, stay as they are.

        Returns
        -------
        list[StoredNow]
            One per found workload, in the same order.
        """
        raise NotImplementedError

    async def pending(self) -> list[Workload]:
        """All pending workloads in policy order: priority descending, submit time, id."""
        raise NotImplementedError

    async def live_workloads(self) -> list[Workload]:
        """Workloads that are Allocated, Running or Draining, by id."""
        raise NotImplementedError

    async def workloads(self, ids: Sequence[WorkloadId]) -> list[Workload]:
        """The workloads of these ids that exist, by id; forgotten ones come without their jobspec."""
        raise NotImplementedError

    async def workload_by_uid(self, uid: str) -> Workload | None:
        """The workload of an object, be it forgotten; None if it was never taken in."""
        raise NotImplementedError

    async def set_reasons(self, epoch: Epoch, changes: Sequence[ReasonChange]) -> list[WorkloadId]:
        """Say why workloads wait; only pending ones whose reason or message is another are written, and returned."""
        raise NotImplementedError

    async def started(self, epoch: Epoch, ids: Sequence[WorkloadId]) -> list[WorkloadId]:
        """Move Allocated workloads to Running; returns those that were moved."""
        raise NotImplementedError

    async def draining(self, epoch: Epoch, ids: Sequence[WorkloadId]) -> list[WorkloadId]:
        """Move Allocated and Running workloads to Draining; returns those that were moved."""
        raise NotImplementedError

    async def finish(self, epoch: Epoch, ends: Sequence[tuple[WorkloadId, State, Outcome, str]]) -> list[FluxionJobId]:
        """End workloads, from wherever they are, and give back what they hold.

        Parameters
        ----------
        epoch
            Of the leader.
        ends
            Workload, its final state, outcome and a message. Those that ended before stay as they ended.

        Returns
        -------
        list[FluxionJobId]
            Allocations freed by this call, to be cancelled in the matcher.

        Raises
        ------
        IllegalTransition
            If a state is not a final one.
        """
        raise NotImplementedError

    async def requeue(self, epoch: Epoch, ids: Sequence[WorkloadId], reason: Reason, message: str) -> list[FluxionJobId]:
        """Let Allocated and Draining workloads wait again: submit time kept, requeues counted, allocations freed.

        Returns
        -------
        list[FluxionJobId]
            Allocations freed by this call, to be cancelled in the matcher.
        """
        raise NotImplementedError

    async def history(self, workload: WorkloadId) -> list[Transition]:
        """All a workload went through, oldest first; also after it was forgotten."""
        raise NotImplementedError

    async def forget(self, epoch: Epoch, before: datetime, limit: int = 10_000) -> int:
        """Move workloads that ended before a time to the table ``history``, without their jobspecs, allocations and slots.

        Their transitions stay, and so does the memory that their object was served: it is not taken in again.

        Returns
        -------
        int
            How many were moved; ask again while it is `limit`.
        """
        raise NotImplementedError

    async def counts(self) -> list[Counts]:
        """Workloads and slots wanted by queue, state and reason: for metrics. Forgotten ones are not counted."""
        raise NotImplementedError
