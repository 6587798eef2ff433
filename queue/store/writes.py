"""Writes of the tracker: each is some statements and the delta that follows from their rows, so several can
be one transaction.

A pod that is bound takes a slot and starts its workload, and the end of a pod may end a slot and a workload.
As transactions of their own these would cost a fence, a commit and a round trip each. Together they keep the
order of locks (workloads, allocations, slots).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import psycopg

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.changes import Ending, SlotWrites, TakenSlot
from fluxqueue.queue.model.records import Epoch, FluxionJobId, SlotState, WorkloadId
from fluxqueue.queue.model.states import ENDED, sources
from fluxqueue.queue.store.deltas import AllocationUpdate, Delta, SlotUpdate, WorkloadUpdate
from fluxqueue.queue.store.errors import IllegalTransition, PodAlreadyPlaced
from fluxqueue.queue.store.rows import Row, column
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Writes", "ending_slots", "finishing", "moving", "releasing", "taking", "vacating"]


class _Write(NamedTuple):
    """Statements, the last of which returns the rows of the delta."""

    statements: tuple[Statement, ...]
    delta: Callable[[Sequence[Row]], Delta]


class Writes(Transactions):
    """Transactions of one or several writes."""

    async def write_slots(self, epoch: Epoch, writes: SlotWrites) -> list[Delta]:
        """Write what the tracker found, in one transaction.

        Returns
        -------
        list[Delta]
            To be applied in this order.

        Raises
        ------
        PodAlreadyPlaced, IllegalTransition
            Nothing is written.
        """
        ended = [slot for slot in writes.ended if slot[0] not in writes.finished]
        parts = [
            *([moving(epoch, writes.started, State.RUNNING)] if writes.started else ()),
            *([moving(epoch, writes.draining, State.DRAINING)] if writes.draining else ()),
            *([_locking(writes.endings)] if writes.endings else ()),
            *([releasing(writes.released)] if writes.released else ()),
            *([vacating(writes.vacated)] if writes.vacated else ()),
            *([taking(writes.taken)] if writes.taken else ()),
            *([ending_slots(ended)] if ended else ()),
            *([finishing(epoch, writes.endings)] if writes.endings else ()),
        ]
        return await self._write_together(epoch, *parts) if parts else []

    async def _write_together(self, epoch: Epoch, *writes: _Write) -> list[Delta]:
        """Return the delta of each write of a transaction."""
        try:
            rows = iter(
                await self._write(epoch, *(statement for write in writes for statement in write.statements))
            )
        except psycopg.errors.UniqueViolation as error:
            raise PodAlreadyPlaced(f"no slot was taken: {error.diag.message_detail}") from None
        return [write.delta([next(rows) for _ in write.statements][-1]) for write in writes]


def moving(epoch: Epoch, ids: Sequence[WorkloadId], after: State) -> _Write:
    """Return the write that moves workloads to Running or Draining.
    What drains only goes on if its preemption is withdrawn.
    """
    statement = Statement(
        "move",
        {"ids": list(ids), "after": after, "from": list(sources(after) - {State.DRAINING}), "epoch": epoch},
    )

    def delta(rows: Sequence[Row]) -> Delta:
        return Delta(
            workload_updates=tuple(
                WorkloadUpdate(
                    id=row["id"], state=after, reason=Reason.NONE, message="", started_at=row["started_at"]
                )
                for row in rows
            )
        )

    return _Write((statement,), delta)


def releasing(jobids: Sequence[FluxionJobId]) -> _Write:
    """Return the write that records that the objects of live allocations were released;
    this clears a ``ReleaseFailed``.
    """

    def delta(rows: Sequence[Row]) -> Delta:
        return Delta(
            allocation_updates=tuple(
                AllocationUpdate(jobid=row["jobid"], released_at=row["released_at"]) for row in rows
            ),
            workload_updates=tuple(
                WorkloadUpdate(id=row["recovered"], reason=Reason.NONE, message="")
                for row in rows
                if row["recovered"] is not None
            ),
        )

    return _Write((Statement("mark_released", {"jobids": list(jobids)}),), delta)


def vacating(vacated: Sequence[tuple[FluxionJobId, int, str]]) -> _Write:
    """Return the write that makes slots free again that still hold the pod of this uid."""
    statement = Statement("vacate_slots", _slots(vacated) | {"pod_uids": [uid for _, _, uid in vacated]})

    def delta(rows: Sequence[Row]) -> Delta:
        return Delta(
            slot_updates=tuple(
                SlotUpdate(jobid=row["jobid"], rank=row["rank"], state=SlotState.FREE) for row in rows
            )
        )

    return _Write((statement,), delta)


def taking(taken: Sequence[TakenSlot]) -> _Write:
    """Return the write that puts pods into free slots."""
    slots = {"jobids": column(taken, lambda slot: slot.jobid), "ranks": column(taken, lambda slot: slot.rank)}
    pods = slots | {"pod_uids": column(taken, lambda slot: slot.pod_uid)}
    statements = (
        Statement("lock_allocations", {"jobids": slots["jobids"]}),
        Statement("take_slots", pods | {"pod_names": column(taken, lambda slot: slot.pod_name)}),
        Statement("slots_held", pods),
    )

    def delta(rows: Sequence[Row]) -> Delta:
        return Delta(
            slot_updates=tuple(
                SlotUpdate(
                    jobid=row["jobid"],
                    rank=row["rank"],
                    state=SlotState.TAKEN,
                    pod_uid=row["pod_uid"],
                    pod_name=row["pod_name"],
                )
                for row in rows
            )
        )

    return _Write(statements, delta)


def ending_slots(ended: Sequence[tuple[FluxionJobId, int]]) -> _Write:
    """Return the write that ends slots; the last one frees its allocation."""
    slots = _slots(ended)

    def delta(rows: Sequence[Row]) -> Delta:
        return Delta(
            slot_updates=tuple(
                SlotUpdate(jobid=jobid, rank=rank, state=SlotState.ENDED)
                for jobid, rank in dict.fromkeys(ended)
            ),
            freed=tuple(FluxionJobId(row["jobid"]) for row in rows),
        )

    return _Write(
        (Statement("lock_allocations", {"jobids": slots["jobids"]}), Statement("end_slots", slots)), delta
    )


def finishing(epoch: Epoch, endings: Sequence[Ending]) -> _Write:
    """Return the write that ends workloads in whatever state they are;
    raises `IllegalTransition` if a state is not a final one.
    """
    for each in endings:
        if each.state not in ENDED or each.outcome is Outcome.NONE:
            raise IllegalTransition(
                f"workload {each.workload} cannot end as {each.state} with outcome {each.outcome or 'none'!s}"
            )
    first = list({each.workload: each for each in reversed(endings)}.values())
    statement = Statement(
        "finish",
        {
            "epoch": epoch,
            "ids": column(first, lambda each: each.workload),
            "states": column(first, lambda each: each.state),
            "outcomes": column(first, lambda each: each.outcome),
            "messages": column(first, lambda each: each.message),
            "began": column(first, lambda each: each.began_at),
            "from": list(sources(State.COMPLETED)),
        },
    )

    def delta(rows: Sequence[Row]) -> Delta:
        ended = tuple(each.workload for each in first)
        times = {row["id"]: (row["started_at"], row["finished_at"]) for row in rows if row["id"] is not None}
        return Delta(
            ended=ended,
            endings=tuple(
                (replace(each, began_at=at[0]), at[1])
                for each in first
                if (at := times.get(each.workload)) is not None
            ),
            unreserved=ended,
            freed=tuple(FluxionJobId(row["jobid"]) for row in rows if row["jobid"] is not None),
        )

    return _Write((statement,), delta)


def _locking(endings: Sequence[Ending]) -> _Write:
    """Return the write that only locks the workloads that are to end."""
    return _Write(
        (Statement("lock_workloads", {"ids": column(endings, lambda each: each.workload)}),),
        lambda _rows: Delta(),
    )


def _slots(named: Sequence[tuple[FluxionJobId, int, *tuple[str, ...]]]) -> dict[str, list[Any]]:
    """Return the columns of job ids and ranks."""
    return {"jobids": [slot[0] for slot in named], "ranks": [slot[1] for slot in named]}
