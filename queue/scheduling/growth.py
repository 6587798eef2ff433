"""Growth of Jobs that were started with fewer pods than they asked for.

At the end of a cycle, when all work that waits had its turn, the matcher is asked in a trial how many more
pods of such a Job fit now. The Job then gets a higher parallelism (`fluxqueue.queue.release.job_resizer`),
and its new pods are matched like those of any Job that grows, but behind all other work. So a Job grows into
what nobody else can use now, and delays no reservation. Nothing is stored: a new leader looks at the Jobs as
they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from itertools import islice
from typing import Protocol

import structlog

from fluxqueue.api.fluxjobs import State
from fluxqueue.fluxion.messages import JobMatchRequest, MatchResult, MatchVerdict, NodeShare
from fluxqueue.fluxion.rpc.failures import InternalError, InvalidCall
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.model.flavors import waits_since_s
from fluxqueue.queue.model.given_back import given_ranks
from fluxqueue.queue.model.job_sizes import PATIENCE, JobPods, may_grow_by, next_parallelism
from fluxqueue.queue.model.moldable import duration_of_growth_s, is_moldable, started_pods, with_pods
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.scheduling.cycle import Cycle
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog, key_of
from fluxqueue.queue.scheduling.wakeups import Wakeup
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Growth", "JobSizes", "NoJobSizes"]

log = structlog.get_logger()

_MOST_JOBS = 20
"""Jobs for which the matcher is asked in one cycle."""
_MOST_READ = 200
"""Jobs that are read in one cycle: of more, those that were not read for the longest time."""
_MOST_PODS = 200
"""Pods for which the matcher is asked in one cycle, all of them in one trial."""
_SETTLING = timedelta(seconds=3)
"""After Jobs grew, no more is asked for so long:
their pods are still to come, and what is free counts for them."""
_LATER_S = 1.0
_AGAIN = timedelta(seconds=30)
"""A Job for which there was no room is tried again after this, or as soon as anything became free."""


_NEVER = datetime.min.replace(tzinfo=UTC)


class JobSizes(Protocol):
    """Reads and changes how many pods of a Job run at once."""

    def pods_of(self, workload: Workload) -> JobPods | None:
        """Return the pods of a Job; None if its parallelism is not the queue's to change now."""
        ...

    def resize(self, workload: WorkloadId, parallelism: int) -> None:
        """Have the parallelism of a Job changed soon."""
        ...


class NoJobSizes:
    """No Jobs: nothing grows."""

    def pods_of(self, workload: Workload) -> JobPods | None:
        """Return None."""
        return None

    def resize(self, workload: WorkloadId, parallelism: int) -> None:
        """Do nothing."""


class Growth:
    """Lets Jobs grow, and gives up pods that find no node. The caller holds the lock of the graph.

    Parameters
    ----------
    ledger, graph
        What is stored, and what the matcher holds.
    wakeup
        How further cycles are requested.
    sizes
        The Jobs.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper, wakeup: Wakeup, sizes: JobSizes) -> None:
        self._ledger = ledger
        self._graph = graph
        self._wakeup = wakeup
        self._sizes = sizes
        self._probes: list[FluxionJobId] = []
        self._given_up: dict[WorkloadId, datetime] = {}
        self._grown: set[WorkloadId] = set()
        self._tried: dict[WorkloadId, datetime] = {}
        self._read: dict[WorkloadId, datetime] = {}
        self._settled_at = _NEVER
        self._small = {workload.id for workload in ledger.all() if _is_small(workload)}

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Keep the Jobs that may grow, and request a cycle for a new one."""
        workload = self._ledger.get(workload_id)
        if workload is not None and _is_small(workload):
            if workload_id not in self._small:
                self._small.add(workload_id)
                self._wakeup.soon()
        else:
            self._small.discard(workload_id)
            self._given_up.pop(workload_id, None)
            self._grown.discard(workload_id)
            self._tried.pop(workload_id, None)
            self._read.pop(workload_id, None)

    async def run(self, cycle: Cycle, backlogs: Mapping[str, Backlog]) -> None:
        """Look at the Jobs that run with fewer pods than they asked for, in policy order."""
        if not self._small:
            return
        now = self._ledger.wall()
        asked: list[tuple[Workload, JobPods, int]] = []
        left = _MOST_PODS
        for workload in self._chosen(now):
            self._read[workload.id] = now
            pods = self._sizes.pods_of(workload)
            if pods is None:
                continue
            wanted = may_grow_by(pods, now, self._given_up.get(workload.id))
            if (
                not wanted
                or not self._is_due(workload.id, cycle, now)
                or _is_closed(workload, cycle, backlogs)
            ):
                self._apply(workload.id, pods, 0, now)
            elif left <= 0 or len(asked) >= _MOST_JOBS:
                self._wakeup.soon()
            else:
                asked.append((workload, pods, min(wanted, left)))
                left -= wanted
        if not asked:
            return
        if now < self._settled_at:
            self._wakeup.soon((self._settled_at - now).total_seconds())
            return
        rooms = await self._rooms([(workload, wanted) for workload, _, wanted in asked], cycle.quotas, now)
        if any(rooms):
            self._settled_at = now + _SETTLING
        for (workload, pods, _), fits in zip(asked, rooms, strict=True):
            self._tried[workload.id] = now
            self._apply(workload.id, pods, fits, now)

    def _chosen(self, now: datetime) -> list[Workload]:
        """Return the Jobs to read in this cycle, in policy order."""
        small = [
            workload for workload_id in self._small if (workload := self._ledger.get(workload_id)) is not None
        ]
        if len(small) > _MOST_READ:
            last = {workload.id: self._read.get(workload.id, _NEVER) for workload in small}
            small = nsmallest(_MOST_READ, small, key=lambda workload: (last[workload.id], key_of(workload)))
            if min(last[workload.id] for workload in small) < now - _AGAIN:
                self._wakeup.soon(_LATER_S)
        return sorted(small, key=key_of)

    def _is_due(self, workload: WorkloadId, cycle: Cycle, now: datetime) -> bool:
        tried = self._tried.get(workload)
        return cycle.capacity_changed or tried is None or now >= tried + _AGAIN

    def _apply(self, workload: WorkloadId, pods: JobPods, fits: int, now: datetime) -> None:
        parallelism = next_parallelism(pods, fits, now)
        if parallelism > pods.parallelism:
            self._grown.add(workload)
        elif parallelism < pods.parallelism and (workload in self._grown or not self._gave_back(workload)):
            self._given_up[workload] = now
            self._grown.discard(workload)
        if parallelism != pods.parallelism:
            self._sizes.resize(workload, parallelism)
        elif pods.waiting_since is not None:
            self._wakeup.soon(max((pods.waiting_since + PATIENCE - now).total_seconds(), 0.0) + 1.0)

    def _gave_back(self, workload_id: WorkloadId) -> bool:
        """True if a Job gave pods back: that those that replace them find no node says nothing of its
        growth.
        """
        workload = self._ledger.get(workload_id)
        return workload is not None and bool(given_ranks(workload))

    async def _rooms(self, asked: Sequence[tuple[Workload, int]], quotas: Quotas, now: datetime) -> list[int]:
        """Return how many more pods of each Job fit now, one Job after the other,
        beside all reservations and within the limits.
        """
        if (missing := sum(wanted for _, wanted in asked) - len(self._probes)) > 0:
            self._probes += await self._ledger.next_jobids(missing)
        unused = iter(self._probes)
        requests = [self._requests(workload, list(islice(unused, wanted)), now) for workload, wanted in asked]
        try:
            answers = await self._trial([each for part in requests for each in part])
        except (InternalError, InvalidCall):
            answers = [each for part in requests for each in await self._trial_alone(part)]
        rest = iter(answers)
        return [
            _admitted(
                replace(workload, duration_s=part[0].duration_s or None) if part else workload,
                [share for answer in islice(rest, len(part)) for share in answer.shares],
                quotas,
            )
            for (workload, _), part in zip(asked, requests, strict=True)
        ]

    def _requests(
        self, workload: Workload, probes: Sequence[FluxionJobId], now: datetime
    ) -> list[JobMatchRequest]:
        allocation = self._ledger.allocation(workload.id)
        if allocation is None:
            return []
        single, duration_s = (
            with_pods(workload.jobspec, 1),
            duration_of_growth_s(workload, allocation, now) or 0,
        )
        since = waits_since_s(workload)
        return [JobMatchRequest(single, probe, duration_s=duration_s, waits_since=since) for probe in probes]

    async def _trial(self, requests: Sequence[JobMatchRequest]) -> Sequence[MatchResult]:
        """Return the answers; none that is not granted has shares."""
        return (await self._graph.fluxion.trial(requests, without=(), call=self._graph.call())).results

    async def _trial_alone(self, requests: Sequence[JobMatchRequest]) -> Sequence[MatchResult]:
        """Ask for one Job, after the matcher failed on one of several: that one does not grow."""
        try:
            return await self._trial(requests)
        except (InternalError, InvalidCall) as error:
            OBJECT_FAILURES.labels("cycle").inc()
            log.warning("growth.not_tried", error=str(error))
            return [MatchResult(MatchVerdict.INVALID, each.jobid) for each in requests]


def _is_small(workload: Workload) -> bool:
    running = workload.state is State.RUNNING and not workload.evicting and not is_over_time_limit(workload)
    return running and is_moldable(workload) and started_pods(workload) < workload.pods


def _admitted(workload: Workload, shares: Sequence[NodeShare], quotas: Quotas) -> int:
    """Return how many of the pods that would get these shares the limits admit,
    for the duration that the workload has here.
    """
    if not quotas.limited(workload.queue):
        return len(shares)
    for pods in range(len(shares), 0, -1):
        # without its shape: what these pods may use says nothing of a waiting Job of its kind
        wanted, given = replace(workload, jobspec=with_pods(workload.jobspec, pods), shape=""), shares[:pods]
        if (
            quotas.refusal(wanted) is None
            and quotas.excess(wanted, [share.node for share in given], given) is None
        ):
            return pods
    return 0


def _is_closed(workload: Workload, cycle: Cycle, backlogs: Mapping[str, Backlog]) -> bool:
    """True if nothing may overtake the first of its queue, so that pods behind all others would wait."""
    discipline = cycle.disciplines.get(workload.queue)
    backlog = backlogs.get(workload.queue)
    return discipline is not None and not discipline.reserves and backlog is not None and len(backlog) > 0
