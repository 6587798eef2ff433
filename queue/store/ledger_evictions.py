"""Evictions, what work gives back, and preemptions that are withdrawn, stored in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fluxqueue.queue.model.changes import Eviction, Withdrawal
from fluxqueue.queue.model.given_back import giving_back, with_given_back
from fluxqueue.queue.model.records import Epoch, Workload, WorkloadId
from fluxqueue.queue.model.requeue_records import GivenBack
from fluxqueue.queue.model.states import LIVE
from fluxqueue.queue.model.withdrawals import end_of_going_on, going_on, jobs_of_grown, notice_of
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.errors import Unstorable
from fluxqueue.queue.store.ledger_changes import LedgerChanges
from fluxqueue.queue.store.store import Store

__all__ = ["LedgerEvictions"]

_NOTHING_GIVEN: Mapping[WorkloadId, GivenBack] = {}
_NOTHING_WITHDRAWN: Mapping[WorkloadId, str] = {}


class LedgerEvictions(LedgerChanges):
    """The part of the ledger about work that is to stop."""

    def __init__(
        self,
        store: Store,
        epoch: Epoch,
        clock: Callable[[], datetime],
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__(store, epoch, clock, wall)
        self._withdrawing: set[WorkloadId] = set()
        self._going_on: dict[WorkloadId, str] = {}

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
