"""Planned ends of running work, where they are no longer true:
work that drains ends sooner, work that overruns ends later.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import structlog

from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.given_back import staying_slots
from fluxqueue.queue.model.moldable import planned_duration_s
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.model.withdrawals import end_of_going_on
from fluxqueue.queue.scheduling.graph.graph_jobs import DRAIN_S
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.policies.overruns import extended_end
from fluxqueue.queue.scheduling.policies.predictions import end_beyond_prediction, lengthened_end
from fluxqueue.queue.scheduling.reservations.reservation_keeper import ReservationKeeper
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PlannedEnds"]

log = structlog.get_logger()

_GOES_ON = "goes on"
_SLOW = "takes longer to stop than expected"
_LATE = timedelta(seconds=60)
"""A reservation that starts late keeps its planned end, which is earlier than stated by so much at most."""


class PlannedEnds:
    """Moves planned ends in the graph and in the store. The caller holds the lock of the graph."""

    def __init__(self, ledger: Ledger, graph: GraphKeeper) -> None:
        self._ledger = ledger
        self._graph = graph
        self._draining: set[FluxionJobId] = set()
        """Allocations that are planned to end soon in the graph, because their work was evicted."""

    async def expect_drained(self) -> bool:
        """Plan that evicted work, and slots that are given back, end soon; return whether any end moved.

        Their nodes are then reserved for the work that waits for them. Until they end, no other work may
        delay that.
        """
        now, wall = self._ledger.clock(), self._ledger.wall()
        moved = False
        for workload, allocation in self._ledger.giving_back():
            moved = await self._graph.give_back(workload, allocation) or moved
        ends: list[tuple[FluxionJobId, datetime]] = []
        for workload, allocation in self._ledger.evicting():
            self._draining.add(allocation.jobid)
            soon = wall + timedelta(seconds=grace_left_s(workload, now) + DRAIN_S)
            if allocation.end is not None and allocation.end <= soon:
                continue
            await self._graph.move_end(allocation, int(soon.timestamp()))
            ends.append((allocation.jobid, soon))
        await self._ledger.move_ends(ends)
        return moved or bool(ends)

    async def plan_again(self, reservations: ReservationKeeper) -> dict[WorkloadId, str]:
        """Plan work until its stored end that goes on after it was told to stop;
        return the cause of each displaced reservation.
        """
        displaced, ends = dict[WorkloadId, str](), list[tuple[FluxionJobId, datetime]]()
        for workload, allocation in self._graph.jobs.returning():
            end = end_of_going_on(workload, allocation, self._ledger.wall())
            late = await self._graph.take_back(workload, allocation, _seconds(end))
            displaced |= dict.fromkeys(reservations.forget_jobs(late), f"{workload.ref} {_GOES_ON}")
            ends += [(allocation.jobid, end)] if end is not None else []
        await self._ledger.move_ends(ends)
        for jobid in sorted(self._draining):
            row, its = self._ledger.by_jobid(jobid), self._ledger.allocation_of_job(jobid)
            if row is not None and row.evicting:
                continue
            self._draining.discard(jobid)
            if row is None or its is None or its.remnant or row.jobid != jobid:
                continue
            late = await self._graph.move_end(its, _seconds(its.end))
            displaced |= dict.fromkeys(reservations.forget_jobs(late), f"{row.ref} {_GOES_ON}")
        return displaced

    async def lengthen(self, reservations: ReservationKeeper, *, predicted: bool) -> None:
        """Plan work until its stated end, or until the first reservation on its nodes.

        That is work which gave pods back, and has more to do with the others; and if there are predictions,
        what started on one.
        """
        ends: list[tuple[FluxionJobId, datetime]] = []
        for workload, allocation in self._ledger.live() if predicted else self._ledger.gave_back():
            stated = _stated_end(workload, allocation)
            if (
                stated is None
                or allocation.end is None
                or workload.evicting
                or workload.jobid != allocation.jobid
            ):
                continue
            nodes = [slot.node for slot in staying_slots(workload, allocation)]
            present = int(allocation.end.timestamp())
            end = lengthened_end(present, int(stated.timestamp()), nodes, reservations.held.values())
            if end <= present:
                continue
            await self._graph.move_end(allocation, end)
            ends.append((allocation.jobid, datetime.fromtimestamp(end, UTC)))
        await self._ledger.move_ends(ends)

    async def extend_overruns(self, reservations: ReservationKeeper) -> dict[WorkloadId, str]:
        """Move the ends of work beyond its planned end;
        return the cause of each reservation that this displaced.
        """
        now, displaced = self._ledger.wall(), dict[WorkloadId, str]()
        for workload, jobid in self._graph.jobs.late():
            late = await self._graph.keep_leaving(workload, jobid)
            displaced |= dict.fromkeys(reservations.forget_jobs(late), f"{workload.ref} {_SLOW}")
        ends: list[tuple[FluxionJobId, datetime]] = []
        for workload, allocation in self._ledger.planned_to_end(now):
            if allocation.end is None or not allocation.start < allocation.end:
                continue
            limited = is_over_time_limit(workload)
            stated = None if workload.evicting or limited else _stated_end(workload, allocation)
            if limited:
                end = now + timedelta(seconds=DRAIN_S)
            elif stated is not None:
                stated_s = round((stated - allocation.start).total_seconds())
                end = end_beyond_prediction(allocation.start, allocation.end, now, stated_s)
            else:
                end = extended_end(allocation.start, allocation.end, now)
            late = await self._graph.move_end(allocation, int(end.timestamp()))
            ends.append((allocation.jobid, end))
            doing = (
                "runs longer than predicted"
                if stated is not None and now < stated
                else "runs beyond its stated duration"
            )
            doing = _SLOW if workload.evicting or limited else doing
            displaced |= dict.fromkeys(reservations.forget_jobs(late), f"{workload.ref} {doing}")
            log.info(
                "allocation.end_moved",
                workload=workload.id,
                jobid=allocation.jobid,
                end=end.isoformat(),
                displaced=list(late),
            )
        if ends:
            reach(CrashPoint.EXTENDED)
        await self._ledger.move_ends(ends)
        return displaced


def _seconds(end: datetime | None) -> int:
    """Return an end as the graph has it; 0 if none is planned."""
    return int(end.timestamp()) if end is not None else 0


def _stated_end(workload: Workload, allocation: Allocation) -> datetime | None:
    """Return when work ends as it stated, if it is planned to end sooner; else None."""
    duration_s = planned_duration_s(workload)
    if duration_s is None or allocation.end is None:
        return None
    stated = allocation.start + timedelta(seconds=duration_s)
    return stated if allocation.end < stated - _LATE else None
