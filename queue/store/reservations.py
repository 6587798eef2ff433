"""Reservations: planned starts of pending workloads, the first one and the present one.

A reservation outlives its process. The next leader puts it back into the graph before it matches anything,
and people go on seeing the first estimate next to the present one. The row is deleted when its workload is
granted, ends, or has no planned start any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fluxqueue.queue.model.records import Epoch, FluxionJobId, Reservation, WorkloadId
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.rows import Row, column, shares_of, shares_text
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Reservations", "reservation_of"]


class Reservations(Transactions):
    """The part of the store about reservations."""

    async def reserve(
        self, epoch: Epoch, made: Sequence[Reservation], dropped: Sequence[WorkloadId]
    ) -> Delta:
        """Store reservations that were made or moved, and delete those of some workloads.

        Returns
        -------
        Delta
            Without the reservations of workloads that were not pending any more.
        """
        if not made and not dropped:
            return Delta()
        _, rows = await self._write(
            epoch,
            Statement("unreserve", {"workloads": list(dropped)}),
            Statement(
                "reserve",
                {
                    "workloads": column(made, lambda each: each.workload),
                    "jobids": column(made, lambda each: each.jobid),
                    "firsts": column(made, lambda each: each.first_start),
                    "starts": column(made, lambda each: each.start),
                    "ends": column(made, lambda each: each.end),
                    "shares": column(made, lambda each: shares_text(each.shares)),
                    "causes": column(made, lambda each: each.cause),
                },
            ),
        )
        stored = {each.workload: each for each in made}
        return Delta(
            reservations=tuple(replace(stored[row["workload"]], first_start=row["first_at"]) for row in rows),
            unreserved=tuple(dropped),
        )

    async def reservations(self) -> list[Reservation]:
        """Return all reservations of pending workloads, by their start."""
        return [reservation_of(row) for row in await self._read("reservations")]


def reservation_of(row: Row) -> Reservation:
    """Return a row of the table as a reservation."""
    return Reservation(
        workload=WorkloadId(row["workload"]),
        jobid=FluxionJobId(row["jobid"]),
        first_start=row["first_at"],
        start=row["current_at"],
        end=row["ends_at"],
        shares=shares_of(row["shares"]),
        cause=row["cause"],
    )
