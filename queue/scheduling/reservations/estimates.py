"""When each pending workload is expected to start.

The start of a reservation is known. For the others the queue is planned ahead
(`fluxqueue.queue.scheduling.reservations.plan_ahead`). In a queue that is served first come, first served,
none is reserved before the one ahead of it. This happens under the lock of the graph and within a bounded
time: the queue whose plan is the oldest comes first, and the next update waits the longer the more time this
one took. A queue that is not reached keeps its former plan, as far as that lies ahead. Work that can never
start takes no position.

The plan holds if nothing else arrives, no job ends early and nothing is backfilled, so it is the late end of
a range. The early end follows from the accuracy of former estimates
(`fluxqueue.queue.scheduling.policies.estimate_history`).

Work that waits for other work follows from the plan of that
(`fluxqueue.queue.scheduling.reservations.chained_starts`).

Estimates are not stored. They are shown next to the stored reservation. The first one of each workload is
stored with its grant, so that everybody can compare it with the start. Until then a new leader reads it from
the FluxJob.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

import structlog

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.queue.metrics import START_ERROR_SECONDS
from fluxqueue.queue.model.estimates import Estimate, StartEstimates
from fluxqueue.queue.model.reasons import LIMIT_REASONS
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.limits.limits_ahead import starts_within_limits
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.estimate_history import EstimateHistory
from fluxqueue.queue.scheduling.policies.passes import CycleContext, HeldReservation
from fluxqueue.queue.scheduling.policies.refusals import EXPLAINED
from fluxqueue.queue.scheduling.reservations.chained_starts import ChainedStarts
from fluxqueue.queue.scheduling.reservations.plan_ahead import PlanAhead
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["StartEstimator", "nothing_published"]

log = structlog.get_logger()

_EVERY_S = 5.0
_POSITIONS_EVERY_S = 1.0
_BUDGET_S = 0.15
"""An update that has taken so long begins no further queue."""
_PAUSE_PER_TIME = 20
"""An update is followed by a pause of so many times its own length,
so that planning takes at most a twentieth of the time."""
_LONGEST_PAUSE_S = 600.0
"""The pause after failures grows up to this."""
_USUAL_DISCIPLINE = Discipline()


class StartEstimator:
    """Updates the estimates every few seconds.

    Parameters
    ----------
    ledger
        The queue.
    graph
        In which the queue is planned ahead. The caller holds its lock.
    published
        Returns the first estimate of a workload that a former leader gave.
    """

    def __init__(
        self, ledger: Ledger, graph: GraphKeeper, published: Callable[[Workload], datetime | None]
    ) -> None:
        self.estimate_history = EstimateHistory()
        self.estimates = StartEstimates()
        self._ledger = ledger
        self._graph = graph
        self._published = published
        self._chained = ChainedStarts(ledger)
        self.parts = (self._chained,)
        self._updated_at = -math.inf
        self._counted_at = -math.inf
        self._pause_s = _EVERY_S
        self._planned_at: dict[str, float] = {}
        self._ahead = PlanAhead(ledger, graph)
        self._first_estimates: dict[WorkloadId, tuple[int, int]] = {}
        self._promises: dict[WorkloadId, datetime] = {}
        self._reserved: set[WorkloadId] = set()

    def started(self, workloads: Iterable[WorkloadId], now: int) -> None:
        """Add the first estimates of workloads that start now to the history."""
        for workload_id in workloads:
            self._measure(workload_id)
            if (estimate := self._first_estimates.pop(workload_id, None)) is not None:
                at, start = estimate
                self.estimate_history.add(start - at, now - at)

    def follow_reservations(self, reservations: Mapping[WorkloadId, HeldReservation], now: int) -> None:
        """Let estimates have the reservations of now, as the reasons that are stored next name them. What
        lost its own is expected then.

        Work without an estimate gets one with the next update, which knows its position.
        """
        followed: dict[WorkloadId, Estimate] = {}
        for workload_id in {*reservations, *self._reserved}:
            estimate, held = self.estimates.get(workload_id), reservations.get(workload_id)
            if estimate is None:
                continue
            if held is None:
                followed[workload_id] = replace(estimate, reserved=False)
            elif not estimate.reserved or estimate.eta != datetime.fromtimestamp(held.start, UTC):
                followed[workload_id] = self._estimate(
                    workload_id, held.start, now, estimate.position, reserved=True
                )
        self._reserved = set(reservations)
        if followed:
            self.estimates.replace_all({**self.estimates, **followed})

    def _measure(self, workload_id: WorkloadId) -> None:
        """Count how far the first estimate was off.
        A later start, after a requeue, was not estimated then.
        """
        workload = self._ledger.get(workload_id)
        if (
            workload is None
            or workload.requeues
            or workload.allocated_at is None
            or workload.promised_at is None
        ):
            return
        error_s = (workload.allocated_at - workload.promised_at).total_seconds()
        START_ERROR_SECONDS.labels("late" if error_s > 0 else "early").observe(abs(error_s))

    def promised(self, workload: Workload) -> datetime | None:
        """Return the first estimate ever given of a workload's start; None: there was none."""
        return workload.promised_at or self._promises.get(workload.id) or self._published(workload)

    async def update(
        self,
        backlogs: Mapping[str, Backlog],
        reservations: Mapping[WorkloadId, HeldReservation],
        context: CycleContext,
        disciplines: Mapping[str, Discipline] = MappingProxyType({}),
    ) -> float:
        """Estimate again; if that was done a few seconds ago, count positions alone, once a second.

        Parameters
        ----------
        backlogs
            The pending work of each queue, in order.
        reservations
            What is reserved already.
        context
            The present cycle.
        disciplines
            How each queue is served; by default as usual.

        Returns
        -------
        float
            Seconds until the next update is due, or, if the matcher failed, until it has its graph again;
            0 if the estimates are new or no work waits.
        """
        began = time.monotonic()
        if (passed := began - self._updated_at) < self._pause_s:
            if began >= self._counted_at + _POSITIONS_EVERY_S:
                self._count_positions(backlogs, context)
                self._counted_at = began
            return self._pause_s - passed if self._chained or any(map(len, backlogs.values())) else 0.0
        self._updated_at = self._counted_at = began
        try:
            await self._plan_all(backlogs, reservations, context, disciplines)
        except FluxionError as error:
            return self._back_off(error)
        self._pause_s = max(_EVERY_S, _PAUSE_PER_TIME * (time.monotonic() - began))
        return 0.0

    async def _plan_all(
        self,
        backlogs: Mapping[str, Backlog],
        reservations: Mapping[WorkloadId, HeldReservation],
        context: CycleContext,
        disciplines: Mapping[str, Discipline],
    ) -> None:
        """Plan the queues within the time of an update, and estimate all starts again."""
        began = self._updated_at
        estimates, starts = dict[WorkloadId, Estimate](), dict[WorkloadId, int]()
        self._planned_at = {queue: self._planned_at.get(queue, -math.inf) for queue in backlogs}
        for number, queue in enumerate(sorted(backlogs, key=lambda queue: (self._planned_at[queue], queue))):
            first = _first(backlogs[queue], context)
            discipline = disciplines.get(queue, _USUAL_DISCIPLINE)
            planned: dict[WorkloadId, int | None] = dict(self._former_plan(first, context.now))
            if not number or time.monotonic() < began + _BUDGET_S:
                waiting = [
                    each for each in first if each.id not in reservations and not self._over_limit(each.id)
                ]
                planned |= await self._ahead.plan(waiting, discipline)
                if context.quotas.limited(queue):
                    planned = starts_within_limits(first, planned, context.quotas, self._ends(reservations))
                self._planned_at[queue] = began
            if discipline.policy is Policy.FCFS:
                planned = self._one_after_the_other(first, planned, reservations)
            for position, workload in enumerate(first, 1):
                reservation = reservations.get(workload.id)
                at = reservation.start if reservation is not None else planned.get(workload.id)
                if at is not None:
                    self._first_estimates.setdefault(workload.id, (context.now, at))
                    starts[workload.id] = at
                estimates[workload.id] = self._estimate(
                    workload.id, at, context.now, position, reserved=reservation is not None
                )
        for workload_id, at in self._chained.earliest(starts, context.now, EXPLAINED).items():
            estimates[workload_id] = self._estimate(workload_id, at, context.now, None)
        self._forget_ended()
        self.estimates.replace_all(estimates)

    def _back_off(self, error: FluxionError) -> float:
        """Keep the former estimates for a while, and have the graph filled again,
        since reservations of the plan may be left in it.
        """
        log.warning("estimates.failed", error=str(error))
        self._graph.invalidate()
        took_s = time.monotonic() - self._updated_at
        self._pause_s = min(max(2 * self._pause_s, _PAUSE_PER_TIME * took_s), _LONGEST_PAUSE_S)
        return _EVERY_S

    def _ends(self, reservations: Mapping[WorkloadId, HeldReservation]) -> Iterator[tuple[int, WorkloadId]]:
        """Yield when each workload ends that runs or has nodes reserved."""
        for workload, allocation in self._ledger.live():
            if allocation.end is not None:
                yield int(allocation.end.timestamp()), workload.id
        for each in reservations.values():
            yield each.end, each.workload

    def _count_positions(self, backlogs: Mapping[str, Backlog], context: CycleContext) -> None:
        """Let the estimates have the positions of now.
        Work that came since the last plan counts, and gets its own with the next one.
        """
        moved: dict[WorkloadId, Estimate] = {}
        for backlog in backlogs.values():
            for position, workload in enumerate(_first(backlog, context), 1):
                estimate = self.estimates.get(workload.id)
                if estimate is not None and estimate.position != position:
                    moved[workload.id] = replace(estimate, position=position)
        if moved:
            self.estimates.replace_all({**self.estimates, **moved})

    def _forget_ended(self) -> None:
        known = self._ledger.get
        self._first_estimates = {
            key: each for key, each in self._first_estimates.items() if known(key) is not None
        }
        self._promises = {key: each for key, each in self._promises.items() if known(key) is not None}

    def _former_plan(self, first: Iterable[Workload], now: int) -> dict[WorkloadId, int]:
        """Return the starts that were planned before and lie ahead."""
        estimates = {
            workload.id: self.estimates.get(workload.id)
            for workload in first
            if not self._over_limit(workload.id)
        }
        starts = {
            key: int(each.eta.timestamp())
            for key, each in estimates.items()
            if each is not None and each.eta and not each.reserved
        }
        return {key: start for key, start in starts.items() if start > now}

    def _one_after_the_other(
        self,
        first: Iterable[Workload],
        planned: Mapping[WorkloadId, int | None],
        reservations: Mapping[WorkloadId, HeldReservation],
    ) -> dict[WorkloadId, int | None]:
        """Return the starts of a queue in which nothing overtakes:
        none before that ahead, and none after one that is not known.
        """
        starts: dict[WorkloadId, int | None] = {}
        latest = 0
        for workload in first:
            if workload.id in reservations or self._over_limit(workload.id):
                continue
            at = planned.get(workload.id)
            if at is None:
                break
            starts[workload.id] = latest = max(at, latest)
        return starts

    def _estimate(
        self,
        workload_id: WorkloadId,
        at: int | None,
        now: int,
        position: int | None,
        *,
        reserved: bool = False,
    ) -> Estimate:
        eta = datetime.fromtimestamp(at, UTC) if at is not None else None
        workload = self._ledger.get(workload_id)
        first = (self.promised(workload) if workload is not None else None) or eta
        if first is not None:
            self._promises.setdefault(workload_id, first)
        allowed = workload.start_conditions.begin_at if workload is not None else None
        soonest = (
            datetime.fromtimestamp(self.estimate_history.soonest(now, at), UTC) if at is not None else None
        )
        return Estimate(
            position=position,
            eta=eta,
            eta_soonest=max(soonest, allowed) if soonest is not None and allowed is not None else soonest,
            eta_first=first,
            reserved=reserved,
        )

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Forget the estimate of a workload that started or ended."""
        workload = self._ledger.get(workload_id)
        if workload is None or workload.state is not State.PENDING:
            self.estimates.discard(workload_id)

    def _over_limit(self, workload_id: WorkloadId) -> bool:
        """True if a workload waits for others of its queue or account to end and not for nodes.
        A plan of nodes does not give its start.
        """
        workload = self._ledger.get(workload_id)
        return workload is not None and workload.reason in LIMIT_REASONS


def _first(backlog: Backlog, context: CycleContext) -> list[Workload]:
    """Return the first of a queue, without those that can never start."""
    return list(
        itertools.islice((each for each in backlog if each.shape not in context.unsatisfiable), EXPLAINED)
    )


def nothing_published(_workload: Workload) -> None:
    """Return that there was no former leader."""
