"""When each pending workload is expected to start.

A reservation is exact. For the others the queue is planned ahead: the next ones in order are reserved in the graph one behind the other,
their times noted, and all of it taken back, within one call of the lock and a bounded time. That is what would happen if nothing else
arrived, nobody ended early and nothing were backfilled, so it is the late end of a range; the soon end is learnt from how estimates came
true of late.

Nothing of this is stored: it is a view of the moment, shown beside the stored promise.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import JobRequest, Verdict
from fluxqueue.queue.controllers.graph import GraphKeeper
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.policies.backlog import Backlog
from fluxqueue.queue.policies.estimates import Experience
from fluxqueue.queue.policies.passes import Moment, Promise
from fluxqueue.queue.records import Estimate, FluxionJobId, WorkloadId

__all__ = ["Outlook"]

_EVERY_S = 5.0
_PER_QUEUE = 100
_AT_ONCE = 20
_BUDGET_S = 0.15


class Outlook:
    """Works out estimates every few seconds.

    Parameters
    ----------
    ledger
        Whose ``estimates`` are written.
    graph
        Where it is planned ahead; its lock is held by the caller.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper) -> None:
        self.experience = Experience()
        self._ledger = ledger
        self._graph = graph
        self._looked_at = float("-inf")
        self._ids: list[FluxionJobId] = []
        self._told: dict[WorkloadId, tuple[int, int]] = {}

    def started(self, workloads: Iterable[WorkloadId], now: int) -> None:
        """Learn from how the first estimates of workloads that start now came true."""
        for found in workloads:
            if (told := self._told.pop(found, None)) is not None:
                at, start = told
                self.experience.learn(start - at, now - at)

    async def look(
        self,
        backlogs: Mapping[str, Backlog],
        promises: Mapping[WorkloadId, Promise],
        moment: Moment,
        match_policies: Mapping[str, str] = MappingProxyType({}),
    ) -> float:
        """Estimate anew, unless that was done just now.

        Returns
        -------
        float
            Seconds after which it is to be asked again, because it was too soon; 0 if the estimates are of this moment, or nobody waits.
        """
        began = time.monotonic()
        if (passed := began - self._looked_at) < _EVERY_S:
            return _EVERY_S - passed if any(len(backlog) for backlog in backlogs.values()) else 0.0
        self._looked_at = began
        former, estimates = self._ledger.estimates, dict[WorkloadId, Estimate]()
        for queue in sorted(backlogs):
            planned = await self._plan_ahead(backlogs[queue], match_policies.get(queue, ""), promises, moment, began + _BUDGET_S)
            for position, workload in zip(range(_PER_QUEUE), backlogs[queue], strict=False):
                promise = promises.get(workload.id)
                at = promise.start if promise is not None else planned.get(workload.id)
                eta = datetime.fromtimestamp(at, UTC) if at is not None else None
                before = former.get(workload.id)
                if at is not None:
                    self._told.setdefault(workload.id, (moment.now, at))
                estimates[workload.id] = Estimate(
                    position=position + 1,
                    eta=eta,
                    eta_soonest=datetime.fromtimestamp(self.experience.soonest(moment.now, at), UTC) if at is not None else None,
                    eta_first=(before.eta_first if before is not None and before.eta_first is not None else eta),
                    reserved=promise is not None,
                )
        self._told = {found: told for found, told in self._told.items() if self._ledger.get(found) is not None}
        self._ledger.estimates.clear()
        self._ledger.estimates.update(estimates)
        return 0.0

    def _limited(self, found: WorkloadId) -> bool:
        """Whether it waits for others of its queue to end, and not for nodes: when that is, a plan of nodes cannot tell."""
        workload = self._ledger.get(found)
        return workload is not None and workload.reason is Reason.QUEUE_LIMIT

    async def _plan_ahead(
        self, backlog: Backlog, policy: str, promises: Mapping[WorkloadId, Promise], moment: Moment, until: float
    ) -> dict[WorkloadId, int]:
        """Starts of the next workloads if each had a reservation; the graph is left as it was."""
        waiting = [
            workload
            for _, workload in zip(range(_PER_QUEUE), backlog, strict=False)
            if workload.id not in promises and workload.shape not in moment.impossible and not self._limited(workload.id)
        ]
        if waiting and not self._ids:
            self._ids = await self._ledger.store.next_jobids(_PER_QUEUE)
        starts: dict[WorkloadId, int] = {}
        used: list[FluxionJobId] = []
        try:
            while waiting and time.monotonic() < until:
                batch, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
                ids = self._ids[len(used) : len(used) + len(batch)]
                used += ids
                requests = [
                    JobRequest(workload.jobspec, jobid, reserve=True, duration_s=workload.duration_s or 0, policy=policy)
                    for workload, jobid in zip(batch, ids, strict=True)
                ]
                answers = (await self._graph.fluxion.match_batch(requests, call=self._graph.call())).results
                starts.update(
                    (workload.id, answer.at)
                    for workload, answer in zip(batch, answers, strict=True)
                    if answer.verdict in (Verdict.RESERVED, Verdict.GRANTED)
                )
        finally:
            if used:
                await self._graph.fluxion.cancel_many(used, call=self._graph.call())
        return starts
