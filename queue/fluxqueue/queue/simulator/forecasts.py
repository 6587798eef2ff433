"""What would become of the queue of a live installation: who starts when, under its own policies or others, on its nodes or more.

The same passes and the same matcher as everywhere, on a virtual clock that begins at the moment of the `Situation`. Everything is
believed to take as long as it says and nobody new arrives, so this answers "what if nothing else happened" and no more. Work without an
end never gives back what it has; who could only start behind it has no start here.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.fluxion.messages import Call, MatchResult, NodeShare
from fluxqueue.queue.cycles import Driver
from fluxqueue.queue.limits import Quotas
from fluxqueue.queue.policies.backlog import Backlog
from fluxqueue.queue.policies.passes import Line, Memory, Moment, Promise
from fluxqueue.queue.policies.rounds import Round
from fluxqueue.queue.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.simulator.situations import Situation

__all__ = ["Forecast", "forecast", "forecast_table", "under"]

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Forecast:
    """Who starts when.

    Attributes
    ----------
    starts
        Unix seconds by workload; None where no start can be told.
    reasons
        Why not, by workload, where the matcher said so.
    """

    starts: Mapping[WorkloadId, int | None]
    reasons: Mapping[WorkloadId, str]


def under(situation: Situation, policy: Policy, depth: int) -> Situation:
    """The same with one policy for all queues; each keeps its limits."""
    return replace(situation, disciplines={name: replace(each, policy=policy, depth=depth) for name, each in situation.disciplines.items()})


async def forecast(situation: Situation, match_policy: str = "lonode") -> Forecast:
    """Run a situation until nobody more can start."""
    return await _Run(situation).run(match_policy)


class _Run:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._now = situation.now
        self._fluxion = LocalFluxion()
        self._lines = {name: Backlog() for name in situation.disciplines}
        for name, backlog in self._lines.items():
            backlog.update(workload for workload in situation.pending if workload.queue == name)
        self._memories = {name: Memory() for name in situation.disciplines}
        self._promises: dict[WorkloadId, Promise] = {}
        self._holders = {each.workload.id: (each.workload, [share.node for share in each.allocation.shares]) for each in situation.running}
        self._ends = [(each.allocation.end, each.allocation.jobid) for each in situation.running if each.allocation.end]
        heapq.heapify(self._ends)
        self._limits = {name: each.limits for name, each in situation.disciplines.items() if each.limits is not None}
        self._quotas = Quotas({}, ())
        self._waiting = {workload.id: workload for workload in situation.pending}
        self._starts: dict[WorkloadId, int | None] = {workload.id: None for workload in situation.pending}
        self._reasons: dict[WorkloadId, str] = {}

    async def run(self, match_policy: str) -> Forecast:
        call = Call(now=self._now)
        await self._fluxion.init(match_policy, nodes=self._situation.nodes, call=call)
        await self._fluxion.restore([each.allocation for each in self._situation.running], call=call)
        known = {node.name for node in self._situation.nodes}
        taken = [NodeShare(node, amounts=amounts) for node, amounts in self._situation.foreign.items() if node in known]
        await self._fluxion.resize(taken, call=call)
        driver = Driver(self._fluxion, self._identify, self._granted)
        for turn in count():
            await self._cycle(driver, roomier=turn == 0)
            moments = [promise.start for promise in self._promises.values() if promise.start > self._now]
            moments += [self._ends[0][0]] if self._ends else []
            if not moments or not any(len(backlog) for backlog in self._lines.values()):
                break
            self._now = min(moments)
            await self._end_what_ends()
        return Forecast(self._starts, self._reasons)

    async def _end_what_ends(self) -> None:
        ended = []
        while self._ends and self._ends[0][0] <= self._now:
            ended.append(heapq.heappop(self._ends)[1])
        if ended:
            await self._fluxion.cancel_many(ended, call=Call(now=self._now))
            for jobid in ended:
                self._holders.pop(WorkloadId(jobid), None)
            for memory in self._memories.values():
                memory.clear()

    async def _cycle(self, driver: Driver, *, roomier: bool) -> None:
        lines = [
            Line(name, backlog, {found: promise for found, promise in self._promises.items() if found in backlog}, self._memories[name])
            for name, backlog in self._lines.items()
        ]
        self._quotas = Quotas(self._limits, ())
        for holder, hosts in self._holders.values():
            self._quotas.take(holder, hosts)
        for found, promise in self._promises.items():
            self._quotas.take(self._waiting[found], [share.node for share in promise.shares])
        round_ = Round(lines, self._situation.disciplines, Moment(self._now, roomier, quotas=self._quotas))
        for findings in await driver.run(round_, self._promises, Call(now=self._now)):
            gone = [workload.id for workload, _ in findings.granted if workload.id in self._holders]
            for change in findings.reasons:
                if change.reason in (Reason.UNSATISFIABLE, Reason.INVALID_REQUEST):
                    self._reasons[change.workload] = change.message
                    gone.append(change.workload)
            for backlog in self._lines.values():
                backlog.remove_all(gone)

    async def _identify(self, workloads: Sequence[Workload]) -> Sequence[FluxionJobId]:
        return [FluxionJobId(workload.id) for workload in workloads]

    async def _granted(self, answers: Sequence[tuple[Workload, MatchResult]]) -> None:
        for workload, answer in answers:
            hosts = [share.node for share in answer.shares]
            self._quotas.drop(workload.id)
            if self._quotas.refusal(workload) or self._quotas.excess(workload, hosts):
                self._quotas.stand_aside(workload)
                await self._fluxion.cancel_many([answer.jobid], call=Call(now=self._now))
                continue
            self._quotas.take(workload, hosts)
            self._holders[workload.id] = workload, hosts
            self._starts[workload.id] = self._now
            if workload.duration_s:
                heapq.heappush(self._ends, (answer.end, int(workload.id)))


def forecast_table(situation: Situation, forecasts: Mapping[str, Forecast]) -> str:
    """What each plan comes to in all, then when each of the first in line would start."""
    running, pending = len(situation.running), situation.pending
    lines = [f"{len(situation.nodes)} nodes, {running} running, {len(pending)} pending"]
    lines += [f"  left out: {number}, because the work {why}" for why, number in situation.left_out]
    width = max(12, *(len(name) for name in forecasts))
    lines += ["", f"{'plan'.ljust(width)}  {'start':>10}  {'mean wait':>10}  {'median':>10}  {'last start':>10}"]
    for name, each in forecasts.items():
        waits = [start - situation.now for start in each.starts.values() if start is not None]
        cells = [_span(float(np.mean(waits))), _span(float(np.median(waits))), _span(max(waits))] if waits else ["-", "-", "-"]
        lines.append("  ".join([name.ljust(width), f"{len(waits)} of {len(pending)}".rjust(10), *(cell.rjust(10) for cell in cells)]))
    if pending:
        lines += ["", "  ".join(["workload".ljust(40), *(name.rjust(width) for name in forecasts)])]
    for workload in pending[:_SHOWN]:
        cells = [_start(each, workload.id, situation.now) for each in forecasts.values()]
        lines.append("  ".join([f"{workload.namespace}/{workload.name}"[:40].ljust(40), *(cell.rjust(width) for cell in cells)]))
    if len(pending) > _SHOWN:
        lines.append(f"and {len(pending) - _SHOWN} more")
    never = {reason for each in forecasts.values() for reason in each.reasons.values()}
    return "\n".join([*lines, *(f"never: {reason}" for reason in sorted(never))]) + "\n"


def _start(plan: Forecast, workload: WorkloadId, now: int) -> str:
    start = plan.starts.get(workload)
    if start is None:
        return "never" if workload in plan.reasons else "no end known"
    return "now" if start <= now else "in " + _span(start - now)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return (
        f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"
    )
