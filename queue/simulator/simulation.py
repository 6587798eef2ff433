"""The simulation: submissions and ends of jobs on a virtual clock, with the queue's own passes and matcher.

Events are submissions, ends of jobs and starts of reservations. At the time of each event the simulation
applies everything that is due and runs one round of the policies
(`fluxqueue.queue.scheduling.round_driver.RoundDriver`), as the scheduling cycle of a cluster does. Only jobs
take time, so the same input gives the same output to the second.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fluxqueue.fluxion.changes import CancelJobs, CancelPart, ExtendJob, RestoreJobs
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, MatchResult, NodeShare, Pool, RestoredJob
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.jobspecs import SLOT
from fluxqueue.queue.model.records import (
    GUARANTEED_FIRST,
    MOVED_FIRST,
    ROOM_FIRST,
    FluxionJobId,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.scheduling.added_priorities import AddedPriorities
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.estimate_history import EstimateHistory
from fluxqueue.queue.scheduling.policies.passes import (
    CycleContext,
    HeldReservation,
    PassResult,
    PendingQueue,
    RefusalCache,
)
from fluxqueue.queue.scheduling.policies.predictions import DurationHistory
from fluxqueue.queue.scheduling.policies.rounds import Round
from fluxqueue.queue.scheduling.policies.victims import Victims
from fluxqueue.queue.scheduling.round_driver import RoundDriver
from fluxqueue.queue.simulator.consolidation import SimulatedConsolidation
from fluxqueue.queue.simulator.preemption import SimulatedPreemption, WholeVictims
from fluxqueue.queue.simulator.simulated_chains import SimulatedChains
from fluxqueue.queue.simulator.simulated_ends import SimulatedEnds
from fluxqueue.queue.simulator.simulated_growth import SimulatedGrowth
from fluxqueue.queue.simulator.simulated_guarantees import SimulatedGuarantees
from fluxqueue.queue.simulator.simulated_shares import SimulatedShares
from fluxqueue.queue.simulator.simulated_work import (
    EPOCH,
    EPOCH_S,
    SimulatedJob,
    node_name,
    node_number,
    prediction_key,
    time_at,
    workload_of,
)
from fluxqueue.queue.simulator.traces import Trace, TraceJob

__all__ = ["Simulation"]

_LIMIT = 8
_MOST_AT_ONCE = 16
"""Choices of victims at one time. Others follow at the next event."""
_PROGRESS_EVERY = 500
_NOTHING: Mapping[str, int] = MappingProxyType({})

Progress = Callable[[int], None]


class Simulation:
    """One trace under the policies of its queues.

    Parameters
    ----------
    trace
        The jobs.
    discipline
        The discipline of all queues, or of each.
    match_policy
        Fluxion's match policy.
    fixed
        Jobs that ran before and run again without waiting. Each takes its nodes at its start, after the jobs
        that start then.
    shares
        Accounts whose fair shares order the work; None: there are none.
    guaranteed
        Nodes that are guaranteed to accounts.
    checkpoint_s
        How often each job saves what it has, so that it goes on there if it is moved or preempted; 0: never.
    wholes
        Another search of victims to compare with; None: the queue's own.

    Attributes
    ----------
    dropped
        Reservations dropped in rounds: time, workload and cause.
    """

    def __init__(
        self,
        trace: Trace,
        discipline: Discipline | Mapping[str, Discipline],
        match_policy: str = "lonode",
        fixed: Sequence[SimulatedJob] = (),
        shares: SimulatedShares | None = None,
        guaranteed: Mapping[str, int] = _NOTHING,
        checkpoint_s: int = 0,
        wholes: WholeVictims | None = None,
    ) -> None:
        self.ran = [SimulatedJob(job) for job in trace.jobs]
        self.cycles = 0
        self.steps = 0
        self._trace = trace
        self._queues = sorted({job.queue for job in trace.jobs})
        self._disciplines = (
            dict.fromkeys(self._queues, discipline) if isinstance(discipline, Discipline) else discipline
        )
        self._match_policy = match_policy
        self._shares = shares
        self._guarantees = SimulatedGuarantees(guaranteed)
        self._added = AddedPriorities({}, {}, EPOCH)
        self._fixed = sorted(fixed, key=lambda each: each.start_s, reverse=True)
        self._of = {each.job.number: each for each in (*self.ran, *fixed)}
        self._fluxion = LocalFluxion()
        self._backlogs = {name: Backlog() for name in self._queues}
        self._reservations: dict[WorkloadId, HeldReservation] = {}
        latest_nodes = {name for name, each in self._disciplines.items() if each.reserves_latest}
        self._driver = RoundDriver(
            self._fluxion,
            self._identify,
            self._granted,
            explain=False,
            limit=_LIMIT,
            latest_nodes=latest_nodes,
        )
        self._estimate_history = EstimateHistory()
        self._durations = DurationHistory()
        self._had_reservations: set[WorkloadId] = set()
        self._capacity_changed = False
        self._refusal_caches = {name: RefusalCache() for name in self._queues}
        self._stops: list[tuple[int, int, tuple[int, ...]]] = []
        """When jobs end, or give some of their nodes back."""
        self._chains = SimulatedChains()
        self._growth = SimulatedGrowth(self._fluxion, EPOCH_S, checkpoint_s)
        self._preemption = SimulatedPreemption(self._fluxion, self._disciplines, EPOCH, self._growth, wholes)
        self._consolidation = SimulatedConsolidation(self._fluxion, self._disciplines, EPOCH, checkpoint_s)
        self._room: dict[WorkloadId, int] = {}
        """What is added to the priority of jobs that were moved, and of the one that gets room."""
        self._moving: set[int] = set()
        self._ends = SimulatedEnds(self._fluxion, self._growth, self._of, self._reservations)
        self._now = 0
        self._finished = 0
        self.dropped: list[tuple[int, int, str]] = []

    async def run(
        self, progress: Progress | None = None, until_s: int | None = None
    ) -> Sequence[SimulatedJob]:
        """Run to the end of the last job, or to a time.

        Parameters
        ----------
        progress
            Is called with the number of ended jobs from time to time.
        until_s
            Stop at the first event from this second on; jobs that wait then have no start. None: at the end
            of the last job.
        """
        nodes = [
            GraphNodeSpec(node_name(number), (Pool("core", self._trace.cores),))
            for number in range(self._trace.nodes)
        ]
        await self._fluxion.init(self._match_policy, nodes=nodes, call=CallContext(now=EPOCH_S))
        jobs, arrived = self._trace.jobs, 0
        reported = 0
        while (
            arrived < len(jobs)
            or self._ends.real
            or self._reservations
            or self._fixed
            or self._chains.times()
        ):
            self._now = self._next_time([jobs[arrived].submit_s] if arrived < len(jobs) else [])
            if until_s is not None and self._now >= until_s:
                break
            if self._shares is not None:
                self._shares.advance(self._now)
            await self._end_due()
            await self._stop_preempted()
            if await self._ends.move(self._now):
                self._capacity_changed = True
                self._clear_refusal_caches()
            first = arrived
            while arrived < len(jobs) and jobs[arrived].submit_s <= self._now:
                arrived += 1
            self._arrive(jobs[first:arrived])
            self._reprioritise()
            await self._cycle()
            for _ in range(_MOST_AT_ONCE):
                if not (await self._preempt() or await self._consolidate()):
                    break
                await self._cycle()
            await self._grow()
            await self._start_fixed()
            if progress is not None and self._finished - reported >= _PROGRESS_EVERY:
                reported = self._finished
                progress(reported)
        if progress is not None:
            progress(self._finished)
        return self.ran

    def _next_time(self, times: list[int]) -> int:
        times += [
            reservation.start - EPOCH_S
            for reservation in self._reservations.values()
            if reservation.start - EPOCH_S > self._now
        ]
        times += [heap[0][0] for heap in (self._ends.real, self._ends.overdue, self._stops) if heap]
        times += [*(each.start_s for each in self._fixed[-1:]), *self._chains.times()]
        return max(min(times), self._now)

    async def _start_fixed(self) -> None:
        while self._fixed and self._fixed[-1].start_s <= self._now:
            each = self._fixed.pop()
            planned = each.start_s + each.job.requested_s
            shares = tuple(
                NodeShare(node_name(host), {SLOT: 1}, {"core": each.job.cores}) for host in each.hosts
            )
            job = RestoredJob(each.job.number, shares, EPOCH_S + each.start_s, EPOCH_S + planned)
            await self._fluxion.apply([RestoreJobs([job])], call=self._call())
            self._expect_to_end(each, planned)

    async def _end_due(self) -> None:
        ended: list[int] = []
        while self._ends.real and self._ends.real[0][0] <= self._now:
            end_s, number = heapq.heappop(self._ends.real)
            if number not in self._ends.planned or self._of[number].end_s != end_s:
                continue  # it was preempted before
            ended.append(number)
            self._chains.ended(number, end_s)
            self._durations.add(prediction_key(self._of[number].job), end_s - self._of[number].start_s)
            if self._shares is not None:
                self._shares.ended(self._of[number].job, len(self._of[number].hosts))
            planned = self._ends.planned.pop(number)
            self._capacity_changed = self._capacity_changed or planned > self._now
        if ended:
            self._clear_refusal_caches()
            self._finished += len(ended)
            await self._fluxion.apply([CancelJobs([*ended, *self._growth.ended(ended)])], call=self._call())

    def _arrive(self, submitted: Sequence[TraceJob]) -> None:
        for job in self._chains.eligible(submitted, self._now):
            self._of[job.number].eligible_s = self._now if job.after else 0
            self._backlogs[job.queue].update([self._prioritised(self._arriving(job))])

    def _arriving(self, job: TraceJob) -> Workload:
        predicts = self._disciplines[job.queue].predicts
        return workload_of(
            job, self._durations.predicted(prediction_key(job), job.requested_s) if predicts else None
        )

    def _prioritised(self, workload: Workload) -> Workload:
        added = self._added.of(workload) + (GUARANTEED_FIRST if workload.id in self._guarantees.first else 0)
        added += self._room.get(workload.id, 0)
        return workload if added == workload.added_priority else replace(workload, added_priority=added)

    def _reprioritise(self) -> None:
        """Give all work that waits the priority that it has now, and so its reservations;
        shares count once a minute, as in a cluster.
        """
        running = (
            (workload, [node_name(host) for host in ran.hosts]) for workload, ran in self._running().values()
        )
        moved = self._guarantees.update(self._backlogs.values(), running)
        added = self._shares.priorities(self._now, time_at(self._now)) if self._shares is not None else None
        if added is None and not moved:
            return
        self._added = added or self._added
        for backlog in self._backlogs.values():
            changed = [now for workload in backlog if (now := self._prioritised(workload)) is not workload]
            backlog.update(changed)
            for workload in changed:
                if (held := self._reservations.get(workload.id)) is not None:
                    self._reservations[workload.id] = replace(held, priority=workload.order_priority)
                    self._capacity_changed = True

    def _clear_refusal_caches(self) -> None:
        for refusal_cache in self._refusal_caches.values():
            refusal_cache.clear()

    async def _cycle(self) -> None:
        if not any(len(backlog) for backlog in self._backlogs.values()):
            self._capacity_changed = False
            return
        self.cycles += 1
        firsts = {
            workload_id: EPOCH_S + first
            for workload_id in self._had_reservations
            if (first := self._of[workload_id].first_reserved_start_s) is not None
        }
        context = CycleContext(
            EPOCH_S + self._now, capacity_changed=self._capacity_changed, first_starts=firsts
        )
        self._capacity_changed = False
        queues = [
            PendingQueue(
                name,
                backlog,
                {held.workload: held for held in self._reservations.values() if held.workload in backlog},
                self._refusal_caches[name],
            )
            for name, backlog in self._backlogs.items()
        ]
        result = await self._driver.run(
            Round(queues, self._disciplines, context), self._reservations, self._call()
        )
        self.steps = self._driver.steps
        for each in result:
            self._record(each)

    async def _grow(self) -> None:
        """Let jobs grow that started with fewer nodes, behind all that waits."""
        strict = {
            name
            for name, backlog in self._backlogs.items()
            if len(backlog) and not self._disciplines[name].reserves
        }
        for ran, nodes in await self._growth.grow(self._now, strict):
            heapq.heappush(self._ends.real, (ran.end_s, ran.job.number))
            if self._shares is not None:
                self._shares.started(ran.job, nodes)

    async def _preempt(self) -> bool:
        """Choose victims for the first that waits; True if they stop at once, and it can be matched."""
        if self._stops or not self._preemption.any:
            return False
        choice = self._preemption.choose(
            self._backlogs, self._reservations, self._running(), self._now, self._guarantees.now
        )
        victims = await choice
        await self._stop(_leaving(victims))
        wake_s = self._preemption.retry_s
        if (
            not victims
            and wake_s is not None
            and (not self._ends.overdue or self._ends.overdue[0][0] > wake_s)
        ):
            heapq.heappush(self._ends.overdue, (wake_s, -1))  # of no job: only the time counts
        return bool(victims) and await self._stop_preempted()

    async def _consolidate(self) -> bool:
        """Move jobs for the first that waits; True if they stop at once, and it can be matched."""
        if self._stops or not self._consolidation.any:
            return False
        moves = await self._consolidation.choose(
            self._backlogs, self._reservations, self._running(), self._now
        )
        if moves is None:
            return False
        self._room = {moves.first: ROOM_FIRST, **dict.fromkeys(moves.moved, MOVED_FIRST)}
        first = self._of[int(moves.first)].job
        self._backlogs[first.queue].update([self._prioritised(self._arriving(first))])
        held = self._reservations[moves.first]
        self._reservations[moves.first] = replace(held, priority=held.priority + ROOM_FIRST)
        self._moving.update(map(int, moves.moved))
        await self._stop(dict.fromkeys(map(int, moves.moved), ()))
        return await self._stop_preempted()

    async def _stop(self, leaving: Mapping[int, tuple[int, ...]]) -> None:
        """Stop jobs at the end of their grace, or have them give some nodes back then."""
        for number, hosts in leaving.items():
            ran = self._of[number]
            grace_s = self._disciplines[ran.job.queue].preemption_rules.grace_seconds
            stop_s = min(self._now + grace_s, ran.end_s)
            heapq.heappush(self._stops, (stop_s, number, hosts))
            if not hosts:
                self._ends.planned[number] = max(stop_s, self._now + 1)
                await self._fluxion.apply(
                    [ExtendJob(number, EPOCH_S + self._ends.planned[number])], call=self._call()
                )

    def _running(self) -> dict[WorkloadId, tuple[Workload, SimulatedJob]]:
        return {
            WorkloadId(each): (self._prioritised(workload_of(self._of[each].job)), self._of[each])
            for each in self._ends.planned
        }

    async def _stop_preempted(self) -> bool:
        """Stop victims whose grace is over: they wait again in their old place, or go on with the nodes that
        they keep; True if there were any.
        """
        stopped: list[int] = []
        smaller = False
        while self._stops and self._stops[0][0] <= self._now:
            _, number, hosts = heapq.heappop(self._stops)
            ran = self._of[number]
            if number not in self._ends.planned:
                continue  # it ended within its grace
            if hosts:
                await self._give_back(ran, hosts)
                smaller = True
                continue
            del self._ends.planned[number]
            stopped.append(number)
            self._growth.stop(number, self._now)
            if self._shares is not None:
                self._shares.ended(ran.job, len(ran.hosts))
            if number in self._moving:
                self._moving.discard(number)
                ran.ran_before_s += self._now - ran.start_s
                ran.moved += 1
            else:
                ran.preempted += 1
            ran.start_s = ran.end_s = -1
            self._backlogs[ran.job.queue].update([self._prioritised(self._arriving(ran.job))])
        if stopped or smaller:
            self._clear_refusal_caches()
            self._capacity_changed = True
            await self._fluxion.apply(
                [CancelJobs([*stopped, *self._growth.ended(stopped)])], call=self._call()
            )
        return bool(stopped) or smaller

    async def _give_back(self, ran: SimulatedJob, hosts: tuple[int, ...]) -> None:
        number, before = ran.job.number, len(ran.hosts)
        pieces, parts = self._growth.held(number, hosts)
        self._growth.give_back(number, hosts, self._now)
        given = [CancelPart(number, part.shares) for part in parts]
        await self._fluxion.apply([CancelJobs(pieces), *given], call=self._call())
        if self._shares is not None:
            self._shares.ended(ran.job, len(hosts))
        heapq.heappush(self._ends.real, (ran.end_s, number))
        left_s = self._ends.planned[number] - self._now
        await self._ends.lengthen(number, self._now + -(-left_s * before // len(ran.hosts)), self._now)

    def _record(self, result: PassResult) -> None:
        for workload, answer in result.reserved.values():
            ran = self._of[workload.id]
            if ran.first_reserved_start_s is None:
                ran.reserved_at = self._now
                self._had_reservations.add(workload.id)
                ran.first_reserved_start_s = answer.at - EPOCH_S
                ran.soonest_s = self._estimate_history.soonest(self._now, ran.first_reserved_start_s)
        self.dropped += [(self._now, int(workload), cause) for workload, cause in result.dropped.items()]
        for workload, _ in result.granted:
            self._backlogs[workload.queue].remove(workload.id)
            self._had_reservations.discard(workload.id)

    async def _identify(self, workloads: Sequence[Workload]) -> Sequence[FluxionJobId]:
        return [FluxionJobId(workload.id) for workload in workloads]

    async def _granted(self, answers: Sequence[tuple[Workload, MatchResult]]) -> None:
        for workload, answer in answers:
            ran = self._of[workload.id]
            ran.start_s = self._now
            if ran.first_reserved_start_s is not None and ran.reserved_at is not None:
                self._estimate_history.add(
                    ran.first_reserved_start_s - ran.reserved_at, self._now - ran.reserved_at
                )
            enforced = self._disciplines[ran.job.queue].enforces_duration
            ran.limited = enforced and ran.job.runtime_s > ran.job.requested_s
            ran.hosts = tuple(node_number(share.node) for share in answer.shares)
            ran.started_nodes = len(ran.hosts)
            self._room.pop(workload.id, None)
            run_s = ran.job.requested_s if ran.limited else ran.job.runtime_s
            self._growth.started(ran, max(run_s - ran.saved_s, 1))
            self._expect_to_end(ran, answer.end - EPOCH_S)

    def _expect_to_end(self, ran: SimulatedJob, planned: int) -> None:
        if self._shares is not None:
            self._shares.started(ran.job, len(ran.hosts))
        self._ends.expect(ran, planned)

    def _call(self) -> CallContext:
        return CallContext(now=EPOCH_S + self._now)


def _leaving(victims: Victims) -> dict[int, tuple[int, ...]]:
    """Return which jobs end, and which nodes others give back."""
    leaving: dict[int, tuple[int, ...]] = {}
    for each in victims:
        leaving[int(each.workload)] = (*leaving.get(int(each.workload), ()), *each.ranks)
    return leaving
