"""What a batch of objects comes to, and how that is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.intake.dependency_tracker import DependencyTracker
from fluxqueue.queue.intake.exclusive_claims import ExclusiveClaims
from fluxqueue.queue.intake.namespace_budgets import NamespaceBudgets
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import NewWorkload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["ChangeStore", "IntakeChanges"]


@dataclass(slots=True)
class IntakeChanges:
    """What the objects of a batch come to.

    Attributes
    ----------
    described
        Workloads as their objects describe them now.
    endings
        Workloads that end without having run.
    edited
        Workloads whose release the API server refused, and whose object was edited since.
    """

    described: list[NewWorkload] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    edited: list[WorkloadId] = field(default_factory=list)


class ChangeStore:
    """Stores the changes of a batch, and requests the scheduling cycle or the release that they need.

    Parameters
    ----------
    caches
        The cluster.
    ledger
        The workloads.
    trigger
        Requests scheduling cycles and releases.
    port_volume_pools
        Limits the number of different host ports and requests for devices.
    dependencies
        Knows what work must wait for other work.
    budgets
        Decides whose request is kept.
    """

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        trigger: Trigger,
        port_volume_pools: PortVolumePools,
        dependencies: DependencyTracker,
        budgets: NamespaceBudgets,
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._port_volume_pools = port_volume_pools
        self._dependencies = dependencies
        self._budgets = budgets
        self._exclusive_claims = ExclusiveClaims(caches, ledger)

    async def store(self, changes: IntakeChanges) -> None:
        """Store all changes of a batch, each kind in one transaction."""
        if changes.edited:
            await self._ledger.retry_releases(changes.edited)
            self._trigger.release()
        described = self._dependencies.assign(changes.described)
        described = self._budgets.assign(self._exclusive_claims.assign(described))
        described = self._port_volume_pools.limit_types(described)
        changed = await self._ledger.upsert(described) if described else []
        changed += await self._resubmit(described)
        if changed:
            reach(CrashPoint.WORKLOADS_STORED)
        await self._end_holds([new.uid for new in changes.described if not new.overrides.hold])
        if changes.endings:
            await self._ledger.finish(changes.endings)
            reach(CrashPoint.ENDED_WAITING)
        if changed or changes.endings:
            self._trigger.schedule()

    async def _resubmit(self, described: Sequence[NewWorkload]) -> list[WorkloadId]:
        """Let cancelled Jobs wait once more that their users resumed."""
        resumed = [
            new
            for new in described
            if new.kind == "Job" and self._ledger.by_uid(new.uid) is None and self._is_resumed(new)
        ]
        if not resumed or not await self._ledger.resubmit([new.uid for new in resumed]):
            return []
        return await self._ledger.upsert(resumed)

    def _is_resumed(self, new: NewWorkload) -> bool:
        """True if the Job runs and its FluxJob does not cancel it any more."""
        job = self._caches.jobs.get_by_uid(new.uid)
        return job is not None and not job.spec.suspend and not new.overrides.cancel

    async def _end_holds(self, uids: Sequence[str]) -> None:
        """Forget that the release of these workloads was refused again and again:
        they are not held any more.
        """
        rows = [
            row
            for uid in uids
            if (row := self._ledger.by_uid(uid)) is not None and row.requeue_state.unreleasable
        ]
        await self._ledger.set_requeue_states(
            {row.id: msgspec.structs.replace(row.requeue_state, unreleasable=0) for row in rows}
        )
