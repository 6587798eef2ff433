"""Workloads and grants for tests of the queue, said in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.records import Epoch, Grant, NewWorkload, PutBack, ReleaseMode, Slot, Workload, WorkloadId
from fluxqueue.queue.store import Store

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def found(name: str = "lammps", **changes: Any) -> NewWorkload:
    """What the intake found: an Indexed Job of two pods unless told otherwise."""
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


def put_back(
    workload: WorkloadId, reason: Reason = Reason.PREEMPTED, message: str = "by a more urgent one", kept: Sequence[Slot] = ()
) -> PutBack:
    """A workload that waits again, but for the slots it keeps."""
    return PutBack(workload=workload, reason=reason, message=message, kept=tuple((slot.jobid, slot.rank) for slot in kept))


@dataclass(frozen=True)
class Leader:
    """A store and the epoch of who uses it: shortens tests."""

    store: Store
    epoch: Epoch

    async def submit(self, *names: str, **changes: Any) -> list[Workload]:
        """Workloads that are pending now."""
        return [now.workload for now in await self.store.upsert(self.epoch, [found(name, **changes) for name in names])]

    async def grant_for(self, workload: Workload, hosts: Sequence[str] = ("node-1", "node-2")) -> Grant:
        """A grant with a job id of its own."""
        (jobid,) = await self.store.next_jobids(1)
        return Grant(
            workload=workload.id,
            jobid=jobid,
            shares=tuple(NodeShare(host, {"default": 1}, {"cpu": 2000, "memory": 4}) for host in dict.fromkeys(hosts)),
            hosts=tuple(hosts),
            start=START,
            end=START + timedelta(seconds=workload.duration_s) if workload.duration_s else None,
        )

    async def allocate(self, *names: str, hosts: Sequence[str] = ("node-1", "node-2")) -> list[Workload]:
        """Workloads that are allocated now."""
        workloads = await self.submit(*names)
        stored = await self.store.grant(self.epoch, [await self.grant_for(workload, hosts) for workload in workloads])
        assert len(stored) == len(names)
        return await self.store.workloads([workload.id for workload in workloads])
