"""Workloads of the store in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime

from support.memory_tables import MemoryTables

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.changes import Ending, Eviction, ReasonChange, Requeue, Withdrawal
from fluxqueue.queue.model.records import (
    UNREAD,
    Epoch,
    FluxionJobId,
    NewWorkload,
    SlotState,
    Transition,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import NO_REQUEUE_STATE, RequeueState
from fluxqueue.queue.model.spec_overrides import NO_OVERRIDES
from fluxqueue.queue.model.start_conditions import NO_START_CONDITIONS
from fluxqueue.queue.model.states import ENDED, LIVE
from fluxqueue.queue.store import Counts, IllegalTransition
from fluxqueue.queue.store.deltas import AllocationUpdate, Delta, SlotUpdate, WorkloadUpdate

__all__ = ["MemoryWorkloads"]

_SPECIFICATION = ("queue", "jobspec", "shape", "pods", "duration_s", "release_mode")
"""A change of these clears a reason of the scheduler."""
_EDITABLE = (
    *_SPECIFICATION,
    "priority",
    "duration_assumed",
    "generation",
    "overrides",
    "done_indexes",
    "start_conditions",
    "account",
    "submitted_by",
)

_NO_STATES: Mapping[WorkloadId, RequeueState] = {}


class MemoryWorkloads(MemoryTables):
    """The part of the store about workloads and their history."""

    async def upsert(self, epoch: Epoch, described: Sequence[NewWorkload]) -> Delta:
        self._hold(epoch)
        stored = []
        for new in {new.uid: new for new in described}.values():
            known = self._by_uid(new.uid)
            if known is None:
                stored.append(self._insert(epoch, new))
            elif known.state is State.PENDING and not self._is_described(known, new):
                stored.append(self._edit(known, new))
        return Delta(workloads=tuple(stored))

    def _insert(self, epoch: Epoch, new: NewWorkload) -> Workload:
        self._last_id += 1
        columns = {each.name: getattr(new, each.name) for each in fields(new)}
        columns["submitted_at"] = new.submitted_at or self._clock()
        workload = Workload(id=WorkloadId(self._last_id), state=State.PENDING, **columns)
        self._rows[workload.id] = workload
        self._id_of[workload.uid] = workload.id
        self._described[workload.id] = new.reason, new.message
        self._log(epoch, workload.id, None, State.PENDING, new.reason, new.message)
        return workload

    def _is_described(self, known: Workload, new: NewWorkload) -> bool:
        same = all(getattr(known, name) == getattr(new, name) for name in _EDITABLE)
        return same and self._described[known.id] == (new.reason, new.message)

    def _edit(self, known: Workload, new: NewWorkload) -> Workload:
        same = all(getattr(known, name) == getattr(new, name) for name in _SPECIFICATION)
        reason, message = new.reason, new.message
        if same and self._described[known.id] == (reason, message):
            reason, message = known.reason, known.message
        self._described[known.id] = new.reason, new.message
        changes = {name: getattr(new, name) for name in _EDITABLE}
        self._rows[known.id] = edited = replace(known, reason=reason, message=message, **changes)
        return edited

    async def pending(self) -> list[Workload]:
        waiting = [workload for workload in self._rows.values() if workload.state is State.PENDING]
        return sorted(waiting, key=lambda workload: (-workload.priority, workload.submitted_at, workload.id))

    async def live_workloads(self) -> list[Workload]:
        return [workload for _, workload in sorted(self._rows.items()) if workload.state in LIVE]

    async def workloads(self, ids: Sequence[WorkloadId]) -> list[Workload]:
        everything = self._rows | self._history
        return [everything[each] for each in sorted(set(ids)) if each in everything]

    async def workloads_by_uid(self, uids: Sequence[str]) -> list[Workload]:
        return [workload for uid in dict.fromkeys(uids) if (workload := self._by_uid(uid)) is not None]

    async def owner_requeue_states(self, since: datetime) -> list[tuple[RequeueState, datetime]]:
        rows = [workload for workload in self._rows.values() if workload.requeue_state.owner]
        ended = [
            (each.requeue_state, each.finished_at)
            for each in rows
            if each.finished_at is not None and each.finished_at > since
        ]
        live = [(each.requeue_state, self._clock()) for each in rows if each.state in LIVE]
        return sorted([*ended, *live], key=lambda item: item[1])

    async def set_reasons(
        self, epoch: Epoch, changes: Sequence[ReasonChange], *, live: bool = False
    ) -> Delta:
        self._hold(epoch)
        states = (State.ALLOCATED, State.RUNNING) if live else (State.PENDING,)
        latest = {change.workload: change for change in changes}
        written = [
            WorkloadUpdate(id=workload.id, reason=change.reason, message=change.message)
            for workload, change in self._named(latest, states)
            if (workload.reason, workload.message) != (change.reason, change.message)
        ]
        return self._updated(written)

    async def set_requeue_states(self, epoch: Epoch, changes: Mapping[WorkloadId, RequeueState]) -> Delta:
        self._hold(epoch)
        named = self._named(changes, (State.PENDING, *LIVE))
        return self._updated(
            [WorkloadUpdate(id=workload.id, requeue_state=requeue_state) for workload, requeue_state in named]
        )

    async def mark_started(self, epoch: Epoch, ids: Sequence[WorkloadId]) -> Delta:
        return self._moved(epoch, ids, (State.ALLOCATED,), State.RUNNING)

    async def mark_draining(self, epoch: Epoch, ids: Sequence[WorkloadId]) -> Delta:
        return self._moved(epoch, ids, (State.ALLOCATED, State.RUNNING), State.DRAINING)

    def _moved(
        self, epoch: Epoch, ids: Sequence[WorkloadId], sources: Sequence[State], after: State
    ) -> Delta:
        self._hold(epoch)
        moved = []
        for workload, _ in self._named(dict.fromkeys(ids), sources):
            started_at = self._clock() if after is State.RUNNING else workload.started_at
            moved.append(
                WorkloadUpdate(
                    id=workload.id, state=after, reason=Reason.NONE, message="", started_at=started_at
                )
            )
            self._log(epoch, workload.id, workload.state, after)
        return self._updated(moved)

    async def finish(self, epoch: Epoch, endings: Sequence[Ending]) -> Delta:
        for each in endings:
            if each.state not in ENDED or each.outcome is Outcome.NONE:
                raise IllegalTransition(
                    f"workload {each.workload} cannot end as {each.state} with outcome "
                    f"{each.outcome or 'none'!s}"
                )
        self._hold(epoch)
        first = {each.workload: each for each in reversed(endings)}
        freed: list[FluxionJobId] = []
        made: list[tuple[Ending, datetime]] = []
        for workload, ending in self._named(first, (State.PENDING, *LIVE)):
            freed += [
                row.allocation.jobid
                for row in self._end(epoch, workload, ending.state, ending.outcome, ending.message)
            ]
            if (finished_at := self._rows[workload.id].finished_at) is not None:
                started_at = workload.started_at
                if started_at is None and ending.began_at is not None and workload.allocated_at is not None:
                    started_at = min(max(ending.began_at, workload.allocated_at), finished_at)
                self._rows[workload.id] = replace(self._rows[workload.id], started_at=started_at)
                made.append((replace(ending, began_at=started_at), finished_at))
        return Delta(
            ended=tuple(first), endings=tuple(made), unreserved=tuple(first), freed=tuple(sorted(freed))
        )

    async def evict(
        self,
        epoch: Epoch,
        evictions: Sequence[Eviction],
        states: Mapping[WorkloadId, RequeueState] = _NO_STATES,
        withdrawals: Sequence[Withdrawal] = (),
    ) -> Delta:
        self._hold(epoch)
        withdrawn, ends = self._withdraw(epoch, withdrawals)
        self._updated(withdrawn)
        latest = {each.workload: each for each in evictions}
        evicted = []
        for workload, eviction in self._named(latest, tuple(LIVE)):
            if workload.evicting:
                continue
            update = WorkloadUpdate(
                id=workload.id, state=State.DRAINING, reason=eviction.reason, message=eviction.message
            )
            if eviction.requeue_state is not None:
                update = WorkloadUpdate(
                    id=workload.id,
                    state=State.DRAINING,
                    reason=eviction.reason,
                    message=eviction.message,
                    requeue_state=eviction.requeue_state,
                )
            evicted.append(update)
            if workload.state is not State.DRAINING:
                self._log(
                    epoch, workload.id, workload.state, State.DRAINING, eviction.reason, eviction.message
                )
        given = self._named(states, (State.PENDING, *LIVE))
        self._updated(
            written := [
                *evicted,
                *(WorkloadUpdate(id=workload.id, requeue_state=state) for workload, state in given),
            ]
        )
        return Delta(workload_updates=(*withdrawn, *written), allocation_updates=tuple(ends))

    def _withdraw(
        self, epoch: Epoch, withdrawals: Sequence[Withdrawal]
    ) -> tuple[list[WorkloadUpdate], list[AllocationUpdate]]:
        updates, ends = [], []
        wanted = {each.workload: each for each in withdrawals}
        for workload, each in self._named(wanted, (State.DRAINING,)):
            if workload.reason is not Reason.PREEMPTED:
                continue
            self._log(epoch, workload.id, State.DRAINING, each.state, "", each.message)
            updates.append(
                WorkloadUpdate(
                    id=workload.id,
                    state=each.state,
                    reason=Reason.NONE,
                    message="",
                    requeue_state=each.requeue_state,
                )
            )
            row = self._allocations[each.jobid]
            ends.append(update := AllocationUpdate(jobid=each.jobid, end=each.end))
            row.allocation = update.of(row.allocation)
        return updates, ends

    async def requeue(self, epoch: Epoch, requeues: Sequence[Requeue]) -> Delta:
        self._hold(epoch)
        latest = {each.workload: each for each in requeues}
        kept = {slot for each in requeues for slot in each.kept}
        updates, remnants, slots, freed = [], [], [], []
        for workload, each in self._named(latest, (State.ALLOCATED, State.DRAINING)):
            self._log(epoch, workload.id, workload.state, State.PENDING, each.reason, each.message)
            updates.append(_requeued(workload, each))
            for row in [
                row
                for row in self._live_rows()
                if row.allocation.workload == workload.id and not row.allocation.remnant
            ]:
                jobid = row.allocation.jobid
                released_at = row.allocation.released_at or self._clock()
                row.allocation = replace(row.allocation, released_at=released_at)
                if not any(
                    slot.jobid == jobid and (jobid, slot.rank) in kept for slot in row.allocation.slots
                ):
                    self._free(row)
                    freed.append(jobid)
                    continue
                row.next_release_at = None
                remnants.append(AllocationUpdate(jobid=jobid, released_at=released_at, remnant=True))
                slots += [
                    SlotUpdate(jobid=jobid, rank=slot.rank, state=SlotState.ENDED)
                    for slot in row.allocation.open_slots
                    if (jobid, slot.rank) not in kept
                ]
        for update in remnants:
            self._allocations[update.jobid].allocation = update.of(self._allocations[update.jobid].allocation)
        self._set_slots(slots)
        self._updated(updates)
        return Delta(
            workload_updates=tuple(updates),
            allocation_updates=tuple(remnants),
            slot_updates=tuple(slots),
            freed=tuple(sorted(freed)),
        )

    async def resubmit(self, epoch: Epoch, uids: Sequence[str]) -> Delta:
        self._hold(epoch)
        for workload in [
            each for uid in uids if (each := self._by_uid(uid)) is not None and each.state is State.CANCELLED
        ]:
            if self._history.get(workload.id) is not None and not workload.jobspec:
                continue
            self._history.pop(workload.id, None)
            self._rows[workload.id] = _resubmitted(workload, self._clock())
            self._described[workload.id] = Reason.NONE, ""
            self._log(epoch, workload.id, State.CANCELLED, State.PENDING, "", "its user resumed it")
        rows = await self.workloads_by_uid(uids)
        return Delta(workloads=tuple(workload for workload in rows if workload.state is State.PENDING))

    async def history(self, workload: WorkloadId) -> list[Transition]:
        return [each for each in self._transitions if each.workload == workload]

    async def requeue_reasons(self, workload: WorkloadId, limit: int) -> list[Transition]:
        of_it = [each for each in self._transitions if each.workload == workload]
        following = [*(each.after for each in of_it[1:]), None]
        requeues = [
            each
            for each, after in zip(of_it, following, strict=True)
            if each.reason
            and (
                (each.after is State.DRAINING and after not in (State.ALLOCATED, State.RUNNING))
                or (each.before, each.after) == (State.ALLOCATED, State.PENDING)
            )
        ]
        return requeues[-limit:]

    async def counts(self) -> list[Counts]:
        workloads: Counter[tuple[str, State, Reason]] = Counter()
        pods: Counter[tuple[str, State, Reason]] = Counter()
        for workload in self._rows.values():
            key = workload.queue, workload.state, workload.reason
            workloads[key] += 1
            pods[key] += workload.pods
        return [
            Counts(queue=queue, state=state, reason=reason, workloads=count, pods=pods[queue, state, reason])
            for (queue, state, reason), count in sorted(workloads.items())
        ]


def _requeued(workload: Workload, requeue: Requeue) -> WorkloadUpdate:
    return WorkloadUpdate(
        id=workload.id,
        state=State.PENDING,
        reason=requeue.reason,
        message=requeue.message,
        allocated_at=None,
        started_at=None,
        jobid=None,
        hosts="",
        requeues=workload.requeues + 1,
        generation=UNREAD,
    )


def _resubmitted(workload: Workload, now: datetime) -> Workload:
    return replace(
        workload,
        state=State.PENDING,
        outcome=Outcome.NONE,
        reason=Reason.NONE,
        message="",
        submitted_at=now,
        promised_at=None,
        allocated_at=None,
        started_at=None,
        finished_at=None,
        jobid=None,
        hosts="",
        overrides=NO_OVERRIDES,
        requeue_state=NO_REQUEUE_STATE,
        start_conditions=NO_START_CONDITIONS,
        generation=UNREAD,
    )
