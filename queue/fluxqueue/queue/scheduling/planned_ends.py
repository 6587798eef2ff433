"""Planned ends of running work, where they are no longer true: work that drains ends sooner, work that overruns ends later."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import FluxionJobId, WorkloadId
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.scheduling.graph import GraphKeeper, GraphLost
from fluxqueue.queue.scheduling.policies.overruns import extended_end
from fluxqueue.queue.scheduling.reservations import ReservationKeeper
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PlannedEnds"]

log = structlog.get_logger()

_DRAIN_S = 60
"""From an eviction until the nodes are planned to be free: twice the grace period of a pod in Kubernetes."""


class PlannedEnds:
    """Moves planned ends in the graph and in the store. The caller holds the lock of the graph."""

    def __init__(self, ledger: Ledger, graph: GraphKeeper) -> None:
        self._ledger = ledger
        self._graph = graph

    async def expect_drained(self) -> bool:
        """Plan that evicted work ends soon; return whether any end moved.

        Its nodes are then reserved for the work that waits for them. Until it ends, no other work may delay that.
        """
        now = self._ledger.clock()
        ends: list[tuple[FluxionJobId, datetime]] = []
        for workload, allocation in self._ledger.evicting():
            soon = now + timedelta(seconds=grace_left_s(workload, now) + _DRAIN_S)
            if allocation.end is not None and allocation.end <= soon:
                continue
            answer = await self._graph.fluxion.extend(allocation.jobid, int(soon.timestamp()), call=self._graph.call())
            if not answer.done:
                raise GraphLost(f"Fluxion did not move the end of job {allocation.jobid}: {answer.reason}")
            ends.append((allocation.jobid, soon))
        await self._ledger.move_ends(ends)
        return bool(ends)

    async def extend_overruns(self, reservations: ReservationKeeper) -> dict[WorkloadId, str]:
        """Move the ends of work beyond its planned end; return the cause of each reservation that this displaced."""
        now, displaced = self._ledger.clock(), dict[WorkloadId, str]()
        ends: list[tuple[FluxionJobId, datetime]] = []
        for workload, allocation in self._ledger.planned_to_end(now):
            if allocation.end is None or not allocation.start < allocation.end:
                continue
            limited = is_over_time_limit(workload)
            end = now + timedelta(seconds=_DRAIN_S) if limited else extended_end(allocation.start, allocation.end, now)
            answer = await self._graph.fluxion.extend(allocation.jobid, int(end.timestamp()), call=self._graph.call())
            if not answer.done:
                raise GraphLost(f"Fluxion did not extend job {allocation.jobid}: {answer.reason}")
            ends.append((allocation.jobid, end))
            doing = "takes longer to stop than expected" if workload.evicting or limited else "runs beyond its stated duration"
            displaced |= dict.fromkeys(reservations.forget_jobs(answer.displaced), f"{workload.ref} {doing}")
            log.info(
                "allocation.end_moved", workload=workload.id, jobid=allocation.jobid, end=end.isoformat(), displaced=list(answer.displaced)
            )
        if ends:
            reach(CrashPoint.EXTENDED)
        await self._ledger.move_ends(ends)
        return displaced
