"""The queue as controllers see it: the leader's copy for reading, and the only way to change the tables.

Postgres is the truth. Every change is one transaction of the store. The `Delta` that it returns is applied at
once to the copy in memory (`fluxqueue.queue.store.ledger_state`), under one lock, so changes are applied in
the order in which they were committed. If the process dies between the two, nothing is lost: the next leader
loads what was committed.

If Postgres goes away during a change, nobody knows whether that was committed, and a Postgres that comes back
may lack the last changes. Then this copy is in doubt (`Ledger.in_doubt`) until it is loaded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Concatenate, ParamSpec

import structlog
from msgspec import structs

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.namespacelines import NamespaceLines
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.budgets import BudgetPeriod
from fluxqueue.queue.model.changes import (
    Ending,
    Eviction,
    ReasonChange,
    Replacement,
    Requeue,
    SlotWrites,
    TakenSlot,
    Withdrawal,
)
from fluxqueue.queue.model.given_back import giving_back, with_given_back
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.prices import Rates
from fluxqueue.queue.model.records import (
    Allocation,
    Epoch,
    FluxionJobId,
    GivenBack,
    Grant,
    NewWorkload,
    RequeueState,
    Reservation,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_states import REMEMBERED
from fluxqueue.queue.model.spending import Spending, members_of
from fluxqueue.queue.model.states import LIVE, released_at_creation
from fluxqueue.queue.model.withdrawals import end_of_going_on, going_on, jobs_of_grown, notice_of
from fluxqueue.queue.store.database import DatabaseUnavailable
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.errors import Unstorable
from fluxqueue.queue.store.ledger_state import TableContents
from fluxqueue.queue.store.ledger_tables import LedgerTables
from fluxqueue.queue.store.store import Store

__all__ = ["Ledger", "TableContents"]

_P = ParamSpec("_P")

log = structlog.get_logger()

CLAIM_S = 20.0
"""For so long a grant, or a claim, keeps an allocation for the release by this process;
then it is due again."""
_NOTHING_GIVEN: Mapping[WorkloadId, GivenBack] = {}
_NOTHING_WITHDRAWN: Mapping[WorkloadId, str] = {}
_FEW = 8
_DUE_AT_ONCE = 200
"""Releases that are claimed by one transaction."""
_TOLD_AT_ONCE = 200
"""Workloads of which the listeners are told before others get a turn."""
_REASONS_AT_ONCE = 1_000
"""Reasons that are written by one transaction: each is told to all listeners, in one step."""
_JOBIDS_AHEAD = 50
"""Job ids that are read before they are needed. Those that a process leaves over are never used."""


class Ledger(LedgerTables):
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
        self.in_doubt = asyncio.Event()
        """Set while the copy may differ from the tables."""
        self.price: Callable[[Sequence[NodeShare]], Rates] | None = None
        """Returns what an allocation costs an hour; None: nothing has a price."""
        self._lock = asyncio.Lock()
        self._releasing: set[FluxionJobId] = set()
        self._claimed: NamespaceLines[FluxionJobId] = NamespaceLines()
        """Claimed by this process, by a grant or when they were due; not handed out for release yet."""
        self._released: dict[FluxionJobId, None] = {}
        """Released by this process, which is to be stored with the next write of slots."""
        self._jobids: list[FluxionJobId] = []
        self._withdrawing: set[WorkloadId] = set()
        self._going_on: dict[WorkloadId, str] = {}
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
            self.load_contents(contents, states)
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

    def mark_in_doubt(self) -> None:
        """Record that the tables may differ: Postgres was away."""
        self.in_doubt.set()

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

    async def set_requeue_states(self, changes: Mapping[WorkloadId, RequeueState]) -> None:
        """Write the requeue states of workloads; their next match depends on them.
        What they gave back stays: only `evict` adds to that.
        """

        async def set_requeue_states(epoch: Epoch, changes: Mapping[WorkloadId, RequeueState]) -> Delta:
            kept = {each: with_given_back(state, self.get(each)) for each, state in changes.items()}
            return await self._store.set_requeue_states(epoch, kept)

        if changes:
            await self._change(set_requeue_states, changes)

    async def set_time_limit(self, workload_id: WorkloadId, at: datetime, idle: str) -> Workload | None:
        """Store that a workload is ended since a time, at its limit or because it was idle (in words);
        return it, None if it is gone. What else was stored of it until then stays, such as its grace.
        """

        async def set_requeue_states(epoch: Epoch, ids: Sequence[WorkloadId]) -> Delta:
            rows = filter(None, map(self.get, ids))
            states = {row.id: structs.replace(row.requeue_state, time_limit=at, idle=idle) for row in rows}
            return await self._store.set_requeue_states(epoch, states)

        await self._change(set_requeue_states, [workload_id])
        return self.get(workload_id)

    async def end_graces(self, ids: Collection[WorkloadId]) -> list[WorkloadId]:
        """Have the graces of preempted work end now; return of which. What goes on by now keeps its state."""
        ended: list[WorkloadId] = []

        async def end(epoch: Epoch, ids: Collection[WorkloadId]) -> Delta:
            now = self.clock()
            states = {
                row.id: structs.replace(row.requeue_state, stop_at=now)
                for row in map(self.get, ids)
                if row is not None and grace_left_s(row, now)
            }
            ended[:] = states
            return await self._store.set_requeue_states(epoch, states)

        if ids:
            await self._change(end, ids)
        return ended

    async def mark_started(self, ids: Sequence[WorkloadId]) -> None:
        """Record that all pods of workloads are on their nodes."""
        if ids := [workload for workload in ids if self._state(workload) is State.ALLOCATED]:
            await self._change(self._store.mark_started, ids)

    async def mark_draining(self, ids: Sequence[WorkloadId]) -> None:
        """Record that workloads wait for their last pods to go."""
        if ids := [workload for workload in ids if self._state(workload) in (State.ALLOCATED, State.RUNNING)]:
            await self._change(self._store.mark_draining, ids)

    async def finish(self, endings: Sequence[Ending]) -> None:
        """End workloads, and free whatever they still hold."""
        if endings := [ending for ending in endings if ending.workload in self._workloads]:
            await self._change_each(self._store.finish, endings)

    async def write_slots(self, writes: SlotWrites) -> None:
        """Write what the tracker found about slots and their workloads, and what was released,
        in one transaction.
        """
        released = list(self._released)
        writes = replace(
            writes,
            released=released,
            started=[workload for workload in writes.started if self._state(workload) is State.ALLOCATED],
            draining=[
                workload
                for workload in writes.draining
                if self._state(workload) in (State.ALLOCATED, State.RUNNING)
            ],
            endings=[ending for ending in writes.endings if ending.workload in self._workloads],
        )
        if writes.any:
            async with self._changing():
                for delta in await self._store.write_slots(self.epoch, writes):
                    self.apply(delta)
                self._released_stored(released)

    async def evict(
        self,
        evictions: Sequence[Eviction],
        given_back: Mapping[WorkloadId, GivenBack] = _NOTHING_GIVEN,
        withdrawn: Mapping[WorkloadId, str] = _NOTHING_WITHDRAWN,
    ) -> None:
        """Record that live workloads are to free their nodes and wait again, so they drain with a reason; and
        what others give back.

        In the same transaction, preemptions of before are withdrawn, each with what history says of it. What
        was told to stop goes on, unless its grace is over, or it is evicted or gives back again. Until it is
        known whether that is stored, it is `withdrawing`.
        """
        rows: dict[WorkloadId, Workload] = {}

        async def evict(epoch: Epoch, evictions: Sequence[Eviction]) -> Delta:
            rows.update(self._withdraw(withdrawn))
            kept = [
                replace(
                    each,
                    requeue_state=with_given_back(
                        each.requeue_state, rows.get(each.workload) or self.get(each.workload)
                    ),
                )
                if each.requeue_state
                else each
                for each in evictions
            ]
            evicted = {each.workload for each in kept if each.requeue_state is not None}
            states = {
                each: row.requeue_state
                for each, row in rows.items()
                if not self._workloads[each].evicting and each not in evicted
            }
            stopping = withdrawn.keys() - rows.keys()  # what it gives back ends already, so it stays as it is
            given = (
                (each, giving_back(rows.get(each) or self.get(each), back))
                for each, back in given_back.items()
                if each not in stopping
            )
            states |= {each: state for each, state in given if state is not None}
            return await self._store.evict(epoch, kept, states, self._withdrawals(rows, withdrawn))

        evictions = [each for each in evictions if self._state(each.workload) in LIVE]
        if not evictions and not given_back and not withdrawn:
            return
        try:
            await self._change_each(evict, evictions)
        except Unstorable:
            self._withdrawing.difference_update(withdrawn)
            raise
        # after any other failure not before what is stored is read
        self._withdrawing.difference_update(withdrawn)
        known = {each: why for each, why in self._going_on.items() if each in self._workloads}
        self._going_on = known | {each: withdrawn[each] for each in rows}

    def withdrawing(self, workload: WorkloadId) -> bool:
        """True while it is not known whether work that was told to stop goes on:
        it must not be stopped meanwhile.
        """
        return workload in self._withdrawing

    def why_going_on(self, workload: WorkloadId) -> str:
        """Return why the preemption of a workload was withdrawn last; empty if another process did that."""
        return self._going_on.get(workload, "")

    def _withdraw(self, ids: Collection[WorkloadId]) -> dict[WorkloadId, Workload]:
        """Return work that was told to stop as it is when it goes on; what is stopped by now is left out."""
        now = self.clock()
        held = (
            (self._workloads[each], self._allocations[each])
            for each in ids
            if each in self._workloads and each in self._allocations
        )
        rows = {
            each.id: going_on(each, allocation)
            for each, allocation in held
            if notice_of(each, allocation, now) is not None
        }
        told, gave_back = [self._workloads[each] for each in rows], self.gave_back()
        rows |= {
            job.id: going_on(job, allocation)
            for _, job, allocation in jobs_of_grown(told, gave_back)
            if job.id in ids
        }
        self._withdrawing.update(rows)
        return rows

    def _withdrawals(
        self, rows: Mapping[WorkloadId, Workload], why: Mapping[WorkloadId, str]
    ) -> list[Withdrawal]:
        """Return what is to be written of whole workloads that go on."""
        made: list[Withdrawal] = []
        for workload_id, row in rows.items():
            allocation = self._allocations[workload_id]
            if self._workloads[workload_id].evicting:
                end = end_of_going_on(row, allocation, self.wall())
                made.append(
                    Withdrawal(
                        workload=workload_id,
                        state=row.state,
                        requeue_state=row.requeue_state,
                        jobid=allocation.jobid,
                        end=end,
                        message=why[workload_id],
                    )
                )
        return made

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

    # ---- releases ------------------------------------------------------------------------------------------

    async def claim_releases(
        self, limit: int, retry_after_s: float = CLAIM_S
    ) -> list[tuple[Workload, Allocation]]:
        """Return allocations that are due for release, claimed for some time; the caller passes all of them
        to `releases_done`.

        What this process granted is claimed already. The tables are asked only if others may be due, and
        all that are due get a turn: those of one namespace that failed together keep no other back.
        """
        while self._any_unclaimed():
            due = await self._store.claim_releases(self.epoch, _DUE_AT_ONCE, retry_after_s)
            for row, held in due:
                if held.jobid not in self._releasing:
                    self._claimed.add(row.namespace, held.jobid)
            if len(due) < _DUE_AT_ONCE:
                break
        claimed: list[tuple[Workload, Allocation]] = []
        while self._claimed and len(claimed) < limit:
            jobid = self._claimed.take()
            workload, allocation = self.by_jobid(jobid), self.allocation_of_job(jobid)
            if (
                self._releasable(jobid)
                and workload is not None
                and allocation is not None
                and jobid not in self._releasing
            ):
                claimed.append((workload, allocation))
        self._releasing.update(allocation.jobid for _, allocation in claimed)
        return claimed

    def _releasable(self, jobid: FluxionJobId) -> bool:
        """True if an allocation waits for release as far as this copy shows."""
        workload = self.by_jobid(jobid)
        return (
            jobid in self._unreleased
            and jobid not in self._released
            and workload is not None
            and workload.state is State.ALLOCATED
        )

    def _any_unclaimed(self) -> bool:
        """True if an allocation waits for release that this process is neither releasing nor about to."""
        return any(
            jobid not in self._claimed and jobid not in self._releasing and self._releasable(jobid)
            for jobid in self._unreleased
        )

    def releasing(self, jobid: FluxionJobId) -> bool:
        """True while this process carries out the release of an allocation."""
        return jobid in self._releasing

    def releases_done(self, jobids: Iterable[FluxionJobId]) -> None:
        """Record that these releases are not being carried out any more, whether or not they succeeded."""
        self._releasing.difference_update(jobid for jobid in jobids if jobid not in self._released)

    def is_released(self, allocation: Allocation) -> bool:
        """True if the object of an allocation was released, whether or not that is stored."""
        return allocation.released_at is not None or allocation.jobid in self._released

    async def note_released(self, jobids: Sequence[FluxionJobId]) -> None:
        """Record that the objects of allocations were released.

        If no pod waits for the tracker, that is stored with its next write. Until then the release counts as
        under way.
        """
        rows = {jobid: self.by_jobid(jobid) for jobid in jobids}
        later = {
            jobid: row
            for jobid, row in rows.items()
            if row is not None and row.reason is Reason.NONE and released_at_creation(row)
        }
        self._released.update(dict.fromkeys(later))
        self._releasing.update(later)
        self.notify(row.id for row in later.values())
        await self.mark_released([jobid for jobid in jobids if jobid not in later])

    async def store_released(self) -> None:
        """Store now what was released."""
        if self._released:
            await self.write_slots(SlotWrites())

    def _notify_owners(self, jobids: Iterable[FluxionJobId]) -> None:
        self.notify(owner for jobid in jobids if (owner := self._by_jobid.get(jobid)) is not None)

    def _released_stored(self, jobids: Sequence[FluxionJobId]) -> None:
        for jobid in jobids:
            self._released.pop(jobid, None)
        self.releases_done(jobids)
        self._notify_owners(jobids)

    async def mark_released(self, jobids: Sequence[FluxionJobId]) -> None:
        """Record that the objects of allocations were released."""
        if jobids:
            await self._change(self._store.mark_released, jobids)
            self._notify_owners(jobids)

    async def mark_release_failed(self, jobid: FluxionJobId, message: str) -> None:
        """Record why an object could not be released; this is tried again."""
        await self._change(self._store.mark_release_failed, jobid, message)

    async def retry_releases(self, ids: Sequence[WorkloadId]) -> None:
        """Make releases due now that failed: something about their objects changed."""
        if jobids := [
            allocation.jobid
            for workload in ids
            if (allocation := self._allocations.get(workload)) is not None
        ]:
            await self._store.retry_releases(self.epoch, jobids)

    async def retry_releases_soon(self, jobids: Sequence[FluxionJobId]) -> None:
        """Make releases due shortly that failed because of a passing condition."""
        if jobids:
            await self._store.retry_releases_soon(self.epoch, jobids)

    async def next_release_at(self) -> datetime | None:
        """Return when the next release is due (may be past); None if nothing waits for release."""
        return await self._store.next_release_at() if any(map(self._releasable, self._unreleased)) else None

    # ---- job ids -------------------------------------------------------------------------------------------

    async def last_run_times(self) -> list[tuple[tuple[str, str, str], float]]:
        """Return the last run times of everybody; see `RunTimes.last_run_times`."""
        return await self._store.last_run_times()

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

    # ---- inside --------------------------------------------------------------------------------------------

    async def _change(
        self, write: Callable[Concatenate[Epoch, _P], Awaitable[Delta]], *args: _P.args, **kwargs: _P.kwargs
    ) -> Delta:
        """Write to the tables, and apply what that changed."""
        async with self._changing():
            delta = await write(self.epoch, *args, **kwargs)
            self.apply(delta)
        return delta

    async def _change_each(
        self, write: Callable[..., Awaitable[Delta]], changes: Sequence[object], **settings: bool
    ) -> None:
        """Write changes of several workloads together, or one by one if Postgres does not store something of
        them.

        Raises
        ------
        Unstorable
            Of one of them; all others are written.
        """
        try:
            await self._change(write, changes, **settings)
        except Unstorable as error:
            if len(changes) == 1:
                raise
            refused = error
            for change in changes:
                try:
                    await self._change(write, [change], **settings)
                except Unstorable as alone:
                    refused = Unstorable(f"{alone}: {change}")
            raise refused from None

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """One change at a time. One that was broken off may have been committed all the same."""
        async with self._lock:
            try:
                yield
            except (DatabaseUnavailable, asyncio.CancelledError):
                self.mark_in_doubt()
                raise

    async def _tables(self, *, pending: bool = True) -> TableContents:
        waiting = await self._store.pending() if pending else self.pending()
        live = await self._store.live_workloads()
        return TableContents(
            [*waiting, *live], await self._store.live_allocations(), await self._store.reservations()
        )

    def _state(self, workload_id: WorkloadId) -> State | None:
        workload = self.get(workload_id)
        return workload.state if workload else None
