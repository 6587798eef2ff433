"""Allocations and their slots: stored before anything is released, freed once and only once.

Every method first locks what it changes, in one order (workloads, allocations, slots), as a statement of its own; the statements
after it therefore see what was committed while it waited. Two calls that each end one of an allocation's last two slots cannot both
think the other's is still standing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg

from fluxqueue.api import hostlists, names
from fluxqueue.queue.records import Allocation, Epoch, FluxionJobId, Grant, Inheritance, Workload, WorkloadId
from fluxqueue.queue.states import LIVE
from fluxqueue.queue.store.errors import PodAlreadyPlaced
from fluxqueue.queue.store.rows import Row, allocation_of, column, shares_text, workload_of
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Allocations"]


class Allocations(Transactions):
    """The part of the store about allocations, releases and slots."""

    async def next_jobids(self, n: int) -> list[FluxionJobId]:
        """`n` Fluxion job ids nobody else gets."""
        return [FluxionJobId(row["jobid"]) for row in await self._read("next_jobids", n=n)]

    async def grant(self, epoch: Epoch, grants: Sequence[Grant]) -> list[WorkloadId]:
        """Store what the matcher granted: allocation, slots, Pending to Allocated, due for release at once.

        Repeating a stored grant stores nothing and reports it as stored.

        Returns
        -------
        list[WorkloadId]
            Workloads that hold their grant now. The others were not pending any more, or edited: their job is the caller's to cancel.
        """
        if not grants:
            return []
        slots = [(grant.jobid, rank, node) for grant in grants for rank, node in enumerate(grant.hosts)]
        _, rows = await self._write(
            epoch,
            Statement("lock_workloads", {"ids": column(grants, lambda grant: grant.workload)}),
            Statement(
                "grant",
                {
                    "epoch": epoch,
                    "jobids": column(grants, lambda grant: grant.jobid),
                    "workloads": column(grants, lambda grant: grant.workload),
                    "shares": column(grants, lambda grant: shares_text(grant.shares)),
                    "starts": column(grants, lambda grant: grant.start),
                    "ends": column(grants, lambda grant: grant.end),
                    "hosts": column(grants, lambda grant: hostlists.encode(grant.hosts)),
                    "generations": column(grants, lambda grant: grant.generation),
                    "slot_jobids": [jobid for jobid, _, _ in slots],
                    "slot_ranks": [rank for _, rank, _ in slots],
                    "slot_nodes": [node for _, _, node in slots],
                    "no_node": names.NO_NODE,
                },
            ),
        )
        return [WorkloadId(row["workload"]) for row in rows]

    async def skip_jobids(self, epoch: Epoch, last: FluxionJobId) -> None:
        """Give out no id up to this one any more: some object carries it, though the tables may be older than that."""
        await self._write(epoch, Statement("skip_jobids", {"last": last}))

    async def claim_releases(self, epoch: Epoch, limit: int, retry_after_s: float) -> list[tuple[Workload, Allocation]]:
        """Take allocations that are due for release; no other claim gets them for `retry_after_s` seconds.

        Returns
        -------
        list[tuple[Workload, Allocation]]
            Oldest first, ``release_attempts`` counting this one. Only of Allocated workloads.
        """
        (rows,) = await self._write(epoch, Statement("claim_releases", {"limit": limit, "retry_after_s": retry_after_s}))
        return [(workload_of(row), allocation_of(row)) for row in rows]

    async def next_release_at(self) -> datetime | None:
        """When the next release is due (may be past); None if nothing waits for release."""
        at: datetime | None = (await self._read("next_release_at"))[0]["at"]
        return at

    async def void_claims(self, epoch: Epoch) -> list[FluxionJobId]:
        """Make due at once what a former leader had claimed for release; returns their job ids."""
        (rows,) = await self._write(epoch, Statement("void_claims"))
        return _jobids(rows)

    async def released(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> list[FluxionJobId]:
        """Note that the objects of these live allocations were let go; returns those for which it was news."""
        (rows,) = await self._write(epoch, Statement("released", {"jobids": list(jobids)}))
        return _jobids(rows)

    async def release_failed(self, epoch: Epoch, jobid: FluxionJobId, message: str) -> None:
        """Note why a release did not work: the workload says so (reason ``ReleaseFailed``) until it does."""
        await self._write(epoch, Statement("release_failed", {"jobid": jobid, "message": message}))

    async def release_again(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> list[FluxionJobId]:
        """Make refused releases due now instead of when their claim runs out; returns those that were."""
        (rows,) = await self._write(epoch, Statement("release_again", {"jobids": list(jobids)}))
        return _jobids(rows)

    async def release_soon(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> list[FluxionJobId]:
        """Make claimed releases due 1 s from now, 2 s after the second attempt, then 4, 8, ..., but no later than their claim runs out."""
        (rows,) = await self._write(epoch, Statement("release_soon", {"jobids": list(jobids)}))
        return _jobids(rows)

    async def live_allocations(self) -> list[Allocation]:
        """All allocations that hold something, with their slots, by job id."""
        return await self._records(allocation_of, "live_allocations")

    async def allocations(self, jobids: Sequence[FluxionJobId]) -> list[Allocation]:
        """These allocations, live or freed, with their slots, by job id."""
        return [allocation_of(row) for row in await self._read("allocations", jobids=list(jobids))]

    async def move_ends(self, epoch: Epoch, ends: Sequence[tuple[FluxionJobId, datetime]]) -> list[FluxionJobId]:
        """Move the planned ends of live allocations (an overrun); returns those that were moved."""
        latest = dict(ends)
        (rows,) = await self._write(epoch, Statement("move_ends", {"jobids": list(latest), "ends": list(latest.values())}))
        return _jobids(rows)

    async def take_slots(self, epoch: Epoch, taken: Sequence[tuple[FluxionJobId, int, str, str]]) -> list[tuple[FluxionJobId, int]]:
        """Put pods into free slots.

        Parameters
        ----------
        epoch
            Of the leader.
        taken
            Job id, rank, pod uid and pod name.

        Returns
        -------
        list[tuple[FluxionJobId, int]]
            The slots in which the given pod stands now. A slot that another pod holds, that ended or is of a freed allocation is left
            out, and so is a pod that stands elsewhere.

        Raises
        ------
        PodAlreadyPlaced
            If one call gives a pod two slots, or two calls at the same moment do.
        """
        slots = _slots(taken)
        pods = slots | {"pod_uids": [uid for _, _, uid, _ in taken]}
        try:
            _, _, rows = await self._write(
                epoch,
                Statement("lock_allocations", {"jobids": slots["jobids"]}),
                Statement("take_slots", pods | {"pod_names": [name for _, _, _, name in taken]}),
                Statement("slots_held", pods),
            )
        except psycopg.errors.UniqueViolation as error:
            raise PodAlreadyPlaced(f"no slot was taken: {error.diag.message_detail}") from None
        return [(FluxionJobId(row["jobid"]), row["rank"]) for row in rows]

    async def vacate_slots(self, epoch: Epoch, vacated: Sequence[tuple[FluxionJobId, int, str]]) -> list[tuple[FluxionJobId, int]]:
        """Make slots (job id, rank) free again that still hold the pod of this uid; returns those that were."""
        (rows,) = await self._write(epoch, Statement("vacate_slots", _slots(vacated) | {"pod_uids": [uid for _, _, uid in vacated]}))
        return [(FluxionJobId(row["jobid"]), row["rank"]) for row in rows]

    async def end_slots(self, epoch: Epoch, ended: Sequence[tuple[FluxionJobId, int]]) -> list[FluxionJobId]:
        """End slots (job id, rank): no pod follows in them. The last one frees its allocation.

        Returns
        -------
        list[FluxionJobId]
            Allocations freed by this call.
        """
        slots = _slots(ended)
        _, rows = await self._write(epoch, Statement("lock_allocations", {"jobids": slots["jobids"]}), Statement("end_slots", slots))
        return _jobids(rows)

    async def inherit(self, epoch: Epoch, inheritances: Sequence[Inheritance]) -> list[WorkloadId]:
        """End workloads, each of which leaves its allocation, as it is, to a pending one; returns the heirs that have it now.

        The slots are free again, and the allocation is due for release. An heir that is not pending any more, or was named twice, leaves
        the other workload as it stands.
        """
        latest = list({each.heir: each for each in inheritances}.values())
        if not latest:
            return []
        _, rows = await self._write(
            epoch,
            Statement("lock_workloads", {"ids": [found for each in latest for found in (each.gone, each.heir)]}),
            Statement(
                "inherit",
                {
                    "epoch": epoch,
                    "gone": column(latest, lambda each: each.gone),
                    "heirs": column(latest, lambda each: each.heir),
                    "states": column(latest, lambda each: each.state),
                    "outcomes": column(latest, lambda each: each.outcome),
                    "messages": column(latest, lambda each: each.message),
                    "from": list(LIVE),
                },
            ),
        )
        return [WorkloadId(row["heir"]) for row in rows]


def _jobids(rows: Sequence[Row]) -> list[FluxionJobId]:
    return [FluxionJobId(row["jobid"]) for row in rows]


def _slots(named: Sequence[tuple[FluxionJobId, int, *tuple[str, ...]]]) -> dict[str, list[Any]]:
    """The columns of job ids and ranks."""
    return {"jobids": [slot[0] for slot in named], "ranks": [slot[1] for slot in named]}
