"""Retention: what has ended is deleted, first allocations with their slots, then the workload, at last its
history.

Each method is one short transaction over a bounded number of rows, oldest first, found by an index. The
caller repeats it until nothing is left. So a table of any size is pruned without a long transaction, and a
process that dies between two calls leaves rows for the next one. Pending and live work is never deleted: only
freed allocations, ended workloads and rows of ``history``.

The statement that deletes a workload or an allocation also writes its record for the accounting, so there is
exactly one of each, whenever a process dies. Records have a partition for each month; whole months expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fluxqueue.queue.model.records import Epoch, WorkloadId
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Forgotten", "Retention"]

_FOR_EVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """A row of ``history``: the workload of an object that ended long ago."""

    id: WorkloadId
    uid: str
    finished_at: datetime


class Retention(Transactions):
    """The part of the store about what is kept for how long."""

    async def prune_allocations(
        self, epoch: Epoch, before: datetime, *, allocations: int = 500, slots: int = 5_000
    ) -> tuple[int, int]:
        """Delete allocations that were freed before a time, with their slots; their workloads may have ended
        or not.

        Returns
        -------
        tuple
            How many allocations and slots were deleted; nothing is left once both are below their limits.
        """
        bounds = {"before": before, "allocations": allocations}
        _, gone_slots, gone_allocations = await self._write(
            epoch,
            Statement("make_months"),
            Statement("prune_slots", {**bounds, "slots": slots}),
            Statement("prune_allocations", bounds),
        )
        return gone_allocations[0]["pruned"], gone_slots[0]["pruned"]

    async def forget(self, epoch: Epoch, before: datetime, limit: int = 500) -> int:
        """Move workloads that ended before a time, and have no allocation left, to the table ``history``,
        without their jobspecs.

        Each gets its record. In ``history`` they keep their transitions, and the intake does not insert a
        workload for their objects again.

        Returns
        -------
        int
            How many were moved; there may be more while it is `limit`.
        """
        _, rows = await self._write(
            epoch, Statement("make_months"), Statement("forget", {"before": before, "limit": limit})
        )
        forgotten: int = rows[0]["forgotten"]
        return forgotten

    async def expire_months(self, epoch: Epoch, keep: int, *, drop: bool) -> list[str]:
        """Take months off the records that lie further back than `keep` whole months.

        Parameters
        ----------
        drop
            Drop them; otherwise they stay as tables of their own, for an export.

        Returns
        -------
        list[str]
            The tables as they are called now. A month that a reader keeps busy is left for the next call.
        """
        (rows,) = await self._write(epoch, Statement("expire_months", {"keep": keep, "drop": drop}))
        return [row["month"] for row in rows]

    async def forgotten(
        self, before: datetime, after: Forgotten | None = None, limit: int = 500
    ) -> list[Forgotten]:
        """Return rows of ``history`` that ended before a time, oldest first;
        those after the row `after` if that is given.
        """
        rows = await self._read(
            "forgotten",
            before=before,
            after_at=after.finished_at if after is not None else datetime.min.replace(tzinfo=UTC),
            after_id=after.id if after is not None else 0,
            limit=limit,
        )
        return [
            Forgotten(id=WorkloadId(row["id"]), uid=row["uid"], finished_at=row["finished_at"])
            for row in rows
        ]

    async def prune_transitions(
        self, epoch: Epoch, ids: Sequence[WorkloadId], before: datetime, limit: int = 5_000
    ) -> int:
        """Delete transitions of workloads from before a time, whatever their state is now;
        returns how many.
        """
        (rows,) = await self._write(
            epoch, Statement("prune_transitions", {"ids": list(ids), "before": before, "limit": limit})
        )
        pruned: int = rows[0]["pruned"]
        return pruned

    async def prune_history(
        self, epoch: Epoch, ids: Sequence[WorkloadId], *, transitions: int = 5_000
    ) -> tuple[list[WorkloadId], int]:
        """Delete rows of ``history`` with their transitions, of these no more than so many.

        Returns
        -------
        tuple
            The deleted workloads, and how many transitions were deleted. Repeat the call for those that are
            left.
        """
        pruned, gone = await self._write(
            epoch,
            Statement("prune_transitions", {"ids": list(ids), "before": _FOR_EVER, "limit": transitions}),
            Statement("prune_history", {"ids": list(ids)}),
        )
        return [WorkloadId(row["id"]) for row in gone], pruned[0]["pruned"]
