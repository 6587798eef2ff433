"""Job ids of matches whose grants are not stored yet.

A request that is repeated under its id gets its first answer again. So a workload keeps its id until its
grant is stored, also when a cycle fails in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["JobIds"]


class JobIds:
    """Job ids by workload.

    Parameters
    ----------
    ledger
        Source of new ids, and of the states of workloads.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ids: dict[WorkloadId, FluxionJobId] = {}

    async def of(self, workloads: Sequence[Workload]) -> list[FluxionJobId]:
        """Return the id of each workload; those without one get a new one."""
        new = [workload.id for workload in workloads if workload.id not in self._ids]
        if new:
            self._ids.update(zip(new, await self._ledger.next_jobids(len(new)), strict=True))
        return [self._ids[workload.id] for workload in workloads]

    def keep(self, workload: WorkloadId, jobid: FluxionJobId) -> None:
        """Use this id for a workload from now on."""
        self._ids[workload] = jobid

    def forget(self, workload: WorkloadId) -> None:
        """Use a new id the next time: this one is granted or cancelled."""
        self._ids.pop(workload, None)

    def take_departed(self) -> dict[WorkloadId, FluxionJobId]:
        """Return, and forget, the ids of workloads that are no longer pending."""
        departed = [
            workload_id
            for workload_id in self._ids
            if (workload := self._ledger.get(workload_id)) is None or workload.state is not State.PENDING
        ]
        return {workload_id: self._ids.pop(workload_id) for workload_id in departed}
