"""Planned starts of pending workloads: the first promise and the present one.

A promise outlives its process: the next leader puts it back into the graph before it matches anything, and people go on seeing the first
estimate beside the present one. It leaves the table when its workload is granted, ends, or is promised nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.queue.records import Epoch, FluxionJobId, Reservation, WorkloadId
from fluxqueue.queue.store.rows import Row, column, shares_of, shares_text
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Reservations"]


class Reservations(Transactions):
    """The part of the store about reservations."""

    async def plan(self, epoch: Epoch, made: Sequence[Reservation], given_up: Sequence[WorkloadId]) -> list[WorkloadId]:
        """Store reservations made or moved, and forget those given up.

        Returns
        -------
        list[WorkloadId]
            Workloads whose reservation is stored now. The others were not pending any more.
        """
        if not made and not given_up:
            return []
        _, rows = await self._write(
            epoch,
            Statement("unreserve", {"workloads": list(given_up)}),
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
        return [WorkloadId(row["workload"]) for row in rows]

    async def reservations(self) -> list[Reservation]:
        """All reservations of pending workloads, by their start."""
        return [_reservation_of(row) for row in await self._read("reservations")]


def _reservation_of(row: Row) -> Reservation:
    return Reservation(
        workload=WorkloadId(row["workload"]),
        jobid=FluxionJobId(row["jobid"]),
        first_start=row["first_at"],
        start=row["current_at"],
        end=row["ends_at"],
        shares=shares_of(row["shares"]),
        cause=row["cause"],
    )
