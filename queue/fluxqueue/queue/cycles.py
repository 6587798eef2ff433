"""A round of the policies, put to the matcher: the one driver of the scheduling cycle and of the simulator.

The passes say what is to be done and hear what came of it; here it is done. Nothing is decided in this module, so what the simulator
shows of a policy is what the policy does in a cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fluxqueue.fluxion.client import Fluxion
from fluxqueue.fluxion.messages import Call, JobRequest, MatchResult, Verdict
from fluxqueue.queue.policies.passes import Drop, Findings, Move, Offer, Promise, Step
from fluxqueue.queue.policies.rounds import Round
from fluxqueue.queue.records import FluxionJobId, Workload, WorkloadId

__all__ = ["Driver"]

_LATE_S = 60
"""A reservation that starts this late at most keeps its planned end: what was promised behind it is not disturbed by a slow cycle."""

Granted = Callable[[Sequence[tuple[Workload, MatchResult]]], Awaitable[None]]
Identify = Callable[[Sequence[Workload]], Awaitable[Sequence[FluxionJobId]]]


@dataclass(slots=True)
class Driver:
    """Carries a round out.

    Attributes
    ----------
    fluxion
        The matcher.
    identify
        Job ids for workloads that are matched: the same for the same workload until it is granted.
    granted
        Told of grants as they are made, so that they can be stored before the round is over.
    explain
        Whether refusals are to say why, and to tell *busy* from *never*.
    limit
        Workloads in one call.
    match_policies
        By queue, where it is not the graph's.
    """

    fluxion: Fluxion
    identify: Identify
    granted: Granted
    explain: bool = True
    limit: int = 100
    match_policies: Mapping[str, str] = field(default_factory=dict)
    steps: int = field(default=0, init=False)

    async def run(self, round_: Round, promises: dict[WorkloadId, Promise], call: Call) -> list[Findings]:
        """Run a round to its end.

        Parameters
        ----------
        round_
            Fresh.
        promises
            Reservations by workload, as the graph holds them; kept up to date as they are made, moved and given up.
        call
            Time, epoch and instance of this round.

        Returns
        -------
        list[Findings]
            One of each pass.

        Raises
        ------
        FluxionError
            The matcher is away or refuses: what was done until then stands in the graph and in ``promises``.
        """
        now = call.now or 0
        while (turn := round_.next_step(self.limit)) is not None:
            pass_, step = turn
            self.steps += 1
            answers = await self._do(step, promises, call, now)
            pass_.accept(step, answers)
            granted = [
                (workload, answer) for workload, answer in zip(_workloads(step), answers, strict=False) if answer.verdict is Verdict.GRANTED
            ]
            if granted:
                await self.granted(granted)
        return [pass_.findings for pass_ in round_.passes]

    async def _do(self, step: Step, promises: dict[WorkloadId, Promise], call: Call, now: int) -> Sequence[MatchResult]:
        match step:
            case Drop():
                await self.fluxion.cancel_many([promise.jobid for promise in step.promises], call=call)
                for promise in step.promises:
                    promises.pop(promise.workload, None)
                return ()
            case Move() | Offer():
                requests = await self._requests(step, promises, now)
                stop = isinstance(step, Offer) and step.stop
                answers = (await self.fluxion.match_batch(requests, call=call, stop_at_first_failure=stop)).results
                for workload, answer in zip(step.workloads, answers, strict=False):
                    self._keep(promises, workload, answer)
                return answers

    async def _requests(self, step: Offer | Move, promises: dict[WorkloadId, Promise], now: int) -> list[JobRequest]:
        if isinstance(step, Move):
            return [
                JobRequest(
                    workload.jobspec,
                    promises[workload.id].jobid,
                    reserve=True,
                    explain=self.explain,
                    duration_s=workload.duration_s or 0,
                    improve=True,
                    policy=self.match_policies.get(workload.queue, ""),
                )
                for workload in step.workloads
            ]
        ids = await self.identify(step.workloads)
        requests = []
        for workload, jobid in zip(step.workloads, ids, strict=True):
            duration_s = workload.duration_s or 0
            promise = promises.get(workload.id)
            if promise is not None and duration_s and promise.start < now <= promise.start + _LATE_S:
                duration_s = max(promise.end - now, 1)
            policy = self.match_policies.get(workload.queue, "")
            requests.append(JobRequest(workload.jobspec, jobid, step.reserve, self.explain, duration_s=duration_s, policy=policy))
        return requests

    def _keep(self, promises: dict[WorkloadId, Promise], workload: Workload, answer: MatchResult) -> None:
        if answer.verdict is Verdict.RESERVED:
            promises[workload.id] = Promise(workload.id, FluxionJobId(answer.jobid), answer.at, answer.end, answer.shares)
        else:
            promises.pop(workload.id, None)


def _workloads(step: Step) -> tuple[Workload, ...]:
    match step:
        case Offer() | Move():
            return step.workloads
        case Drop():
            return ()
