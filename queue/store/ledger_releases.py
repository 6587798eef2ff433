"""The releases of objects: who carries out which, and what of them is stored when.

A grant claims the release of its allocation for this process. One that failed, or that a former leader was
about to carry out, is due again in the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from fluxqueue.api.fluxjobs import PLACED, Reason, State
from fluxqueue.api.namespacelines import NamespaceLines
from fluxqueue.queue.model.changes import Ending, SlotWrites
from fluxqueue.queue.model.consolidations import room_message
from fluxqueue.queue.model.records import Allocation, Epoch, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.model.states import released_at_creation
from fluxqueue.queue.store.ledger_changes import LedgerChanges
from fluxqueue.queue.store.store import Store

__all__ = ["CLAIM_S", "LedgerReleases"]

CLAIM_S = 20.0
"""For so long a grant, or a claim, keeps an allocation for the release by this process;
then it is due again."""
_DUE_AT_ONCE = 200
"""Releases that are claimed by one transaction."""


class LedgerReleases(LedgerChanges):
    """The part of the ledger about releases."""

    def __init__(
        self,
        store: Store,
        epoch: Epoch,
        clock: Callable[[], datetime],
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__(store, epoch, clock, wall)
        self._releasing: set[FluxionJobId] = set()
        self._claimed: NamespaceLines[FluxionJobId] = NamespaceLines()
        """Claimed by this process, by a grant or when they were due; not handed out for release yet."""
        self._released: dict[FluxionJobId, None] = {}
        """Released by this process, which is to be stored with the next write of slots."""

    def _known(self, endings: Iterable[Ending]) -> list[Ending]:
        """Return the endings of workloads that have not ended;
        what was moved for one that completes stays told (`room_message`).
        """
        return [
            replace(each, message=room_message(self._workloads[each.workload]))
            if each.state is State.COMPLETED and not each.message
            else each
            for each in endings
            if each.workload in self._workloads
        ]

    async def write_slots(self, writes: SlotWrites) -> None:
        """Write what the tracker found about slots and their workloads, and what was released,
        in one transaction.
        """
        released = list(self._released)
        writes = replace(
            writes,
            released=released,
            started=[workload for workload in writes.started if self._state(workload) is State.ALLOCATED],
            draining=[workload for workload in writes.draining if self._state(workload) in PLACED],
            endings=self._known(writes.endings),
        )
        if writes.any:
            async with self._changing():
                for delta in await self._store.write_slots(self.epoch, writes):
                    self.apply(delta)
                self._released_stored(released)

    async def claim_releases(
        self, limit: int, retry_after_s: float = CLAIM_S
    ) -> list[tuple[Workload, Allocation]]:
        """Return allocations that are due for release, claimed for some time; the caller passes all of them
        to `releases_done`.

        What this process granted is claimed already. The tables are asked only if others may be due, and
        all that are due get a turn: those of one namespace that failed together keep no other back.
        """
        while self._any_unclaimed():
            due = await self._store.claim_releases(self.epoch, _DUE_AT_ONCE, retry_after_s)
            for row, held in due:
                if held.jobid not in self._releasing:
                    self._claimed.add(row.namespace, held.jobid)
            if len(due) < _DUE_AT_ONCE:
                break
        claimed: list[tuple[Workload, Allocation]] = []
        while self._claimed and len(claimed) < limit:
            jobid = self._claimed.take()
            workload, allocation = self.by_jobid(jobid), self.allocation_of_job(jobid)
            if (
                self._releasable(jobid)
                and workload is not None
                and allocation is not None
                and jobid not in self._releasing
            ):
                claimed.append((workload, allocation))
        self._releasing.update(allocation.jobid for _, allocation in claimed)
        return claimed

    def _releasable(self, jobid: FluxionJobId) -> bool:
        """True if an allocation waits for release as far as this copy shows."""
        workload = self.by_jobid(jobid)
        return (
            jobid in self._unreleased
            and jobid not in self._released
            and workload is not None
            and workload.state is State.ALLOCATED
        )

    def _any_unclaimed(self) -> bool:
        """True if an allocation waits for release that this process is neither releasing nor about to."""
        return any(
            jobid not in self._claimed and jobid not in self._releasing and self._releasable(jobid)
            for jobid in self._unreleased
        )

    def releasing(self, jobid: FluxionJobId) -> bool:
        """True while this process carries out the release of an allocation."""
        return jobid in self._releasing

    def releases_done(self, jobids: Iterable[FluxionJobId]) -> None:
        """Record that these releases are not being carried out any more, whether or not they succeeded."""
        self._releasing.difference_update(jobid for jobid in jobids if jobid not in self._released)

    def is_released(self, allocation: Allocation) -> bool:
        """True if the object of an allocation was released, whether or not that is stored."""
        return allocation.released_at is not None or allocation.jobid in self._released

    async def note_released(self, jobids: Sequence[FluxionJobId]) -> None:
        """Record that the objects of allocations were released.

        If no pod waits for the tracker, that is stored with its next write. Until then the release counts as
        under way.
        """
        rows = {jobid: self.by_jobid(jobid) for jobid in jobids}
        later = {
            jobid: row
            for jobid, row in rows.items()
            if row is not None and row.reason is Reason.NONE and released_at_creation(row)
        }
        self._released.update(dict.fromkeys(later))
        self._releasing.update(later)
        self.notify(row.id for row in later.values())
        await self.mark_released([jobid for jobid in jobids if jobid not in later])

    async def store_released(self) -> None:
        """Store now what was released."""
        if self._released:
            await self.write_slots(SlotWrites())

    def _notify_owners(self, jobids: Iterable[FluxionJobId]) -> None:
        self.notify(owner for jobid in jobids if (owner := self._by_jobid.get(jobid)) is not None)

    def _released_stored(self, jobids: Sequence[FluxionJobId]) -> None:
        for jobid in jobids:
            self._released.pop(jobid, None)
        self.releases_done(jobids)
        self._notify_owners(jobids)

    async def mark_released(self, jobids: Sequence[FluxionJobId]) -> None:
        """Record that the objects of allocations were released."""
        if jobids:
            await self._change(self._store.mark_released, jobids)
            self._notify_owners(jobids)

    async def mark_release_failed(self, jobid: FluxionJobId, message: str) -> None:
        """Record why an object could not be released; this is tried again."""
        await self._change(self._store.mark_release_failed, jobid, message)

    async def retry_releases(self, ids: Sequence[WorkloadId]) -> None:
        """Make releases due now that failed: something about their objects changed."""
        if jobids := [
            allocation.jobid
            for workload in ids
            if (allocation := self._allocations.get(workload)) is not None
        ]:
            await self._store.retry_releases(self.epoch, jobids)

    async def retry_releases_soon(self, jobids: Sequence[FluxionJobId]) -> None:
        """Make releases due shortly that failed because of a passing condition."""
        if jobids:
            await self._store.retry_releases_soon(self.epoch, jobids)

    async def next_release_at(self) -> datetime | None:
        """Return when the next release is due (may be past); None if nothing waits for release."""
        return await self._store.next_release_at() if any(map(self._releasable, self._unreleased)) else None
