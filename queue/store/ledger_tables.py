"""What the ledger asks of the tables and does not keep in memory.

That is work that has ended, counts, the retention, what accounts have used, and the nodes that are chosen for
reservations. None of it changes the copy of pending and live work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from fluxqueue.queue.model.records import Epoch, Transition, Workload, WorkloadId
from fluxqueue.queue.store.ledger_state import LedgerState
from fluxqueue.queue.store.reserved_nodes import ReservedNodes
from fluxqueue.queue.store.retention import Forgotten
from fluxqueue.queue.store.rows import Counts
from fluxqueue.queue.store.store import Store

__all__ = ["LedgerTables"]


class LedgerTables(LedgerState):
    """The part of the ledger that passes calls on to the store.

    Parameters
    ----------
    store
        The tables.
    epoch
        The leadership under which changes are made.
    clock, wall
        The time of the queue and the time of day.
    """

    def __init__(
        self,
        store: Store,
        epoch: Epoch,
        clock: Callable[[], datetime],
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__(clock, wall)
        self.epoch = epoch
        self.reserved_nodes: ReservedNodes = store
        self._store = store

    async def stored_workloads(self, ids: Sequence[WorkloadId]) -> list[Workload]:
        """Return workloads as the tables have them, also those that have ended;
        of the last that ended, this copy has the rows.
        """
        ended = [self._ended[workload] for workload in sorted(set(ids)) if workload in self._ended]
        return ended if len(ended) == len(set(ids)) else await self._store.workloads(ids)

    async def stored_workloads_by_uid(self, uids: Sequence[str]) -> list[Workload]:
        """Read the workloads of objects from the tables, also those that have ended."""
        return await self._store.workloads_by_uid(uids)

    async def requeue_reasons(self, workload: WorkloadId, limit: int) -> list[Transition]:
        """Return the transitions by which a workload was last requeued, oldest first, with their reasons."""
        return await self._store.requeue_reasons(workload, limit)

    async def counts(self) -> list[Counts]:
        """Count workloads and requested slots by queue, state and reason."""
        return await self._store.counts()

    async def prune_allocations(self, before: datetime, *, allocations: int, slots: int) -> tuple[int, int]:
        """Delete allocations that were freed before a time, with their slots; returns how many of each."""
        return await self._store.prune_allocations(self.epoch, before, allocations=allocations, slots=slots)

    async def forget(self, before: datetime, limit: int) -> int:
        """Move workloads that ended before a time to ``history``; returns how many."""
        return await self._store.forget(self.epoch, before, limit)

    async def expire_months(self, keep: int, *, drop: bool) -> list[str]:
        """Take old months off the records of ended work; returns their tables."""
        return await self._store.expire_months(self.epoch, keep, drop=drop)

    async def forgotten(self, before: datetime, after: Forgotten | None, limit: int) -> list[Forgotten]:
        """Return rows of ``history`` that ended before a time, oldest first, those behind `after`."""
        return await self._store.forgotten(before, after, limit)

    async def prune_transitions(self, ids: Sequence[WorkloadId], before: datetime, limit: int) -> int:
        """Delete transitions of workloads from before a time; returns how many."""
        return await self._store.prune_transitions(self.epoch, ids, before, limit)

    async def prune_history(
        self, ids: Sequence[WorkloadId], *, transitions: int
    ) -> tuple[list[WorkloadId], int]:
        """Delete rows of ``history`` with their transitions, no more than so many;
        returns the deleted rows and the transitions.
        """
        return await self._store.prune_history(self.epoch, ids, transitions=transitions)

    async def charge_accounts(self, half_life_s: float, weights: Mapping[str, float]) -> dict[str, float]:
        """Charge accounts for what they used since the charge before; returns the use of each."""
        return await self._store.charge_accounts(self.epoch, half_life_s, weights)

    async def charge_users(
        self, half_life_s: float, weights: Mapping[str, float], accounts: Sequence[str]
    ) -> dict[str, dict[str, float]]:
        """Charge the users of accounts for what they used since the charge before;
        returns the use of each by account.
        """
        return await self._store.charge_users(self.epoch, half_life_s, weights, accounts)
