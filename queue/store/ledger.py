"""The queue as controllers see it: the leader's copy for reading, and the only way to change the tables.

Postgres is the truth, and the copy follows it (`fluxqueue.queue.store.ledger_changes`). What is not pending
or live is not in the copy: it is asked of the tables, through the parts of the store that the ledger has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from fluxqueue.api.fluxjobs import PLACED, Reason, State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.budgets import BudgetPeriod
from fluxqueue.queue.model.changes import (
    Ending,
    ReasonChange,
    Replacement,
    Requeue,
    TakenSlot,
)
from fluxqueue.queue.model.prices import Rates
from fluxqueue.queue.model.records import (
    Epoch,
    FluxionJobId,
    Grant,
    NewWorkload,
    Reservation,
    Transition,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_states import REMEMBERED
from fluxqueue.queue.model.spending import Spending, members_of
from fluxqueue.queue.store.account_use import AccountUse
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.errors import Unstorable
from fluxqueue.queue.store.ledger_evictions import LedgerEvictions
from fluxqueue.queue.store.ledger_releases import CLAIM_S, LedgerReleases
from fluxqueue.queue.store.ledger_requeue_states import LedgerRequeueStates
from fluxqueue.queue.store.ledger_rows import TableContents
from fluxqueue.queue.store.reserved_nodes import ReservedNodes
from fluxqueue.queue.store.retention import Retention
from fluxqueue.queue.store.rows import Counts
from fluxqueue.queue.store.run_times import RunTimes
from fluxqueue.queue.store.store import Store

__all__ = ["Ledger", "TableContents"]

log = structlog.get_logger()

_FEW = 8
_TOLD_AT_ONCE = 200
"""Workloads of which the listeners are told before others get a turn."""
_REASONS_AT_ONCE = 1_000
"""Reasons that are written by one transaction: each is told to all listeners, in one step."""
_JOBIDS_AHEAD = 50
"""Job ids that are read before they are needed. Those that a process leaves over are never used."""


class Ledger(LedgerReleases, LedgerEvictions, LedgerRequeueStates):
    """Pending and live workloads, changed through the store only.

    Parameters
    ----------
    store
        The tables.
    epoch
        The leadership under which changes are made: the store refuses those of an older one.
    clock, wall
        The time of the queue and the time of day (`fluxqueue.queue.store.clock`).
    """

    def __init__(
        self,
        store: Store,
        epoch: Epoch,
        clock: Callable[[], datetime],
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__(store, epoch, clock, wall)
        self.reserved_nodes: ReservedNodes = store
        self.retention: Retention = store
        self.account_use: AccountUse = store
        self.run_times: RunTimes = store
        self.price: Callable[[Sequence[NodeShare]], Rates] | None = None
        """Returns what an allocation costs an hour; None: nothing has a price."""
        self._jobids: list[FluxionJobId] = []
        self.grants = 0
        """How many allocations this process has granted."""
        self._last_skipped = 0

    # ---- the copy as a whole -------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read pending and live workloads, as a new leader does.
        What a former leader was about to release is due again.
        """
        async with self._changing():
            await self._store.void_claims(self.epoch)
            contents = await self._tables()
            self._claimed.clear()
            self._withdrawing.clear()
            # due again: the next release of each finds its own work
            self._released_stored(list(self._released))
            states = await self._store.owner_requeue_states(self.clock() - REMEMBERED)
            for _ in self.loading_contents(contents, states):
                await asyncio.sleep(0)
            while self.tell_loaded(_TOLD_AT_ONCE):
                await asyncio.sleep(0)
            self.in_doubt.clear()

    async def compared(self, *, pending: bool = True) -> tuple[TableContents, TableContents]:
        """Return the contents of the tables and of this copy at the same time, for which the lock is held.

        Parameters
        ----------
        pending
            Also read pending workloads, of which there may be very many, from the tables; else those of the
            copy stand in both.
        """
        async with self._lock:
            return await self._tables(pending=pending), self.contents()

    async def read_spending(self, tree: AccountTree, periods: Mapping[str, BudgetPeriod]) -> None:
        """Read what freed allocations used since the periods of these budgets began;
        nothing else changes meanwhile.
        """
        asked = [
            (name, each, periods[name].start.date())
            for name, members in members_of(tree).items()
            for each in members
        ]
        async with self._lock:
            used = await self._store.spent(asked) if asked else {}
            self.spending = Spending(tree, periods, dict(used), stale=False)

    @property
    def left_waiting(self) -> bool:
        """True if a cycle has left a workload waiting, or if several are pending."""
        return len(self._pending) > _FEW or any(
            self._workloads[workload].reason is not Reason.NONE for workload in self._pending
        )

    # ---- workloads -----------------------------------------------------------------------------------------

    async def upsert(self, described: Sequence[NewWorkload]) -> list[WorkloadId]:
        """Insert or update workloads as the intake describes them; returns the ids of those that changed.

        The intake repeats itself, most of all in a sweep. What it described last of a pending workload is not
        sent again.
        """
        async with self._changing():
            described = [new for new in described if not self._is_known(new)]
            if not described:
                return []
            delta = await self._store.upsert(self.epoch, described)
            self.apply(delta)
            for new in described:
                if (workload := self._by_uid.get(new.uid)) is not None:
                    self._described[workload] = hash(new)
        return delta.changed

    def has_description(self, workload: Workload, digest: int) -> bool:
        """True if a workload waits, and the intake described it last by what has this hash."""
        return workload.state is State.PENDING and self._described.get(workload.id) == digest

    def _is_known(self, new: NewWorkload) -> bool:
        workload = self.by_uid(new.uid)
        return (
            workload is not None
            and workload.generation == new.generation
            and self.has_description(workload, hash(new))
        )

    async def resubmit(self, uids: Sequence[str]) -> list[WorkloadId]:
        """Let cancelled workloads wait again as if they were submitted now;
        returns those that were cancelled.
        """
        return (await self._change(self._store.resubmit, uids)).changed

    async def set_reasons(self, changes: Sequence[ReasonChange], *, live: bool = False) -> None:
        """Write why workloads wait, or (`live`) what is wrong with those that hold nodes; unchanged reasons
        cost nothing. Very many are written in parts, but for those that somebody else changed meanwhile.

        A reason that Postgres does not store is reported, and the workload keeps the one that it has.
        """
        changes = [*{each.workload: each for each in changes if self._differs(each)}.values()]
        before = [self._reason(change) for change in changes]
        for first in range(0, len(changes), _REASONS_AT_ONCE):
            behind = first + _REASONS_AT_ONCE
            part = [
                change
                for change, known in zip(changes[first:behind], before[first:behind], strict=True)
                if self._reason(change) == known
            ]
            if not part:
                continue
            try:
                await self._change_each(self._store.set_reasons, part, live=live)
            except Unstorable as error:
                OBJECT_FAILURES.labels("reasons").inc()
                log.error("reason.unstorable", error=str(error))

    def _reason(self, change: ReasonChange) -> tuple[Reason, str] | None:
        workload = self.get(change.workload)
        return None if workload is None else (workload.reason, workload.message)

    def _differs(self, change: ReasonChange) -> bool:
        return self._reason(change) not in (None, (change.reason, change.message))

    async def mark_started(self, ids: Sequence[WorkloadId]) -> None:
        """Record that all pods of workloads are on their nodes."""
        if ids := [workload for workload in ids if self._state(workload) is State.ALLOCATED]:
            await self._change(self._store.mark_started, ids)

    async def mark_draining(self, ids: Sequence[WorkloadId]) -> None:
        """Record that workloads wait for their last pods to go."""
        if ids := [workload for workload in ids if self._state(workload) in PLACED]:
            await self._change(self._store.mark_draining, ids)

    async def finish(self, endings: Sequence[Ending]) -> None:
        """End workloads, and free whatever they still hold."""
        if endings := self._known(endings):
            await self._change_each(self._store.finish, endings)

    async def requeue(self, requeues: Sequence[Requeue]) -> None:
        """Let workloads wait again with their submit time, and free what they hold except for the slots that
        are kept.
        """
        if requeues := [each for each in requeues if each.workload in self._workloads]:
            await self._change_each(self._store.requeue, requeues)

    async def replace(self, replacements: Sequence[Replacement]) -> list[WorkloadId]:
        """End workloads whose allocations pending ones take over; returns those replacements."""
        elsewhere = {remnant.workload for remnant in self._remnants.values()}
        price = self.price or (lambda _: ())
        replacements = [
            replace(each, rates=price(self._allocations[each.replaced].shares))
            for each in replacements
            if each.replaced in self._allocations
            and each.replaced not in elsewhere
            and self._state(each.replacement) is State.PENDING
        ]
        if not replacements:
            return []
        delta = await self._change(self._store.replace, replacements)
        return [update.id for update in delta.workload_updates]

    # ---- allocations ---------------------------------------------------------------------------------------

    async def grant(self, grants: Sequence[Grant]) -> list[Grant]:
        """Store what Fluxion granted; returns the grants of workloads that were no longer pending,
        which are freed again.
        """
        if not grants:
            return []
        if self.price is not None:
            grants = [replace(grant, rates=self.price(grant.shares)) for grant in grants]
        async with self._changing():
            delta = await self._store.grant(self.epoch, grants, CLAIM_S)
            self.apply(delta)
            for row in (self.by_jobid(update.jobid) for update in delta.workload_updates if update.jobid):
                if row is not None and row.jobid is not None:
                    self._claimed.add(row.namespace, row.jobid)
            stored = {allocation.jobid for allocation in delta.allocations}
            self.grants += len(stored)
            refused = [grant for grant in grants if grant.jobid not in stored]
            if refused:
                self._freed.jobs.update(grant.jobid for grant in refused)
                await self._reread([grant.workload for grant in refused])
        return refused

    async def _reread(self, ids: Sequence[WorkloadId]) -> None:
        """Replace rows that turned out to be wrong by what the table has."""
        rows = [workload for workload in await self._store.workloads(ids) if not workload.state.ended]
        self.apply(Delta(workloads=tuple(rows), ended=tuple({*ids} - {workload.id for workload in rows})))

    async def reserve(self, made: Sequence[Reservation], dropped: Iterable[WorkloadId]) -> None:
        """Store reservations that were made or moved, and delete dropped ones;
        workloads that are no longer pending get none.
        """
        dropped = [workload for workload in dropped if workload in self._reservations]
        if made or dropped:
            await self._change(self._store.reserve, made, dropped)

    async def move_ends(self, ends: Sequence[tuple[FluxionJobId, datetime]]) -> None:
        """Move the planned ends of live allocations that overrun."""
        if ends:
            await self._change(self._store.move_ends, ends)

    async def take_slots(self, taken: Sequence[TakenSlot]) -> None:
        """Record which pods hold which slots."""
        if taken:
            await self._change(self._store.take_slots, taken)

    async def vacate_slots(self, vacated: Sequence[tuple[FluxionJobId, int, str]]) -> None:
        """Record that pods (by uid) left slots (job id, rank) that others may take."""
        if vacated:
            await self._change(self._store.vacate_slots, vacated)

    async def end_slots(self, ended: Sequence[tuple[FluxionJobId, int]]) -> None:
        """Free slots (job id, rank); the last one frees its allocation."""
        if ended:
            await self._change(self._store.end_slots, ended)

    # ---- job ids -------------------------------------------------------------------------------------------

    async def next_jobids(self, n: int) -> list[FluxionJobId]:
        """Return `n` Fluxion job ids that nobody else gets."""
        while True:
            self._jobids = [jobid for jobid in self._jobids if jobid > self._last_skipped]
            if len(self._jobids) >= n:
                taken, self._jobids = self._jobids[:n], self._jobids[n:]
                return taken
            self._jobids += await self._store.next_jobids(n + _JOBIDS_AHEAD)

    async def skip_jobids(self, last: FluxionJobId) -> None:
        """Give out no job id up to this one any more."""
        self._last_skipped = max(self._last_skipped, last)
        await self._store.skip_jobids(self.epoch, last)

    # ---- what has ended, and counts ------------------------------------------------------------------------

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

    # ---- inside --------------------------------------------------------------------------------------------

    async def _tables(self, *, pending: bool = True) -> TableContents:
        waiting = await self._store.pending() if pending else self.pending()
        live = await self._store.live_workloads()
        return TableContents(
            [*waiting, *live], await self._store.live_allocations(), await self._store.reservations()
        )
