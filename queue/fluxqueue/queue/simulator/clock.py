"""The simulation: submissions and endings on a virtual clock, the queue's own passes and matcher in between.

At every moment at which something is submitted, ends, or was promised a start, all of it is applied and one round of the policies is run
(`fluxqueue.queue.cycles.Driver`), exactly as the scheduling cycle of a cluster does. Nothing takes time but the jobs, so the same input
gives the same output to the second.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import orjson

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.fluxion.messages import Call, MatchResult, NodeSpec, Pool
from fluxqueue.queue.cycles import Driver
from fluxqueue.queue.jobspecs import SLOT
from fluxqueue.queue.policies.backlog import Backlog
from fluxqueue.queue.policies.estimates import Experience
from fluxqueue.queue.policies.overruns import pushed_end
from fluxqueue.queue.policies.passes import Findings, Line, Memory, Moment, Promise
from fluxqueue.queue.policies.rounds import Discipline, Round
from fluxqueue.queue.records import FluxionJobId, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.simulator.traces import Trace, TraceJob

__all__ = ["Ran", "Simulation"]

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_EPOCH_S = int(_EPOCH.timestamp())
_QUEUE = "default"
_LIMIT = 8
_PROGRESS_EVERY = 500

Progress = Callable[[int], None]


@dataclass(slots=True)
class Ran:
    """What became of a job; times in seconds from the beginning of the trace.

    Attributes
    ----------
    promised_at, first_promise_s, soonest_s
        When it was first promised a start, which one, and the soon end of the range told with it; None where it never was.
    hosts
        Nodes it ran on, by number.
    """

    job: TraceJob
    start_s: int = -1
    end_s: int = -1
    promised_at: int | None = None
    first_promise_s: int | None = None
    soonest_s: int | None = None
    hosts: tuple[int, ...] = ()

    @property
    def wait_s(self) -> int:
        """From submission to start."""
        return self.start_s - self.job.submit_s


class Simulation:
    """One trace under one policy.

    Parameters
    ----------
    trace
        What is submitted.
    discipline
        The queue's policy.
    match_policy
        Fluxion's.
    """

    def __init__(self, trace: Trace, discipline: Discipline, match_policy: str = "lonode") -> None:
        self.ran = [Ran(job) for job in trace.jobs]
        self.cycles = 0
        self.steps = 0
        self._trace = trace
        self._disciplines = {_QUEUE: discipline}
        self._match_policy = match_policy
        self._fluxion = LocalFluxion()
        self._backlog = Backlog()
        self._promises: dict[WorkloadId, Promise] = {}
        self._driver = Driver(self._fluxion, self._identify, self._granted, explain=False, limit=_LIMIT)
        self._ends: list[tuple[int, int]] = []
        self._planned_ends: dict[int, int] = {}
        self._overdue: list[tuple[int, int]] = []
        self._experience = Experience()
        self._roomier = False
        self._memory = Memory()
        self._now = 0
        self._finished = 0

    async def run(self, progress: Progress | None = None) -> Sequence[Ran]:
        """Run to the end of the last job.

        Parameters
        ----------
        progress
            Told how many jobs have ended, now and then.
        """
        nodes = [NodeSpec(_node(number), (Pool("core", 1),)) for number in range(self._trace.nodes)]
        await self._fluxion.init(self._match_policy, nodes=nodes, call=Call(now=_EPOCH_S))
        jobs, arrived = self._trace.jobs, 0
        told = 0
        while arrived < len(jobs) or self._ends or self._promises:
            self._now = self._next_moment(jobs[arrived].submit_s if arrived < len(jobs) else None)
            await self._end_what_ends()
            await self._push_overruns()
            submitted = []
            while arrived < len(jobs) and jobs[arrived].submit_s <= self._now:
                submitted.append(_workload(jobs[arrived]))
                arrived += 1
            self._backlog.update(submitted)
            await self._cycle()
            if progress is not None and self._finished - told >= _PROGRESS_EVERY:
                told = self._finished
                progress(told)
        if progress is not None:
            progress(self._finished)
        return self.ran

    def _next_moment(self, submission: int | None) -> int:
        moments = [promise.start - _EPOCH_S for promise in self._promises.values() if promise.start - _EPOCH_S > self._now]
        if submission is not None:
            moments.append(submission)
        moments += [heap[0][0] for heap in (self._ends, self._overdue) if heap]
        return max(min(moments), self._now)

    async def _end_what_ends(self) -> None:
        ended: list[int] = []
        while self._ends and self._ends[0][0] <= self._now:
            _, number = heapq.heappop(self._ends)
            ended.append(number)
            planned = self._planned_ends.pop(number)
            self._roomier = self._roomier or planned > self._now
        if ended:
            self._memory.clear()
            self._finished += len(ended)
            await self._fluxion.cancel_many(ended, call=self._call())

    async def _push_overruns(self) -> None:
        holders = {promise.jobid: found for found, promise in self._promises.items()}
        while self._overdue and self._overdue[0][0] <= self._now:
            planned, number = heapq.heappop(self._overdue)
            if number not in self._planned_ends:
                continue
            start = self.ran[number - 1].start_s
            end = pushed_end(_at(start), _at(planned), _at(self._now))
            self._planned_ends[number] = end_s = int((end - _EPOCH).total_seconds())
            heapq.heappush(self._overdue, (end_s, number))
            done = await self._fluxion.extend(number, _EPOCH_S + end_s, call=self._call())
            for jobid in done.displaced:
                if (found := holders.get(FluxionJobId(jobid))) is not None:
                    self._promises.pop(found, None)
            if done.displaced:
                self._roomier = True
                self._memory.clear()

    async def _cycle(self) -> None:
        if not len(self._backlog):
            self._roomier = False
            return
        self.cycles += 1
        moment = Moment(_EPOCH_S + self._now, roomier=self._roomier)
        self._roomier = False
        round_ = Round([Line(_QUEUE, self._backlog, dict(self._promises), self._memory)], self._disciplines, moment)
        findings = await self._driver.run(round_, self._promises, self._call())
        self.steps = self._driver.steps
        for each in findings:
            self._note(each)

    def _note(self, findings: Findings) -> None:
        for workload, answer in findings.promised.values():
            ran = self.ran[workload.id - 1]
            if ran.first_promise_s is None:
                ran.promised_at = self._now
                ran.first_promise_s = answer.at - _EPOCH_S
                ran.soonest_s = self._experience.soonest(self._now, ran.first_promise_s)
        self._backlog.remove_all(workload.id for workload, _ in findings.granted)

    async def _identify(self, workloads: Sequence[Workload]) -> Sequence[FluxionJobId]:
        return [FluxionJobId(workload.id) for workload in workloads]

    async def _granted(self, answers: Sequence[tuple[Workload, MatchResult]]) -> None:
        for workload, answer in answers:
            ran = self.ran[workload.id - 1]
            ran.start_s = self._now
            if ran.first_promise_s is not None and ran.promised_at is not None:
                self._experience.learn(ran.first_promise_s - ran.promised_at, self._now - ran.promised_at)
            ran.end_s = self._now + ran.job.runtime_s
            ran.hosts = tuple(int(share.node[1:]) for share in answer.shares)
            planned = answer.end - _EPOCH_S
            self._planned_ends[workload.id] = planned
            heapq.heappush(self._ends, (ran.end_s, int(workload.id)))
            if planned < ran.end_s:
                heapq.heappush(self._overdue, (planned, int(workload.id)))

    def _call(self) -> Call:
        return Call(now=_EPOCH_S + self._now)


def _node(number: int) -> str:
    return f"n{number:05}"


def _at(second: int) -> datetime:
    return _EPOCH + timedelta(seconds=second)


_JOBSPECS: dict[int, str] = {}


def _jobspec(nodes: int) -> str:
    """Whole nodes; how long is said with each call, so that equal sizes share a jobspec."""
    text = _JOBSPECS.get(nodes)
    if text is None:
        slot = {"type": "slot", "count": nodes, "label": SLOT, "with": [{"type": "core", "count": 1}]}
        text = orjson.dumps({"version": 1, "resources": [slot], "tasks": [], "attributes": {"system": {}}}).decode()
        _JOBSPECS[nodes] = text
    return text


def _workload(job: TraceJob) -> Workload:
    return Workload(
        id=WorkloadId(job.number),
        uid=str(job.number),
        api_version="batch/v1",
        kind="Job",
        namespace="simulated",
        name=f"job-{job.number}",
        queue=_QUEUE,
        priority=0,
        jobspec=_jobspec(job.nodes),
        shape=f"{job.nodes}/{job.requested_s}",
        pods=job.nodes,
        duration_s=job.requested_s,
        duration_assumed=False,
        release_mode=ReleaseMode.PIN,
        generation=1,
        state=State.PENDING,
        reason=Reason.NONE,
        message="",
        submitted_at=_at(job.submit_s),
    )
