"""Workloads: described by the intake, pending, moved along their states, kept after their end.

The intake is level-triggered and repeats itself. So `upsert` compares what it describes with what it
described before (``found_reason`` and the specification), never with what the scheduler has written since: a
sweep over unchanged objects changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from operator import attrgetter

from msgspec import UNSET

from fluxqueue.api.fluxjobs import PLACED, Reason, State
from fluxqueue.api.sharedparts import one_text
from fluxqueue.queue.model.changes import Ending, Eviction, ReasonChange, Requeue, SlotWrites, Withdrawal
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
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.states import LIVE, sources
from fluxqueue.queue.store.deltas import AllocationUpdate, Delta, SlotUpdate, WorkloadUpdate
from fluxqueue.queue.store.rows import (
    Counts,
    Row,
    column,
    overrides_text,
    requeue_state_of,
    requeue_state_text,
    start_conditions_text,
    transition_of,
    workload_of,
)
from fluxqueue.queue.store.transactions import Statement
from fluxqueue.queue.store.writes import Writes, moving

__all__ = ["Workloads"]

_NO_STATES: Mapping[WorkloadId, RequeueState] = {}
_DESCRIBED = tuple(each.name for each in fields(NewWorkload))


class Workloads(Writes):
    """The part of the store about workloads and their history."""

    async def upsert(self, epoch: Epoch, described: Sequence[NewWorkload]) -> Delta:
        """Insert or update workloads as the intake describes them.

        New ones begin as Pending. A pending one is updated if its specification or reason is not what the
        intake described last; it keeps ``submitted_at`` and id. A changed specification also clears a reason
        of the scheduler. All others stay as they are, also those that ended or were moved to ``history``.

        Returns
        -------
        Delta
            The rows that were inserted or updated, in the order of `described`. If that names one twice, the
            last one counts.
        """
        latest = list({new.uid: new for new in described}.values())
        if not latest:
            return Delta()
        columns = {name: column(latest, attrgetter(name)) for name in _DESCRIBED}
        columns["overrides"] = column(latest, lambda new: overrides_text(new.overrides))
        columns["requeue_state"] = column(latest, lambda new: requeue_state_text(new.requeue_state))
        columns["start_conditions"] = column(latest, lambda new: start_conditions_text(new.start_conditions))
        (rows,) = await self._write(epoch, Statement("upsert", columns | {"epoch": epoch}))
        by_uid = {row["uid"]: row for row in rows}
        return Delta(
            workloads=tuple(workload_of(by_uid[uid]) for new in latest if (uid := new.uid) in by_uid)
        )

    async def pending(self) -> list[Workload]:
        """Return all pending workloads in policy order: priority descending, submit time, id."""
        return await self._records(workload_of, "pending")

    async def owner_requeue_states(self, since: datetime) -> list[tuple[RequeueState, datetime]]:
        """Return the requeue states of pods that a controller replaces, with the time of their end,
        oldest first. A live one ends now.
        """
        return [
            (requeue_state_of(row["requeue_state"]), row["at"])
            for row in await self._read("owner_requeue_states", since=since)
        ]

    async def live_workloads(self) -> list[Workload]:
        """Return workloads that are Allocated, Running or Draining, by id."""
        return await self._records(workload_of, "live_workloads")

    async def workloads(self, ids: Sequence[WorkloadId]) -> list[Workload]:
        """Return the workloads of these ids that exist, by id;
        those in ``history`` come without their jobspec.
        """
        return [workload_of(row) for row in await self._read("workloads", ids=list(ids))]

    async def workloads_by_uid(self, uids: Sequence[str]) -> list[Workload]:
        """Return the workloads of these objects, in no particular order;
        those in ``history`` come without their jobspec.
        """
        return [workload_of(row) for row in await self._read("workloads_by_uid", uid=list(uids))]

    async def set_reasons(
        self, epoch: Epoch, changes: Sequence[ReasonChange], *, live: bool = False
    ) -> Delta:
        """Write why workloads wait.

        Parameters
        ----------
        epoch
            Of the leader.
        changes
            Reason and message by workload.
        live
            Change Allocated and Running workloads (``BindFailed``) instead of pending ones. What drains with
            a reason is evicted.

        Returns
        -------
        Delta
            The workloads that are in such a state and had another reason or message before.
        """
        latest = {change.workload: change for change in changes}
        if not latest:
            return Delta()
        (rows,) = await self._write(
            epoch,
            Statement(
                "set_reasons",
                {
                    "ids": list(latest),
                    "reasons": [change.reason for change in latest.values()],
                    "messages": [change.message for change in latest.values()],
                    "states": list(PLACED) if live else [State.PENDING],
                },
            ),
        )
        written = [latest[workload] for workload in _ids(rows)]
        return Delta(
            workload_updates=tuple(
                WorkloadUpdate(id=each.workload, reason=each.reason, message=one_text(each.message))
                for each in written
            )
        )

    async def set_requeue_states(self, epoch: Epoch, changes: Mapping[WorkloadId, RequeueState]) -> Delta:
        """Write the requeue states of workloads that have not ended."""
        (rows,) = await self._write(epoch, _states_statement(changes))
        return _states_delta(changes, rows)

    async def mark_started(self, epoch: Epoch, ids: Sequence[WorkloadId]) -> Delta:
        """Move Allocated workloads to Running."""
        return (await self._write_together(epoch, moving(epoch, ids, State.RUNNING)))[0]

    async def mark_draining(self, epoch: Epoch, ids: Sequence[WorkloadId]) -> Delta:
        """Move Allocated and Running workloads to Draining."""
        return (await self._write_together(epoch, moving(epoch, ids, State.DRAINING)))[0]

    async def finish(self, epoch: Epoch, endings: Sequence[Ending]) -> Delta:
        """End workloads in whatever state they are, and free what they hold. Those that have ended before
        stay as they ended.

        Returns
        -------
        Delta
            All of them as ended, and the allocations freed by this call, which are to be cancelled in the
            matcher.

        Raises
        ------
        IllegalTransition
            If a state is not a final one.
        """
        return (await self.write_slots(epoch, SlotWrites(endings=list(endings))))[-1] if endings else Delta()

    async def evict(
        self,
        epoch: Epoch,
        evictions: Sequence[Eviction],
        states: Mapping[WorkloadId, RequeueState] = _NO_STATES,
        withdrawals: Sequence[Withdrawal] = (),
    ) -> Delta:
        """Move Allocated and Running workloads to Draining, and write why they are to be queued again; and
        requeue states of others.

        Before that, workloads go on whose preemption is withdrawn. They may be evicted again in the same
        transaction.
        """
        latest = {each.workload: each for each in evictions}
        *withdrawn, rows, of_others = await self._write(
            epoch,
            *([_withdraw_statement(epoch, withdrawals)] if withdrawals else []),
            Statement(
                "evict",
                {
                    "epoch": epoch,
                    "ids": list(latest),
                    "reasons": [each.reason for each in latest.values()],
                    "messages": [each.message for each in latest.values()],
                    "requeue_state": [requeue_state_text(each.requeue_state) for each in latest.values()],
                    "from": list(sources(State.DRAINING)),
                },
            ),
            _states_statement(states),
        )
        going_on = [_withdrawn_delta(withdrawals, each) for each in withdrawn]
        evicted = (
            WorkloadUpdate(
                id=each.workload,
                state=State.DRAINING,
                reason=each.reason,
                message=each.message,
                requeue_state=each.requeue_state if each.requeue_state is not None else UNSET,
            )
            for each in (latest[workload] for workload in _ids(rows))
        )
        return Delta(
            workload_updates=(
                *(update for each in going_on for update in each.workload_updates),
                *evicted,
                *_states_delta(states, of_others).workload_updates,
            ),
            allocation_updates=tuple(update for each in going_on for update in each.allocation_updates),
        )

    async def requeue(self, epoch: Epoch, requeues: Sequence[Requeue]) -> Delta:
        """Move Allocated and Draining workloads to Pending: submit time kept, requeues counted, allocations
        freed.

        An allocation of which slots are kept becomes a remnant: it holds those slots and nothing else, until
        they end.

        Returns
        -------
        Delta
            The workloads that wait now, the remnants, and the allocations freed by this call, which are to be
            cancelled in the matcher.
        """
        latest = {each.workload: each for each in requeues}
        kept = [slot for each in latest.values() for slot in each.kept]
        _, rows = await self._write(
            epoch,
            Statement("lock_workloads", {"ids": list(latest)}),
            Statement(
                "requeue",
                {
                    "epoch": epoch,
                    "ids": list(latest),
                    "reasons": [each.reason for each in latest.values()],
                    "messages": [each.message for each in latest.values()],
                    "kept_jobids": [jobid for jobid, _ in kept],
                    "kept_ranks": [rank for _, rank in kept],
                    "from": list(sources(State.PENDING) & LIVE),
                    "unread": UNREAD,
                },
            ),
        )
        remnants = [row for row in rows if row["jobid"] is not None and not row["freed"]]
        return Delta(
            workload_updates=tuple(
                WorkloadUpdate(
                    id=row["id"],
                    state=State.PENDING,
                    reason=latest[row["id"]].reason,
                    message=latest[row["id"]].message,
                    allocated_at=None,
                    started_at=None,
                    jobid=None,
                    hosts="",
                    requeues=row["requeues"],
                    generation=UNREAD,
                )
                for row in rows
            ),
            allocation_updates=tuple(
                AllocationUpdate(jobid=row["jobid"], released_at=row["released_at"], remnant=True)
                for row in remnants
            ),
            slot_updates=tuple(
                SlotUpdate(jobid=row["jobid"], rank=rank, state=SlotState.ENDED)
                for row in remnants
                for rank in row["ended"]
            ),
            freed=tuple(FluxionJobId(row["jobid"]) for row in rows if row["freed"]),
        )

    async def resubmit(self, epoch: Epoch, uids: Sequence[str]) -> Delta:
        """Move cancelled workloads to Pending, submitted now and without overrides. One in ``history`` comes
        back from there.

        Their first ends are recorded (`fluxqueue.queue.store.retention`).

        Returns
        -------
        Delta
            Those of the workloads that are pending now, as whole rows.
        """
        *_, rows = await self._write(
            epoch,
            Statement("remember", {"uids": list(uids)}),
            Statement("make_months"),
            Statement("record_resumed", {"uids": list(uids)}),
            Statement("resubmit", {"epoch": epoch, "uids": list(uids)}),
            Statement("workloads_by_uid", {"uid": list(uids)}),
        )
        return Delta(
            workloads=tuple(
                workload for workload in map(workload_of, rows) if workload.state is State.PENDING
            )
        )

    async def history(self, workload: WorkloadId) -> list[Transition]:
        """Return all transitions of a workload, oldest first;
        also of one in ``history``, until that is pruned.
        """
        return [transition_of(row) for row in await self._read("history", workload=workload)]

    async def requeue_reasons(self, workload: WorkloadId, limit: int) -> list[Transition]:
        """Return the transitions by which a workload was last requeued, oldest first, with their reasons."""
        rows = await self._read("requeue_reasons", workload=workload, limit=limit)
        return [transition_of(row) for row in reversed(rows)]

    async def counts(self) -> list[Counts]:
        """Count workloads and requested slots by queue, state and reason, for metrics;
        without ``history``.
        """
        return [
            Counts(
                queue=row["queue"],
                state=State(row["state"]),
                reason=Reason(row["reason"]),
                workloads=row["workloads"],
                pods=row["pods"],
            )
            for row in await self._read("counts")
        ]


def _ids(rows: Sequence[Row]) -> list[WorkloadId]:
    return [WorkloadId(row["id"]) for row in rows]


def _states_statement(changes: Mapping[WorkloadId, RequeueState]) -> Statement:
    texts = [requeue_state_text(requeue_state) for requeue_state in changes.values()]
    return Statement("set_requeue_states", {"ids": list(changes), "requeue_state": texts})


def _withdraw_statement(epoch: Epoch, withdrawals: Sequence[Withdrawal]) -> Statement:
    return Statement(
        "withdraw",
        {
            "epoch": epoch,
            "ids": [each.workload for each in withdrawals],
            "states": [each.state for each in withdrawals],
            "requeue_state": [requeue_state_text(each.requeue_state) for each in withdrawals],
            "messages": [each.message for each in withdrawals],
            "jobids": [each.jobid for each in withdrawals],
            "ends": [each.end for each in withdrawals],
        },
    )


def _withdrawn_delta(withdrawals: Sequence[Withdrawal], rows: Sequence[Row]) -> Delta:
    done = set(_ids(rows))
    going_on = [each for each in withdrawals if each.workload in done]
    return Delta(
        workload_updates=tuple(
            WorkloadUpdate(
                id=each.workload,
                state=each.state,
                reason=Reason.NONE,
                message="",
                requeue_state=each.requeue_state,
            )
            for each in going_on
        ),
        allocation_updates=tuple(AllocationUpdate(jobid=each.jobid, end=each.end) for each in going_on),
    )


def _states_delta(changes: Mapping[WorkloadId, RequeueState], rows: Sequence[Row]) -> Delta:
    return Delta(
        workload_updates=tuple(
            WorkloadUpdate(id=workload, requeue_state=changes[workload]) for workload in _ids(rows)
        )
    )
