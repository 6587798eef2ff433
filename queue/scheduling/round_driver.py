"""Carries out a round of the policies with the matcher, for the scheduling cycle and for the simulator.

The passes propose steps and receive the answers; this module sends the steps to the matcher. It decides
nothing, so the simulator shows what a policy does in a cluster.

Work under rules about other pods is matched one by one, each under the rules after the grants before it.

Moldable work may be granted with fewer slots (`fluxqueue.fluxion.match.molding`). That delays no reservation,
not even one of another queue that yields to the work. So where reservations yield, it is tried with fewer
slots in a call of its own, once they are in the graph again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import thread_time

from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.messages import CallContext, JobMatchRequest, MatchBatch, MatchResult, MatchVerdict
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.queue.model.flavors import waits_since_s
from fluxqueue.queue.model.moldable import min_pods_in
from fluxqueue.queue.model.records import GUARANTEED_FIRST, UNUSED_LAST, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.graph.match_rules import MatchRules, NoMatchRules
from fluxqueue.queue.scheduling.graph.matcher_calls import in_one_call, match_together
from fluxqueue.queue.scheduling.policies.namespace_turns import NamespaceTurns
from fluxqueue.queue.scheduling.policies.passes import (
    CancelStep,
    HeldReservation,
    ImproveStep,
    MatchStep,
    PassResult,
    Step,
)
from fluxqueue.queue.scheduling.policies.rounds import Round

__all__ = ["RoundDriver"]

_LONGEST_STEP_S = 0.25
"""CPU of the matcher after which a step is cut:
what was asked is answered, and a later step asks the rest."""
_LATE_S = 60
"""A reservation that starts at most this late keeps its planned end,
so that a slow cycle delays no reservation behind it."""

Granted = Callable[[Sequence[tuple[Workload, MatchResult]]], Awaitable[None]]
Identify = Callable[[Sequence[Workload]], Awaitable[Sequence[FluxionJobId]]]
Exclude = Callable[[Sequence[Workload]], Awaitable[Sequence[tuple[str, ...]]]]


async def _no_nodes(workloads: Sequence[Workload]) -> Sequence[tuple[str, ...]]:
    return [()] * len(workloads)


@dataclass(slots=True)
class RoundDriver:
    """Carries out rounds.

    Attributes
    ----------
    fluxion
        The matcher.
    identify
        Returns job ids for workloads: the same for a workload until it is granted.
    granted
        Is called with the grants of each step, so that they can be stored before the round is over.
    explain
        Ask the matcher why a request is refused, and whether it could ever fit.
    limit
        Most workloads in one step.
    match_policies
        Match policy of each queue that has one of its own.
    latest_nodes
        Queues whose reservations take the nodes that become free last.
    exclude
        Returns the nodes to leave out for each workload.
    rules
        Rules about other pods.
    turns
        Where the time of each namespace is counted; None: it is not counted, and no step is cut.
    steps
        Number of steps so far.
    """

    fluxion: Fluxion
    identify: Identify
    granted: Granted
    explain: bool = True
    limit: int = 100
    match_policies: Mapping[str, str] = field(default_factory=dict)
    latest_nodes: Collection[str] = ()
    exclude: Exclude = _no_nodes
    rules: MatchRules = field(default_factory=NoMatchRules)
    turns: NamespaceTurns | None = None
    steps: int = field(default=0, init=False)

    async def run(
        self, round_: Round, reservations: dict[WorkloadId, HeldReservation], call: CallContext
    ) -> list[PassResult]:
        """Run a round to its end.

        Parameters
        ----------
        round_
            A new round.
        reservations
            Reservations in the graph by workload. Kept up to date as they are made, moved and dropped.
        call
            Time, epoch and instance of this round.

        Returns
        -------
        list[PassResult]
            The result of each pass.

        Raises
        ------
        FluxionError
            The matcher is away or refuses a call. The steps before remain in the graph and in
            ``reservations``.
        """
        while calls := round_.next_call(self.limit):
            self.steps += 1
            step = _joined([step for _, step in calls])
            answers, displaced = await self._do(step, round_.yielding(calls), reservations, call)
            if displaced:
                round_.displaced(displaced)
            first = 0
            for pass_, part in calls:
                behind = first + len(_workloads(part))
                pass_.accept(part, answers[first:behind])
                first = behind
            granted = [
                (workload, answer)
                for workload, answer in zip(_workloads(step), answers, strict=False)
                if answer.verdict is MatchVerdict.GRANTED
            ]
            if granted:
                await self.granted(granted)
        return [pass_.result for pass_ in round_.passes]

    async def _do(
        self,
        step: Step,
        lower: Sequence[HeldReservation],
        reservations: dict[WorkloadId, HeldReservation],
        call: CallContext,
    ) -> tuple[Sequence[MatchResult], Mapping[WorkloadId, str]]:
        """Carry out a step; return its answers, and the cause of each lower reservation that it displaced."""
        match step:
            case CancelStep():
                await self.fluxion.apply(
                    [CancelJobs([reservation.jobid for reservation in step.reservations])], call=call
                )
                for reservation in step.reservations:
                    reservations.pop(reservation.workload, None)
                return (), {}
            case ImproveStep() | MatchStep():
                requests = await self._requests(step, reservations, call.now or 0)
                first = [replace(each, min_slots=0) for each in requests] if lower else requests
                batch = await self._match_step(
                    step, first, [reservation.jobid for reservation in lower], reservations, call
                )
                if lower:
                    batch = await self._mold(step, requests, batch, call)
                for workload, answer in zip(step.workloads, batch.results, strict=False):
                    _keep(reservations, workload, answer)
                gone = set(batch.displaced)
                causes = {
                    reservation.workload: _displacement_cause(reservation, step.workloads, batch.results)
                    for reservation in lower
                    if reservation.jobid in gone
                }
                for workload_id in causes:
                    reservations.pop(workload_id, None)
                return batch.results, causes

    async def _match_step(
        self,
        step: MatchStep | ImproveStep,
        requests: Sequence[JobMatchRequest],
        yielding: Sequence[int],
        reservations: Mapping[WorkloadId, HeldReservation],
        call: CallContext,
    ) -> MatchBatch:
        """Match the workloads of a step; each one under rules alone, after the grants before it.
        A step that takes long is cut.
        """
        rules, workloads, stop = self.rules, step.workloads, isinstance(step, MatchStep) and step.stop
        results: list[MatchResult] = []
        displaced: set[int] = set()
        took_s = 0.0
        while len(results) < len(requests) and not (
            stop and results and results[-1].verdict is not MatchVerdict.GRANTED
        ):
            first = len(results)
            if results and self._is_cut(workloads[first], took_s):
                break
            if rules.applies_to(workloads[first]):
                batch = await self._match_under(
                    rules,
                    workloads[first],
                    requests[first],
                    yielding,
                    reservations.get(workloads[first].id),
                    call,
                )
            else:
                ruled = (
                    number
                    for number in range(first + 1, len(requests))
                    if rules.applies_to(workloads[number])
                )
                together = requests[first : next(ruled, None)]
                batch = await match_together(
                    self.fluxion, together[: in_one_call(together)], yielding, call, stop=stop
                )
            for workload, answer in zip(workloads[first:], batch.results, strict=False):
                if answer.verdict is MatchVerdict.GRANTED:
                    rules.assume(workload, answer.shares)
            if self.turns is not None:
                self.turns.spend(workloads[first:], batch)
            took_s += batch.overhead_s
            results += batch.results
            displaced.update(batch.displaced)
        return MatchBatch(tuple(results), call.instance, took_s, tuple(displaced))

    def _is_cut(self, following: Workload, took_s: float) -> bool:
        """True if a step ends before this workload: the step has taken long,
        or the turn of its namespace is over.
        """
        return self.turns is not None and (took_s > _LONGEST_STEP_S or following.namespace in self.turns.over)

    async def _mold(
        self,
        step: MatchStep | ImproveStep,
        requests: Sequence[JobMatchRequest],
        batch: MatchBatch,
        call: CallContext,
    ) -> MatchBatch:
        """Try moldable work that was not granted with fewer slots, beside all reservations."""
        waiting = (MatchVerdict.BUSY, MatchVerdict.RESERVED)
        numbers = [
            number
            for number, each in enumerate(batch.results)
            if requests[number].min_slots and each.verdict in waiting
        ]
        if not numbers:
            return batch
        again = [
            replace(requests[number], improve=batch.results[number].verdict is MatchVerdict.RESERVED)
            for number in numbers
        ]
        molded = await match_together(self.fluxion, again, (), call, stop=False)
        if self.turns is not None:
            self.turns.spend([step.workloads[number] for number in numbers], molded)
        results = list(batch.results)
        for number, answer in zip(numbers, molded.results, strict=False):
            results[number] = answer
        return replace(batch, results=tuple(results))

    async def _match_under(
        self,
        rules: MatchRules,
        workload: Workload,
        request: JobMatchRequest,
        yielding: Sequence[int],
        reservation: HeldReservation | None,
        call: CallContext,
    ) -> MatchBatch:
        """Match a workload under rules. A reservation that they no longer admit is cancelled first."""
        if reservation is not None and (violation := rules.violation(workload, reservation.shares)):
            await self.fluxion.apply([CancelJobs([reservation.jobid])], call=call)
            if request.improve:
                return MatchBatch(
                    (MatchResult(MatchVerdict.BUSY, request.jobid, reason=violation),), call.instance
                )
        began = thread_time()
        jobspec, refusal = rules.constrained(workload)
        took_s = thread_time() - began
        await asyncio.sleep(0)  # rules that reach all placed pods take a while, and others wait
        if refusal:
            return MatchBatch(
                (MatchResult(MatchVerdict.UNSATISFIABLE, request.jobid, reason=refusal),),
                call.instance,
                took_s,
            )
        batch = await match_together(
            self.fluxion, [replace(request, jobspec=jobspec)], yielding, call, stop=False
        )
        took_s += batch.overhead_s
        return replace(
            batch, overhead_s=took_s, overhead_of_each_s=(took_s,) if batch.overhead_of_each_s else ()
        )

    async def _requests(
        self, step: MatchStep | ImproveStep, reservations: dict[WorkloadId, HeldReservation], now: int
    ) -> list[JobMatchRequest]:
        excluded = await self.exclude(step.workloads)
        if isinstance(step, ImproveStep):
            return [
                JobMatchRequest(
                    workload.jobspec,
                    reservations[workload.id].jobid,
                    reserve=True,
                    explain=self.explain,
                    exclude=nodes,
                    duration_s=workload.duration_s or 0,
                    improve=True,
                    policy=self.match_policies.get(workload.queue, ""),
                    latest_nodes=workload.queue in self.latest_nodes,
                    min_slots=min_pods_in(workload.jobspec),
                    waits_since=waits_since_s(workload),
                )
                for workload, nodes in zip(step.workloads, excluded, strict=True)
            ]
        ids = await self.identify(step.workloads)
        requests = []
        for workload, jobid, nodes in zip(step.workloads, ids, excluded, strict=True):
            duration_s = step.duration_s(workload) or 0
            reservation = reservations.get(workload.id)
            if (
                reservation is not None
                and duration_s
                and reservation.start < now <= reservation.start + _LATE_S
            ):
                duration_s = max(reservation.end - now, 1)
            predicted = step.predicted and workload.predicted_s is not None
            requests.append(
                JobMatchRequest(
                    workload.jobspec,
                    jobid,
                    step.reserve,
                    self.explain,
                    nodes,
                    duration_s=duration_s,
                    policy=self.match_policies.get(workload.queue, ""),
                    latest_nodes=workload.queue in self.latest_nodes,
                    min_slots=0 if predicted else min_pods_in(workload.jobspec),
                    waits_since=waits_since_s(workload),
                )
            )
        return requests


def _keep(reservations: dict[WorkloadId, HeldReservation], workload: Workload, answer: MatchResult) -> None:
    if answer.verdict is MatchVerdict.RESERVED:
        reservations[workload.id] = HeldReservation(
            workload.id,
            FluxionJobId(answer.jobid),
            answer.at,
            answer.end,
            answer.shares,
            workload.order_priority,
        )
    else:
        reservations.pop(workload.id, None)


def _joined(steps: Sequence[Step]) -> Step:
    """Return one step for steps that go to the matcher in one call: several are `ImproveStep`."""
    if len(steps) == 1:
        return steps[0]
    return ImproveStep(tuple(workload for step in steps for workload in _workloads(step)))


def _workloads(step: Step) -> tuple[Workload, ...]:
    match step:
        case MatchStep() | ImproveStep():
            return step.workloads
        case CancelStep():
            return ()


def _displacement_cause(
    reservation: HeldReservation, workloads: Sequence[Workload], answers: Sequence[MatchResult]
) -> str:
    """Name the work that took nodes of a reservation, in a sentence."""
    nodes = {share.node for share in reservation.shares}
    for workload, answer in zip(workloads, answers, strict=False):
        if any(share.node in nodes for share in answer.shares):
            if workload.comes_first and reservation.priority < GUARANTEED_FIRST // 2:
                return (
                    f"its nodes went to {workload.ref}, which is within what is guaranteed to its account "
                    f"{workload.account!r}"
                )
            if reservation.priority < UNUSED_LAST // 2:
                return f"its nodes went to {workload.ref}: what was idle when it was preempted waits last"
            return (
                f"its nodes went to {workload.ref} of priority {workload.weighed_priority} "
                f"in the queue {workload.queue!r}: its own is {reservation.priority}"
            )
    return "its nodes went to work of higher priority"
