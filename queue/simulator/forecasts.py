"""Forecasts for the queue of a live installation: who starts when, under its own policies or others, on its
nodes or more.

The same passes and the same matcher run on a virtual clock that begins at the time of the `ClusterSnapshot`.
All work takes its stated duration and no other work arrives, so a forecast says what happens if nothing else
does. Work without an end keeps its nodes for ever. Work that could only start after it has no start here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count

import numpy as np

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import AtLimit, Policy
from fluxqueue.fluxion.changes import CancelJobs, ResizeSystem, RestoreJobs, SetAdvanceReservations
from fluxqueue.fluxion.messages import CallContext, MatchResult, NodeShare, RestoredJob
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.flavors import closed_flavors
from fluxqueue.queue.model.records import GUARANTEED_FIRST, Allocation, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.guarantees import Guarantees, largest_of
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.limits.submitted_limits import beyond_submitted
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.passes import (
    CycleContext,
    HeldReservation,
    PendingQueue,
    RefusalCache,
)
from fluxqueue.queue.scheduling.policies.rounds import Round
from fluxqueue.queue.scheduling.round_driver import RoundDriver
from fluxqueue.queue.simulator.cluster_snapshot import ClusterSnapshot
from fluxqueue.queue.simulator.simulated_budgets import SimulatedBudgets

__all__ = ["Forecast", "forecast", "forecast_table", "under"]

_SHOWN = 20
_MOST_PERIODS = 12
"""Periods of budgets that begin one after the other, and at least the next one of each,
before a forecast finds that nothing starts."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Start of each workload.

    Attributes
    ----------
    starts
        Unix seconds by workload; None if there is no start.
    reasons
        Why a workload never starts, if the matcher refused it for good.
    waits
        What else was said last of a workload that was not started: a limit, or what it waits for.
    nodes
        Of each workload that starts, one for each of its slots.
    """

    starts: Mapping[WorkloadId, int | None]
    reasons: Mapping[WorkloadId, str]
    waits: Mapping[WorkloadId, str]
    nodes: Mapping[WorkloadId, Sequence[str]]


def under(snapshot: ClusterSnapshot, policy: Policy, depth: int) -> ClusterSnapshot:
    """Return the snapshot with one policy for all queues. Each queue keeps its limits."""
    return replace(
        snapshot,
        disciplines={
            name: replace(each, policy=policy, depth=depth) for name, each in snapshot.disciplines.items()
        },
    )


async def forecast(snapshot: ClusterSnapshot, match_policy: str = "lonode") -> Forecast:
    """Run the queue until no more work can start."""
    return await _Run(snapshot).run(match_policy)


class _Run:
    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._now = snapshot.now
        self._fluxion = LocalFluxion()
        self._lines = {name: Backlog() for name in snapshot.disciplines}
        for name, backlog in self._lines.items():
            backlog.update(workload for workload in snapshot.pending if workload.queue == name)
        self._refusal_caches = {name: RefusalCache() for name in snapshot.disciplines}
        self._reservations: dict[WorkloadId, HeldReservation] = {}
        self._holders = {
            each.workload.id: (each.workload, [share.node for share in each.allocation.shares])
            for each in snapshot.running
        }
        self._ends = [
            (each.allocation.end, each.allocation.jobid) for each in snapshot.running if each.allocation.end
        ]
        heapq.heapify(self._ends)
        self._limits = {
            name: each.limits for name, each in snapshot.disciplines.items() if each.limits is not None
        }
        self._stopping = {
            name for name, each in snapshot.disciplines.items() if each.at_limit is AtLimit.STOP
        }
        self._quotas = Quotas({}, ())
        self._budgets = SimulatedBudgets(snapshot.accounts, snapshot.budgets)
        self._budgets.begin(
            self._now,
            ((each.workload, _allocation(each.workload, each.allocation)) for each in snapshot.running),
        )
        self._periods_left, self._all_begun = _MOST_PERIODS, self._budgets.all_begun(self._now)
        self._first: frozenset[WorkloadId] = frozenset()
        self._edges = {edge for each in snapshot.reservations for time in each.times for edge in time}
        self._waiting = {workload.id: workload for workload in snapshot.pending}
        at = datetime.fromtimestamp(self._now, UTC)
        self._openings = [
            (int(opening.timestamp()), workload.id)
            for workload in snapshot.pending
            for _, opening in closed_flavors(workload, at)
        ]
        self._openings.sort(reverse=True)
        self._open_flavors({workload_id for _, workload_id in self._openings})
        self._starts: dict[WorkloadId, int | None] = {workload.id: None for workload in snapshot.pending}
        self._reasons: dict[WorkloadId, str] = {}
        self._waits: dict[WorkloadId, str] = {}
        self._nodes: dict[WorkloadId, Sequence[str]] = {}

    async def run(self, match_policy: str) -> Forecast:
        call = CallContext(now=self._now)
        await self._fluxion.init(match_policy, nodes=self._snapshot.nodes, call=call)
        await self._fluxion.apply(
            [RestoreJobs([each.allocation for each in self._snapshot.running])], call=call
        )
        known = {node.name for node in self._snapshot.nodes}
        taken = [
            NodeShare(node, amounts=amounts)
            for node, amounts in self._snapshot.foreign.items()
            if node in known
        ]
        await self._fluxion.apply([ResizeSystem(taken)], call=call)
        await self._fluxion.apply([SetAdvanceReservations(self._snapshot.reservations)], call=call)
        latest_nodes = {name for name, each in self._snapshot.disciplines.items() if each.reserves_latest}
        driver = RoundDriver(self._fluxion, self._identify, self._granted, latest_nodes=latest_nodes)
        for number in count():
            await self._cycle(driver, capacity_changed=number == 0 or self._now in self._edges)
            times = [
                reservation.start
                for reservation in self._reservations.values()
                if reservation.start > self._now
            ]
            times += [self._ends[0][0]] if self._ends else []
            times += [edge for edge in self._edges if edge > self._now]
            times += self._next_opening()
            starts = self._next_period()
            times += starts
            if not times or not any(len(backlog) for backlog in self._lines.values()):
                break
            self._now = min(times)
            if self._now in starts:
                self._periods_left -= 1
            await self._end_due()
        for workload in (each for backlog in self._lines.values() for each in backlog):
            if over := self._quotas.refusal(workload):
                self._waits[workload.id] = over.message
        return Forecast(self._starts, self._reasons, self._waits, self._nodes)

    def _next_period(self) -> list[int]:
        """Return when a budget begins again, unless nothing started in the last periods."""
        start = self._budgets.next_period(self._now)
        if self._periods_left == _MOST_PERIODS:
            self._all_begun = self._budgets.all_begun(self._now)
        return [start] if start is not None and (self._periods_left > 0 or start <= self._all_begun) else []

    def _next_opening(self) -> list[int]:
        """Return when a flavor opens next to work that waits."""
        while self._openings and self._starts[self._openings[-1][1]] is not None:
            self._openings.pop()
        return [at for at, _ in self._openings[-1:]]

    def _open_flavors(self, workloads: Iterable[WorkloadId]) -> None:
        """Let work use the flavors for which it has waited for long enough."""
        at = datetime.fromtimestamp(self._now, UTC)
        for workload in (self._waiting[each] for each in workloads):
            closed, backlog = len(closed_flavors(workload, at)), self._lines[workload.queue]
            if (row := backlog.position(workload.id)) is not None and closed != backlog[row].closed_flavors:
                backlog.update([replace(backlog[row], closed_flavors=closed)])

    async def _end_due(self) -> None:
        opened = []
        while self._openings and self._openings[-1][0] <= self._now:
            opened.append(self._openings.pop()[1])
        self._open_flavors(opened)
        ended = []
        while self._ends and self._ends[0][0] <= self._now:
            ended.append(heapq.heappop(self._ends)[1])
        if self._now in self._edges:
            for refusal_cache in self._refusal_caches.values():
                refusal_cache.clear()
        if ended:
            await self._fluxion.apply([CancelJobs(ended)], call=CallContext(now=self._now))
            for jobid in ended:
                self._holders.pop(WorkloadId(jobid), None)
                self._budgets.end(WorkloadId(jobid), self._now)
            for refusal_cache in self._refusal_caches.values():
                refusal_cache.clear()

    def _put_guaranteed_first(self) -> bool:
        """Order work that is within what is guaranteed to its account before all other, as a cycle does;
        return True if that changed.
        """
        guarantees = Guarantees(self._snapshot.accounts, self._holders.values())
        before, self._first = (
            self._first,
            guarantees.first(self._lines.values(), largest_of(self._snapshot.nodes)),
        )
        moved = before ^ self._first
        for backlog in self._lines.values() if moved else ():
            added = [
                (each, GUARANTEED_FIRST if each.id in self._first else -GUARANTEED_FIRST)
                for each in backlog
                if each.id in moved
            ]
            backlog.update([replace(each, added_priority=each.added_priority + more) for each, more in added])
        return bool(moved)

    async def _cycle(self, driver: RoundDriver, *, capacity_changed: bool) -> None:
        if self._put_guaranteed_first():
            capacity_changed = True
            for refusal_cache in self._refusal_caches.values():
                refusal_cache.clear()
        queues = [
            PendingQueue(
                name,
                backlog,
                {held.workload: held for held in self._reservations.values() if held.workload in backlog},
                self._refusal_caches[name],
            )
            for name, backlog in self._lines.items()
        ]
        accounts, holders = self._snapshot.accounts, [holder for holder, _ in self._holders.values()]
        waiting = [workload for backlog in self._lines.values() for workload in backlog]
        beyond = beyond_submitted(
            [*waiting, *holders], accounts, lambda workload: workload.id in self._holders
        )
        self._quotas = Quotas(
            self._limits, (), accounts, beyond, self._stopping, budgets=self._budgets.room(self._now)
        )
        for holder, hosts in self._holders.values():
            self._quotas.add_usage(holder, hosts)
        for reservation in self._reservations.values():
            self._quotas.add_usage(self._waiting[reservation.workload], reservation.nodes, reservation.shares)
        round_ = Round(queues, self._snapshot.disciplines, self._context(capacity_changed=capacity_changed))
        for result in await driver.run(round_, self._reservations, CallContext(now=self._now)):
            gone = [workload.id for workload, _ in result.granted if workload.id in self._holders]
            for change in result.reasons:
                self._waits[change.workload] = change.message
                if change.reason in (Reason.UNSATISFIABLE, Reason.INVALID_REQUEST):
                    self._reasons[change.workload] = change.message
                    gone.append(change.workload)
            for backlog in self._lines.values():
                backlog.remove_all(gone)

    def _context(self, *, capacity_changed: bool) -> CycleContext:
        starts = [start for each in self._snapshot.reservations for start, _ in each.times]
        return CycleContext(self._now, capacity_changed, quotas=self._quotas, reserved_starts=starts)

    async def _identify(self, workloads: Sequence[Workload]) -> Sequence[FluxionJobId]:
        return [FluxionJobId(workload.id) for workload in workloads]

    async def _granted(self, answers: Sequence[tuple[Workload, MatchResult]]) -> None:
        for workload, answer in answers:
            hosts = [share.node for share in answer.shares]
            self._quotas.remove_usage(workload.id)
            if over := self._quotas.refusal(workload) or self._quotas.excess(workload, hosts, answer.shares):
                self._quotas.set_aside(workload, over)
                self._waits[workload.id] = over.message
                await self._fluxion.apply([CancelJobs([answer.jobid])], call=CallContext(now=self._now))
                continue
            self._quotas.add_usage(workload, hosts, answer.shares)
            self._holders[workload.id] = workload, hosts
            self._budgets.start(workload, _allocation(workload, answer, ends=bool(workload.duration_s)))
            self._periods_left = _MOST_PERIODS
            self._starts[workload.id] = self._now
            self._nodes[workload.id] = [
                share.node for share in answer.shares for _ in range(sum(share.slots.values()))
            ]
            if workload.duration_s:
                heapq.heappush(self._ends, (answer.end, int(workload.id)))


def _allocation(workload: Workload, held: MatchResult | RestoredJob, *, ends: bool = True) -> Allocation:
    start, end = (
        datetime.fromtimestamp(held.at, UTC),
        datetime.fromtimestamp(held.end, UTC) if ends and held.end else None,
    )
    jobid = FluxionJobId(held.jobid)
    return Allocation(
        jobid=jobid, workload=workload.id, shares=held.shares, granted_at=start, start=start, end=end
    )


def forecast_table(snapshot: ClusterSnapshot, forecasts: Mapping[str, Forecast]) -> str:
    """Return a table: the totals of each plan, then the starts of the first workloads in the queue."""
    running, pending = len(snapshot.running), snapshot.pending
    queues = [f"{len(snapshot.nodes)} nodes, {running} running, {len(pending)} pending"]
    queues += [f"  left out: {number}, because the work {why}" for why, number in snapshot.left_out]
    width = max(12, *(len(name) for name in forecasts))
    queues += [
        "",
        f"{'plan'.ljust(width)}  {'start':>10}  {'mean wait':>10}  {'median':>10}  {'last start':>10}",
    ]
    for name, each in forecasts.items():
        waits = [start - snapshot.now for start in each.starts.values() if start is not None]
        cells = (
            [_span(float(np.mean(waits))), _span(float(np.median(waits))), _span(max(waits))]
            if waits
            else ["-", "-", "-"]
        )
        queues.append(
            "  ".join(
                [
                    name.ljust(width),
                    f"{len(waits)} of {len(pending)}".rjust(10),
                    *(cell.rjust(10) for cell in cells),
                ]
            )
        )
    if pending:
        queues += ["", "  ".join(["workload".ljust(40), *(name.rjust(width) for name in forecasts)])]
    for workload in pending[:_SHOWN]:
        cells = [_start(each, workload.id, snapshot.now) for each in forecasts.values()]
        queues.append(
            "  ".join(
                [
                    f"{workload.namespace}/{workload.name}"[:40].ljust(40),
                    *(cell.rjust(width) for cell in cells),
                ]
            )
        )
    if len(pending) > _SHOWN:
        queues.append(f"and {len(pending) - _SHOWN} more")
    never = {reason for each in forecasts.values() for reason in each.reasons.values()}
    return "\n".join([*queues, *(f"never: {reason}" for reason in sorted(never))]) + "\n"


def _start(plan: Forecast, workload: WorkloadId, now: int) -> str:
    start = plan.starts.get(workload)
    if start is None:
        return "never" if workload in plan.reasons else "no end known"
    return "now" if start <= now else "in " + _span(start - now)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return (
        f"{seconds / 60:.0f} min"
        if seconds < 7_200
        else f"{seconds / 3_600:.1f} h"
        if seconds < 172_800
        else f"{seconds / 86_400:.1f} d"
    )
