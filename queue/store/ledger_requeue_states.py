"""Changes of what is known of workloads beside their requests (`fluxqueue.queue.model.requeue_records`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from msgspec import structs

from fluxqueue.queue.model.given_back import with_given_back
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import Epoch, Workload, WorkloadId
from fluxqueue.queue.model.requeue_records import RequeueState, Unused
from fluxqueue.queue.model.states import LIVE
from fluxqueue.queue.model.time_limits import is_suspended_soon
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.ledger_changes import LedgerChanges

__all__ = ["LedgerRequeueStates"]


class LedgerRequeueStates(LedgerChanges):
    """The part of the ledger that changes requeue states."""

    async def set_requeue_states(self, changes: Mapping[WorkloadId, RequeueState]) -> None:
        """Write the requeue states of workloads; their next match depends on them.
        What they gave back stays: only `evict` adds to that.
        """

        async def set_requeue_states(epoch: Epoch, changes: Mapping[WorkloadId, RequeueState]) -> Delta:
            kept = {each: with_given_back(state, self.get(each)) for each, state in changes.items()}
            return await self._store.set_requeue_states(epoch, kept)

        if changes:
            await self._change(set_requeue_states, changes)

    async def set_time_limit(self, started: Workload, at: datetime, idle: str) -> Workload | None:
        """Store that a workload is ended since a time, at its limit or because it was idle (in words);
        return it. What else was stored of it until then stays, such as its grace. None if it is gone, waits
        again or is to, or was started again since.
        """
        stored: list[WorkloadId] = []

        async def set_requeue_states(epoch: Epoch, workload_id: WorkloadId) -> Delta:
            row = self.get(workload_id)
            states = {}
            if (
                row is not None
                and row.state in LIVE
                and row.started_at == started.started_at
                and not is_suspended_soon(row)
            ):
                states[row.id] = structs.replace(row.requeue_state, time_limit=at, idle=idle)
            stored[:] = states
            return await self._store.set_requeue_states(epoch, states)

        await self._change(set_requeue_states, started.id)
        return self.get(started.id) if stored else None

    async def set_unused(self, changes: Mapping[WorkloadId, Unused | None]) -> None:
        """Store since when work is idle that may be preempted for that; None: it may not.
        What else was stored of it until then stays. Work that is gone or waits again keeps what it has.
        """

        async def set_requeue_states(epoch: Epoch, changes: Mapping[WorkloadId, Unused | None]) -> Delta:
            rows = filter(None, map(self.get, changes))
            states = {
                row.id: structs.replace(row.requeue_state, unused=changes[row.id])
                for row in rows
                if row.state in LIVE
            }
            return await self._store.set_requeue_states(epoch, states)

        if changes:
            await self._change(set_requeue_states, changes)

    async def end_graces(self, ids: Collection[WorkloadId]) -> list[WorkloadId]:
        """Have the graces of preempted work end now; return of which. What goes on by now keeps its state."""
        ended: list[WorkloadId] = []

        async def end(epoch: Epoch, ids: Collection[WorkloadId]) -> Delta:
            now = self.clock()
            states = {
                row.id: structs.replace(row.requeue_state, stop_at=now)
                for row in map(self.get, ids)
                if row is not None and grace_left_s(row, now)
            }
            ended[:] = states
            return await self._store.set_requeue_states(epoch, states)

        if ids:
            await self._change(end, ids)
        return ended
