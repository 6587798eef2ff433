"""Allocations and their slots: stored before anything is released, freed once and only once.

Every method first locks what it changes, in one order (workloads, allocations, slots), as a statement of its own; the statements
after it therefore see what was committed while it waited. Two calls that each end one of an allocation's last two slots cannot both
think the other's is still standing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fluxqueue.queue.records import Allocation, Epoch, FluxionJobId, Grant, Workload, WorkloadId
from fluxqueue.queue.store.transactions import Transactions

__all__ = ["Allocations"]


class Allocations(Transactions):
    """The part of the store about allocations, releases and slots."""

    async def next_jobids(self, n: int) -> list[FluxionJobId]:
        """`n` Fluxion job ids nobody else gets."""
        raise NotImplementedError

    async def grant(self, epoch: Epoch, grants: Sequence[Grant]) -> list[WorkloadId]:
        """Store what the matcher granted: allocation, slots, Pending to Allocated, due for release at once.

        Repeating a stored grant stores nothing and reports it as stored.

        Returns
        -------
        list[WorkloadId]
            Workloads that hold their grant now. The others were not pending any more: their job is the caller's to cancel.
        """
        raise NotImplementedError

    async def claim_releases(self, epoch: Epoch, limit: int, retry_after_s: float) -> list[tuple[Workload, Allocation]]:
        """Take allocations that are due for release; no other claim gets them for `retry_after_s` seconds.

        Returns
        -------
        list[tuple[Workload, Allocation]]
            Oldest first, ``release_attempts`` counting this one. Only of Allocated workloads.
        """
        raise NotImplementedError

    async def next_release_at(self) -> datetime | None:
        """When the next release is due (may be past); None if nothing waits for release."""
        raise NotImplementedError

    async def released(self, epoch: Epoch, jobids: Sequence[FluxionJobId]) -> list[FluxionJobId]:
        """Note that the objects of these live allocations were let go; returns those for which it was news."""
        raise NotImplementedError

    async def release_failed(self, epoch: Epoch, jobid: FluxionJobId, message: str) -> None:
        """Note why a release did not work: the workload says so (reason ``ReleaseFailed``) until it does."""
        raise NotImplementedError

    async def live_allocations(self) -> list[Allocation]:
        """All allocations that hold something, with their slots, by job id."""
        raise NotImplementedError

    async def allocations(self, jobids: Sequence[FluxionJobId]) -> list[Allocation]:
        """These allocations, live or freed, with their slots, by job id."""
        raise NotImplementedError

    async def move_ends(self, epoch: Epoch, ends: Sequence[tuple[FluxionJobId, datetime]]) -> list[FluxionJobId]:
        """Move the planned ends of live allocations (an overrun); returns those that were moved."""
        raise NotImplementedError

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
        raise NotImplementedError

    async def vacate_slots(self, epoch: Epoch, vacated: Sequence[tuple[FluxionJobId, int, str]]) -> list[tuple[FluxionJobId, int]]:
        """Make slots (job id, rank) free again that still hold the pod of this uid; returns those that were."""
        raise NotImplementedError

    async def end_slots(self, epoch: Epoch, ended: Sequence[tuple[FluxionJobId, int]]) -> list[FluxionJobId]:
        """End slots (job id, rank): no pod follows in them. The last one frees its allocation.

        Returns
        -------
        list[FluxionJobId]
            Allocations freed by this call.
        """
        raise NotImplementedError
