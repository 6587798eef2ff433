"""Workloads: found, waiting, moved along their states, remembered.

The intake is level-triggered and repeats itself, so `upsert` compares what it says now with what it said before (``found_reason``,
the specification), never with what the scheduler wrote since: a sweep over unchanged objects changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from operator import attrgetter

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.records import (
    UNREAD,
    Epoch,
    FluxionJobId,
    NewWorkload,
    PutBack,
    ReasonChange,
    StoredNow,
    TakeBack,
    Transition,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.states import ENDED, LIVE, sources
from fluxqueue.queue.store.errors import IllegalTransition
from fluxqueue.queue.store.rows import Counts, Row, column, setbacks_text, transition_of, wishes_text, workload_of
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Workloads"]

_FOUND = tuple(each.name for each in fields(NewWorkload))


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
        latest = list({new.uid: new for new in found}.values())
        if not latest:
            return []
        columns = {name: column(latest, attrgetter(name)) for name in _FOUND}
        columns["wishes"] = column(latest, lambda new: wishes_text(new.wishes))
        stored, rows = await self._write(
            epoch,
            Statement("upsert", columns | {"epoch": epoch}),
            Statement("workloads_by_uid", {"uid": columns["uid"]}),
        )
        inserted = {row["uid"]: row["inserted"] for row in stored}
        now = {
            row["uid"]: StoredNow(workload=workload_of(row), inserted=inserted.get(row["uid"], False), changed=row["uid"] in inserted)
            for row in rows
        }
        return [now[new.uid] for new in found]

    async def pending(self) -> list[Workload]:
        """All pending workloads in policy order: priority descending, submit time, id."""
        return await self._records(workload_of, "pending")

    async def live_workloads(self) -> list[Workload]:
        """Workloads that are Allocated, Running or Draining, by id."""
        return await self._records(workload_of, "live_workloads")

    async def workloads(self, ids: Sequence[WorkloadId]) -> list[Workload]:
        """The workloads of these ids that exist, by id; forgotten ones come without their jobspec."""
        return [workload_of(row) for row in await self._read("workloads", ids=list(ids))]

    async def workload_by_uid(self, uid: str) -> Workload | None:
        """The workload of an object, be it forgotten; None if it was never taken in."""
        rows = await self._read("workloads_by_uid", uid=[uid])
        return workload_of(rows[0]) if rows else None

    async def workloads_by_uid(self, uids: Sequence[str]) -> list[Workload]:
        """The workloads of these objects that were ever taken in, in no particular order; forgotten ones come without their jobspec."""
        return [workload_of(row) for row in await self._read("workloads_by_uid", uid=list(uids))]

    async def set_reasons(self, epoch: Epoch, changes: Sequence[ReasonChange], *, live: bool = False) -> list[WorkloadId]:
        """Say why workloads wait.

        Parameters
        ----------
        epoch
            Of the leader.
        changes
            Reason and message by workload.
        live
            Speak of Allocated, Running and Draining workloads (``BindFailed``) instead of pending ones.

        Returns
        -------
        list[WorkloadId]
            Those that were written: in such a state, and with another reason or message before.
        """
        latest = list({change.workload: change for change in changes}.values())
        if not latest:
            return []
        (rows,) = await self._write(
            epoch,
            Statement(
                "set_reasons",
                {
                    "ids": column(latest, lambda change: change.workload),
                    "reasons": column(latest, lambda change: change.reason),
                    "messages": column(latest, lambda change: change.message),
                    "states": list(LIVE) if live else [State.PENDING],
                },
            ),
        )
        return _ids(rows)

    async def started(self, epoch: Epoch, ids: Sequence[WorkloadId]) -> list[WorkloadId]:
        """Move Allocated workloads to Running; returns those that were moved."""
        return await self._move(epoch, ids, State.RUNNING)

    async def draining(self, epoch: Epoch, ids: Sequence[WorkloadId]) -> list[WorkloadId]:
        """Move Allocated and Running workloads to Draining; returns those that were moved."""
        return await self._move(epoch, ids, State.DRAINING)

    async def _move(self, epoch: Epoch, ids: Sequence[WorkloadId], after: State) -> list[WorkloadId]:
        (rows,) = await self._write(
            epoch, Statement("move", {"ids": list(ids), "after": after, "from": list(sources(after)), "epoch": epoch})
        )
        return _ids(rows)

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
        for workload, state, outcome, _ in ends:
            if state not in ENDED or outcome is Outcome.NONE:
                raise IllegalTransition(f"workload {workload} cannot end as {state} with outcome {outcome or 'none'!s}")
        first = {workload: (state, outcome, message) for workload, state, outcome, message in reversed(ends)}
        _, rows = await self._write(
            epoch,
            Statement("lock_workloads", {"ids": list(first)}),
            Statement(
                "finish",
                {
                    "epoch": epoch,
                    "ids": list(first),
                    "states": [state for state, _, _ in first.values()],
                    "outcomes": [outcome for _, outcome, _ in first.values()],
                    "messages": [message for _, _, message in first.values()],
                    "from": list(sources(State.COMPLETED)),
                },
            ),
        )
        return [FluxionJobId(row["jobid"]) for row in rows]

    async def take_back(self, epoch: Epoch, wanted: Sequence[TakeBack]) -> list[WorkloadId]:
        """Move Allocated and Running workloads to Draining and note why they are to wait again; returns those that do."""
        latest = list({each.workload: each for each in wanted}.values())
        (rows,) = await self._write(
            epoch,
            Statement(
                "take_back",
                {
                    "epoch": epoch,
                    "ids": column(latest, lambda each: each.workload),
                    "reasons": column(latest, lambda each: each.reason),
                    "messages": column(latest, lambda each: each.message),
                    "setbacks": column(latest, lambda each: setbacks_text(each.setbacks)),
                    "from": list(sources(State.DRAINING)),
                },
            ),
        )
        return _ids(rows)

    async def requeue(self, epoch: Epoch, backs: Sequence[PutBack]) -> tuple[list[WorkloadId], list[FluxionJobId]]:
        """Let Allocated and Draining workloads wait again: submit time kept, requeues counted, allocations freed.

        An allocation of which slots are kept becomes a remnant that holds those and nothing else, until they end.

        Returns
        -------
        tuple
            The workloads that wait now, and the allocations freed by this call, to be cancelled in the matcher.
        """
        latest = list({each.workload: each for each in backs}.values())
        kept = [slot for each in latest for slot in each.kept]
        _, rows = await self._write(
            epoch,
            Statement("lock_workloads", {"ids": column(latest, lambda each: each.workload)}),
            Statement(
                "requeue",
                {
                    "epoch": epoch,
                    "ids": column(latest, lambda each: each.workload),
                    "reasons": column(latest, lambda each: each.reason),
                    "messages": column(latest, lambda each: each.message),
                    "kept_jobids": [jobid for jobid, _ in kept],
                    "kept_ranks": [rank for _, rank in kept],
                    "from": list(sources(State.PENDING) & LIVE),
                    "unread": UNREAD,
                },
            ),
        )
        return list(dict.fromkeys(_ids(rows))), [FluxionJobId(row["jobid"]) for row in rows if row["freed"]]

    async def take_up_again(self, epoch: Epoch, uids: Sequence[str]) -> list[Workload]:
        """Let cancelled workloads wait once more: submitted now, with no wish of anybody; returns those that were cancelled."""
        _, rows = await self._write(
            epoch,
            Statement("take_up_again", {"epoch": epoch, "uids": list(uids)}),
            Statement("workloads_by_uid", {"uid": list(uids)}),
        )
        return [found for found in map(workload_of, rows) if found.state is State.PENDING]

    async def history(self, workload: WorkloadId) -> list[Transition]:
        """All a workload went through, oldest first; also after it was forgotten."""
        return [transition_of(row) for row in await self._read("history", workload=workload)]

    async def forget(self, epoch: Epoch, before: datetime, limit: int = 10_000) -> int:
        """Move workloads that ended before a time to the table ``history``, without their jobspecs, allocations and slots.

        Their transitions stay, and so does the memory that their object was served: it is not taken in again.

        Returns
        -------
        int
            How many were moved; ask again while it is `limit`.
        """
        (rows,) = await self._write(epoch, Statement("forget", {"before": before, "limit": limit}))
        forgotten: int = rows[0]["forgotten"]
        return forgotten

    async def counts(self) -> list[Counts]:
        """Workloads and slots wanted by queue, state and reason: for metrics. Forgotten ones are not counted."""
        return [
            Counts(
                queue=row["queue"], state=State(row["state"]), reason=Reason(row["reason"]), workloads=row["workloads"], pods=row["pods"]
            )
            for row in await self._read("counts")
        ]


def _ids(rows: Sequence[Row]) -> list[WorkloadId]:
    return [WorkloadId(row["id"]) for row in rows]
