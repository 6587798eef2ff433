"""Allocations and their slots: stored before anything is released, and freed exactly once.

Every method first locks what it changes, in one order (workloads, allocations, slots), in a statement of its
own. The statements after it therefore see what was committed while it waited. So of two calls that each end
one of an allocation's last two slots, one frees it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.changes import Replacement, TakenSlot
from fluxqueue.queue.model.records import Allocation, Epoch, FluxionJobId, Grant, SlotState, Workload
from fluxqueue.queue.model.states import LIVE
from fluxqueue.queue.store.deltas import (
    AllocationUpdate,
    Delta,
    SlotUpdate,
    WorkloadUpdate,
    granted_allocation,
    granted_workload,
)
from fluxqueue.queue.store.rows import Row, allocation_of, column, rates_text, shares_text, workload_of
from fluxqueue.queue.store.transactions import Statement
from fluxqueue.queue.store.writes import Writes, ending_slots, releasing, taking, vacating

__all__ = ["Allocations"]


class Allocations(Writes):
    """The part of the store about allocations, releases and slots."""

    async def next_jobids(self, n: int) -> list[FluxionJobId]:
        """Return `n` Fluxion job ids that nobody else gets."""
        return _jobids(await self._read("next_jobids", n=n))

    async def skip_jobids(self, epoch: Epoch, last: FluxionJobId) -> None:
        """Give out no id up to this one any more: an object carries it, although the tables may be older than
        that.

        If the tables are older, the next ten thousand ids are left out as well, for objects whose ids cannot
        be believed.
        """
        await self._write(epoch, Statement("skip_jobids", {"last": last}))

    async def grant(self, epoch: Epoch, grants: Sequence[Grant], claimed_s: float = 0.0) -> Delta:
        """Store what the matcher granted: allocation, slots, Pending to Allocated, due for release at once.

        Repeating a stored grant stores nothing, and returns the rows as they are.

        Parameters
        ----------
        epoch
            Of the leader.
        grants
            Each for a workload of its own.
        claimed_s
            The caller releases them itself: for so many seconds no claim gets them, and this is the first
            attempt.

        Returns
        -------
        Delta
            ``allocations`` has those that hold what was granted. The other workloads were not pending any
            more, or were edited: the caller cancels their jobs.
        """
        if not grants:
            return Delta()
        _, rows = await self._write(
            epoch,
            Statement("lock_workloads", {"ids": column(grants, lambda grant: grant.workload)}),
            Statement("grant", {"epoch": epoch, **_columns_of(grants), "claimed_s": claimed_s}),
        )
        granted = {grant.jobid: grant for grant in grants}
        new = [(granted[row["jobid"]], row) for row in rows if row["allocated_at"] is not None]
        repeated = [granted[row["jobid"]] for row in rows if row["allocated_at"] is None]
        delta = Delta(
            workload_updates=tuple(
                granted_workload(grant, row["allocated_at"], row["promised_at"]) for grant, row in new
            ),
            allocations=tuple(
                granted_allocation(grant, row["allocated_at"], claimed=claimed_s > 0) for grant, row in new
            ),
            unreserved=tuple(grant.workload for grant, _ in new),
        )
        if not repeated:
            return delta
        workloads = [
            workload_of(row)
            for row in await self._read("workloads", ids=column(repeated, lambda grant: grant.workload))
        ]
        allocations = await self.allocations(column(repeated, lambda grant: grant.jobid))
        return dataclasses.replace(
            delta, workloads=tuple(workloads), allocations=(*delta.allocations, *allocations)
        )

    async def claim_releases(
        self, epoch: Epoch, limit: int, retry_after_s: float
    ) -> list[tuple[Workload, Allocation]]:
        """Take allocations that are due for release; no other claim gets them for `retry_after_s` seconds.

        Returns
        -------
        list[tuple[Workload, Allocation]]
            Oldest first, ``release_attempts`` counting this one. Only of Allocated workloads.
        """
        (rows,) = await self._write(
            epoch, Statement("claim_releases", {"limit": limit, "retry_after_s": retry_after_s})
        )
        return [(workload_of(row), allocation_of(row)) for row in rows]

    async def next_release_at(self) -> datetime | None:
        """Return when the next release is due (may be past); None if nothing waits for release."""
        at: datetime | None = (await self._read("next_release_at"))[0]["at"]
        return at

    async def void_claims(self, epoch: Epoch) -> list[FluxionJobId]:
        """Make due at once what a former leader had claimed for release; returns their job ids."""
        (rows,) = await self._write(epoch, Statement("void_claims"))
        return _jobids(rows)

    async def mark_released(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> Delta:
        """Record that the objects of these live allocations were released;
        this clears a ``ReleaseFailed``.
        """
        (delta,) = await self._write_together(epoch, releasing(jobids))
        return delta

    async def mark_release_failed(self, epoch: Epoch, jobid: FluxionJobId, message: str) -> Delta:
        """Record why a release failed: the workload has the reason ``ReleaseFailed`` until one succeeds."""
        (rows,) = await self._write(
            epoch, Statement("mark_release_failed", {"jobid": jobid, "message": message})
        )
        return Delta(
            workload_updates=tuple(
                WorkloadUpdate(id=row["id"], reason=Reason.RELEASE_FAILED, message=message) for row in rows
            )
        )

    async def retry_releases(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> list[FluxionJobId]:
        """Make failed releases due now instead of when their claim ends; returns those that were."""
        (rows,) = await self._write(epoch, Statement("retry_releases", {"jobids": list(jobids)}))
        return _jobids(rows)

    async def retry_releases_soon(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> list[FluxionJobId]:
        """Make claimed releases due 1 s from now, 2 s after the second attempt, then 4, 8, ...,
        but no later than their claim ends.
        """
        (rows,) = await self._write(epoch, Statement("retry_releases_soon", {"jobids": list(jobids)}))
        return _jobids(rows)

    async def live_allocations(self) -> list[Allocation]:
        """Return all allocations that hold something, with their slots, by job id."""
        return await self._records(allocation_of, "live_allocations")

    async def allocations(self, jobids: Sequence[FluxionJobId]) -> list[Allocation]:
        """Return these allocations, live or freed, with their slots, by job id."""
        return [allocation_of(row) for row in await self._read("allocations", jobids=list(jobids))]

    async def move_ends(self, epoch: Epoch, ends: Sequence[tuple[FluxionJobId, datetime]]) -> Delta:
        """Move the planned ends of live allocations, because they overrun."""
        latest = dict(ends)
        (rows,) = await self._write(
            epoch, Statement("move_ends", {"jobids": list(latest), "ends": list(latest.values())})
        )
        return Delta(
            allocation_updates=tuple(
                AllocationUpdate(jobid=jobid, end=latest[jobid]) for jobid in _jobids(rows)
            )
        )

    async def take_slots(self, epoch: Epoch, taken: Sequence[TakenSlot]) -> Delta:
        """Put pods into free slots.

        Returns
        -------
        Delta
            The slots that hold the given pod now. A slot that another pod holds, that ended or belongs to a
            freed allocation is left out, and so is a pod that holds another slot.

        Raises
        ------
        PodAlreadyPlaced
            If one call gives a pod two slots, or two concurrent calls do.
        """
        return (await self._write_together(epoch, taking(taken)))[0]

    async def vacate_slots(self, epoch: Epoch, vacated: Sequence[tuple[FluxionJobId, int, str]]) -> Delta:
        """Make slots (job id, rank) free again that still hold the pod of this uid."""
        return (await self._write_together(epoch, vacating(vacated)))[0]

    async def end_slots(self, epoch: Epoch, ended: Sequence[tuple[FluxionJobId, int]]) -> Delta:
        """End slots (job id, rank): no pod follows in them. The last one frees its allocation.

        Returns
        -------
        Delta
            The slots that have ended, by this call or before, and the allocations that this call freed.
        """
        return (await self._write_together(epoch, ending_slots(ended)))[0]

    async def replace(self, epoch: Epoch, replacements: Sequence[Replacement]) -> Delta:
        """End workloads, each of which passes its allocation to a pending one.

        The slots are free again, and the allocation is due for release. What the first had until now is
        recorded. If the replacement is not pending any more, or is named twice, the other workload stays as
        it is.
        """
        latest = list({each.replacement: each for each in replacements}.values())
        if not latest:
            return Delta()
        *_, rows = await self._write(
            epoch,
            Statement("make_months"),
            Statement(
                "lock_workloads",
                {"ids": [workload for each in latest for workload in (each.replaced, each.replacement)]},
            ),
            Statement(
                "replace",
                {
                    "epoch": epoch,
                    "replaced": column(latest, lambda each: each.replaced),
                    "replacements": column(latest, lambda each: each.replacement),
                    "states": column(latest, lambda each: each.state),
                    "outcomes": column(latest, lambda each: each.outcome),
                    "messages": column(latest, lambda each: each.message),
                    "rates": column(latest, lambda each: rates_text(each.rates)),
                    "from": list(LIVE),
                },
            ),
        )
        return _taken_over(rows)


def _jobids(rows: Sequence[Row]) -> list[FluxionJobId]:
    return [FluxionJobId(row["jobid"]) for row in rows]


def _taken_over(rows: Sequence[Row]) -> Delta:
    return Delta(
        ended=tuple(row["replaced"] for row in rows),
        workload_updates=tuple(
            WorkloadUpdate(
                id=row["replacement"],
                state=State.ALLOCATED,
                reason=Reason.NONE,
                message="",
                allocated_at=row["allocated_at"],
                jobid=row["jobid"],
                hosts=row["hosts"],
            )
            for row in rows
        ),
        allocation_updates=tuple(
            AllocationUpdate(
                jobid=row["jobid"],
                workload=row["replacement"],
                granted_at=row["granted_at"],
                released_at=None,
                release_attempts=0,
            )
            for row in rows
        ),
        slot_updates=tuple(
            SlotUpdate(jobid=row["jobid"], rank=rank, state=SlotState.FREE)
            for row in rows
            for rank in row["emptied"]
        ),
        unreserved=tuple(row["replacement"] for row in rows),
    )


def _columns_of(grants: Sequence[Grant]) -> dict[str, Any]:
    slots = [(grant.jobid, rank, node) for grant in grants for rank, node in enumerate(grant.hosts)]
    return {
        "jobids": column(grants, lambda grant: grant.jobid),
        "workloads": column(grants, lambda grant: grant.workload),
        "shares": column(grants, lambda grant: shares_text(grant.shares)),
        "starts": column(grants, lambda grant: grant.start),
        "ends": column(grants, lambda grant: grant.end),
        "hosts": column(grants, lambda grant: hostlists.encode(grant.hosts)),
        "generations": column(grants, lambda grant: grant.generation),
        "promises": column(grants, lambda grant: grant.promised_at),
        "rates": column(grants, lambda grant: rates_text(grant.rates)),
        "slot_jobids": [jobid for jobid, _, _ in slots],
        "slot_ranks": [rank for _, rank, _ in slots],
        "slot_nodes": [node for _, _, node in slots],
        "no_node": names.NO_NODE,
    }
