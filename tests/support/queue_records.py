"""Workloads and grants for tests of the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.changes import Requeue
from fluxqueue.queue.model.records import Epoch, Grant, NewWorkload, ReleaseMode, Slot, Workload, WorkloadId
from fluxqueue.queue.store import Store

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def described(name: str = "lammps", **changes: Any) -> NewWorkload:
    """A new workload as the intake describes it: an Indexed Job of two pods, with these changes."""
    plain = NewWorkload(
        uid=f"uid-{name}",
        api_version="batch/v1",
        kind="Job",
        namespace="science",
        name=name,
        queue="default",
        priority=0,
        jobspec='{"version": 9999}',
        shape="shape-a",
        pods=2,
        duration_s=600,
        duration_assumed=False,
        release_mode=ReleaseMode.PIN,
        generation=1,
    )
    return replace(plain, **changes)


def a_requeue(
    workload: WorkloadId,
    reason: Reason = Reason.PREEMPTED,
    message: str = "by a more urgent one",
    kept: Sequence[Slot] = (),
) -> Requeue:
    """A requeue of a workload, with the slots that are kept for its pods."""
    return Requeue(
        workload=workload,
        reason=reason,
        message=message,
        kept=tuple((slot.jobid, slot.rank) for slot in kept),
    )


@dataclass(frozen=True)
class Leader:
    """A store and the epoch of its leader, to shorten tests."""

    store: Store
    epoch: Epoch

    async def submit(self, *names: str, **changes: Any) -> list[Workload]:
        """Insert workloads, and return their rows."""
        new_workloads = [described(name, **changes) for name in names]
        await self.store.upsert(self.epoch, new_workloads)
        rows = {
            workload.uid: workload
            for workload in await self.store.workloads_by_uid([new.uid for new in new_workloads])
        }
        return [rows[new.uid] for new in new_workloads]

    async def grant_for(self, workload: Workload, hosts: Sequence[str] = ("node-1", "node-2")) -> Grant:
        """Return a grant of these nodes with a new job id."""
        (jobid,) = await self.store.next_jobids(1)
        return Grant(
            workload=workload.id,
            jobid=jobid,
            shares=tuple(
                NodeShare(host, {"default": 1}, {"cpu": 2000, "memory": 4}) for host in dict.fromkeys(hosts)
            ),
            hosts=tuple(hosts),
            start=START,
            end=START + timedelta(seconds=workload.duration_s) if workload.duration_s else None,
        )

    async def allocate(
        self, *names: str, hosts: Sequence[str] = ("node-1", "node-2"), **changes: Any
    ) -> list[Workload]:
        """Insert workloads, grant each its nodes, and return their rows."""
        workloads = await self.submit(*names, **changes)
        delta = await self.store.grant(
            self.epoch, [await self.grant_for(workload, hosts) for workload in workloads]
        )
        assert len(delta.allocations) == len(names)
        return await self.store.workloads([workload.id for workload in workloads])
