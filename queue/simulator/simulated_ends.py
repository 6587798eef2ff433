"""When running jobs end: when they do, when they are planned to, and how the plan is moved.

A job that overruns its plan is planned to end later. Work that started on a prediction is planned until its
stated end, where no reservation is in the way.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, MutableMapping

from fluxqueue.fluxion.changes import ExtendJob
from fluxqueue.fluxion.messages import CallContext
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.records import FluxionJobId, WorkloadId
from fluxqueue.queue.scheduling.policies.passes import HeldReservation
from fluxqueue.queue.scheduling.policies.predictions import end_beyond_prediction, lengthened_end
from fluxqueue.queue.simulator.simulated_growth import SimulatedGrowth
from fluxqueue.queue.simulator.simulated_work import EPOCH, EPOCH_S, SimulatedJob, node_name, time_at

__all__ = ["SimulatedEnds"]


class SimulatedEnds:
    """The ends of running jobs, by their number.

    Parameters
    ----------
    jobs
        All jobs by number.
    reservations
        Those that a later end displaces are removed.

    Attributes
    ----------
    real
        Heap of real ends; of a job that was preempted or resized, some are left that do not hold any more.
    planned
        The planned end of each running job.
    overdue
        Heap of planned ends before real ones.
    """

    def __init__(
        self,
        fluxion: LocalFluxion,
        growth: SimulatedGrowth,
        jobs: Mapping[int, SimulatedJob],
        reservations: MutableMapping[WorkloadId, HeldReservation],
    ) -> None:
        self._fluxion = fluxion
        self._growth = growth
        self._jobs = jobs
        self._reservations = reservations
        self.real: list[tuple[int, int]] = []
        self.planned: dict[int, int] = {}
        self.overdue: list[tuple[int, int]] = []
        self._predicted: set[int] = set()

    def expect(self, ran: SimulatedJob, planned: int) -> None:
        """Expect the end of a job that has started."""
        number = ran.job.number
        self.planned[number] = planned
        heapq.heappush(self.real, (ran.end_s, number))
        if planned < ran.start_s + ran.stated_s:
            self._predicted.add(number)
        if planned < ran.end_s:
            heapq.heappush(self.overdue, (planned, number))

    async def move(self, now_s: int) -> bool:
        """Move the planned ends that need it; True if reservations were displaced."""
        displaced = False
        holders = {reservation.jobid: workload_id for workload_id, reservation in self._reservations.items()}
        while self.overdue and self.overdue[0][0] <= now_s:
            planned, number = heapq.heappop(self.overdue)
            if self.planned.get(number) != planned:
                continue
            ran = self._jobs[number]
            end = end_beyond_prediction(time_at(ran.start_s), time_at(planned), time_at(now_s), ran.stated_s)
            displaced |= await self._move(number, int((end - EPOCH).total_seconds()), holders, now_s)
        for number in sorted(self._predicted):
            ran, known = self._jobs[number], self.planned.get(number)
            stated = ran.start_s + ran.stated_s
            if known is None or known >= stated:
                self._predicted.discard(number)
                continue
            nodes = [node_name(host) for host in ran.hosts]
            held = self._reservations.values()
            later = lengthened_end(EPOCH_S + known, EPOCH_S + stated, nodes, held) - EPOCH_S
            if later > known:
                displaced |= await self._move(number, later, {}, now_s)
        return displaced

    async def lengthen(self, number: int, end_s: int, now_s: int) -> bool:
        """Plan the end of a job that goes on with fewer nodes later; True if reservations were displaced."""
        holders = {reservation.jobid: workload_id for workload_id, reservation in self._reservations.items()}
        return await self._move(number, end_s, holders, now_s)

    async def _move(
        self, number: int, end_s: int, holders: Mapping[FluxionJobId, WorkloadId], now_s: int
    ) -> bool:
        self.planned[number] = end_s
        if end_s < self._jobs[number].end_s:
            heapq.heappush(self.overdue, (end_s, number))
        displaced = False
        for each in (number, *self._growth.pieces_of(number)):
            done = await self._fluxion.apply(
                [ExtendJob(each, EPOCH_S + end_s)], call=CallContext(now=EPOCH_S + now_s)
            )
            for jobid in done.displaced:
                displaced = True
                if (workload_id := holders.get(FluxionJobId(jobid))) is not None:
                    self._reservations.pop(workload_id, None)
        return displaced
