"""Suspends less important work where that lets more important work start, in queues that take part in preemption.

At the end of a cycle the first in order of all that wait in such queues is looked at: if it could start now were some work of lower
priority gone, that work is taken back (`fluxqueue.queue.controllers.requeuer`), keeps its submit time, and says for whom. What could be
suspended is whole Jobs of queues that take part too: never a part of anything, never a bare Pod, which nobody would make anew.

Nobody is suspended in vain. Whether it would help is asked of the matcher itself, for exactly what the next cycle would do: the victims are
taken out of the graph; whatever comes before the work in order, in any queue, is matched first, since it would be; then the work itself;
what was found is held against the limits of its queue; and everything is put back, within the lock of the cycle. Should that be cut short,
the graph is lost and filled anew from the table, as after any failure. While victims drain they are planned to be gone soon (see the
scheduler), so the reservation of the work moves there, and nobody behind it takes what was free beside its victims.

One at a time: as long as victims of an earlier look drain, nobody else is chosen. That is read from the table, so a new leader knows it
too. Once they are gone, the work they made room for is the first in order and is matched like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Preemption, QueueLimits
from fluxqueue.fluxion.messages import JobRequest, MatchResult, RestoredJob, Verdict
from fluxqueue.queue.controllers.graph import GraphKeeper, GraphLost, restored
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.limits import Quotas
from fluxqueue.queue.policies.backlog import Backlog, Key, key_of
from fluxqueue.queue.policies.passes import Moment, Promise
from fluxqueue.queue.policies.preemption import Candidate, choose, sacrifice_order
from fluxqueue.queue.policies.rounds import Discipline
from fluxqueue.queue.records import Allocation, FluxionJobId, TakeBack, Workload, WorkloadId

__all__ = ["Preemptor", "TakesBack"]

log = structlog.get_logger()

_MOST_CANDIDATES = 500
_SOON_S = 30
"""Work that is promised a start so soon is worth nobody's suspension."""
_HEADS = 100
"""Of each queue, looked through for the first that waits for nodes."""
_MOST_AHEAD = 100
"""Workloads of any queue that come before it; where there are more, nobody is suspended for it."""

TakesBack = Callable[[Sequence[TakeBack]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class _Question:
    """Who is to start, what comes before it, and who could make room."""

    workload: Workload
    ahead: tuple[Workload, ...]
    candidates: frozenset[WorkloadId]
    limits: QueueLimits | None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal where the answer is, as long as nothing becomes free."""
        return tuple((each.id, each.shape) for each in (self.workload, *self.ahead)), self.candidates, self.limits


class Preemptor:
    """Looks, at the end of each cycle, whether somebody is to make room.

    Parameters
    ----------
    ledger, graph
        Who waits and runs; where it is tried.
    take_back
        Lets workloads give their nodes back.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper, take_back: TakesBack) -> None:
        self._ledger = ledger
        self._graph = graph
        self._take_back = take_back
        self._probes: list[FluxionJobId] = []
        self._in_vain: tuple[object, ...] | None = None

    async def look(
        self,
        backlogs: Mapping[str, Backlog],
        disciplines: Mapping[str, Discipline],
        promises: Mapping[WorkloadId, Promise],
        moment: Moment,
    ) -> bool:
        """Take back what stands in the way of the first that waits, if that helps it; the lock of the graph is held by the caller.

        Returns
        -------
        bool
            Whether somebody was taken back.
        """
        taking_part = {name for name, each in disciplines.items() if each.preemption is Preemption.LOWER_PRIORITY}
        if not taking_part or self._under_way():
            return False
        first = self._first(backlogs, taking_part, promises, moment)
        if first is None:
            return False
        running = {
            workload.id: (workload, allocation)
            for workload, allocation in self._ledger.live()
            if workload.queue in taking_part and workload.priority < first.priority and _may_go(workload, allocation)
        }
        candidates = [Candidate(workload.id, workload.priority, allocation.start) for workload, allocation in running.values()]
        candidates = sacrifice_order(candidates)[:_MOST_CANDIDATES]
        ahead = [workload for backlog in backlogs.values() for workload in _before(backlog, key_of(first), moment)]
        if not candidates or len(ahead) > _MOST_AHEAD:
            return False
        question = _Question(
            first, tuple(sorted(ahead, key=key_of)), frozenset(each.workload for each in candidates), disciplines[first.queue].limits
        )
        if question.key == self._in_vain and not moment.roomier:
            return False
        policies = {name: each.match_policy for name, each in disciplines.items()}
        choice = choose(candidates, first.priority)
        victims: tuple[Candidate, ...] = ()
        try:
            trial = next(choice)
            while True:
                gone = [running[each.workload][1] for each in trial]
                trial = choice.send(await self._fits(question, gone, promises, moment, policies))
        except StopIteration as end:
            victims = end.value
        if not victims:
            self._in_vain = question.key
            return False
        log.info("preempting", workload=first.id, uid=first.uid, priority=first.priority, victims=[each.workload for each in victims])
        await self._take_back([_taken_back(running[each.workload][0], first) for each in victims])
        return True

    def _under_way(self) -> bool:
        return any(each.taken_back and each.reason is Reason.PREEMPTED for each, _ in self._ledger.live())

    def _first(
        self, backlogs: Mapping[str, Backlog], queues: set[str], promises: Mapping[WorkloadId, Promise], moment: Moment
    ) -> Workload | None:
        """The first in order that waits for nodes, unless it is about to start."""
        heads = []
        for queue in queues & backlogs.keys():
            for _, waiting in zip(range(_HEADS), backlogs[queue], strict=False):
                workload = self._ledger.get(waiting.id)
                if workload is None or workload.state is not State.PENDING or workload.shape in moment.impossible:
                    continue
                if workload.reason not in (Reason.UNSATISFIABLE, Reason.QUEUE_LIMIT):
                    heads.append(workload)
                    break
        first = min(heads, key=lambda each: (-each.priority, each.submitted_at, each.id), default=None)
        promise = promises.get(first.id) if first is not None else None
        return None if promise is not None and promise.start <= moment.now + _SOON_S else first

    async def _fits(
        self,
        question: _Question,
        victims: Sequence[Allocation],
        promises: Mapping[WorkloadId, Promise],
        moment: Moment,
        policies: Mapping[str, str],
    ) -> bool:
        """Whether it would start now without them; the graph is left as it was."""
        fluxion, call = self._graph.fluxion, self._graph.call()
        own = [promises[each.id] for each in (*question.ahead, question.workload) if each.id in promises]
        quotas = moment.quotas.without([*(each.workload for each in victims), *(each.workload for each in own)])
        asked = [*(each for each in question.ahead if not quotas.refusal(each)), question.workload]
        gone = [restored(allocation) for allocation in victims]
        gone += [RestoredJob(each.jobid, each.shares, each.start, each.end, reserved=True) for each in own]
        requests = [
            JobRequest(
                each.jobspec,
                probe,
                reserve=each.id in promises and each is not question.workload,
                duration_s=each.duration_s or 0,
                policy=policies.get(each.queue, ""),
            )
            for each, probe in zip(asked, await self._probes_for(len(asked)), strict=True)
        ]
        await fluxion.cancel_many([job.jobid for job in gone], call=call)
        answers = (await fluxion.match_batch(requests, call=call)).results
        if found := [answer.jobid for answer in answers if answer.verdict in (Verdict.GRANTED, Verdict.RESERVED)]:
            await fluxion.cancel_many(found, call=call)
        back = await fluxion.restore(gone, call=call)
        if not back.done:
            raise GraphLost(f"Fluxion did not put back what was tried without: {back.reason}")
        return _within_limits(asked, answers, quotas)

    async def _probes_for(self, count: int) -> list[FluxionJobId]:
        """Ids under which it is tried, the same each time."""
        if (missing := count - len(self._probes)) > 0:
            self._probes += await self._ledger.store.next_jobids(missing)
        return self._probes[:count]


def _before(backlog: Backlog, key: Key, moment: Moment) -> Iterator[Workload]:
    """What of a queue comes before a place in policy order and could be matched, at most one more than is looked at."""
    found = 0
    for workload in backlog:
        if found > _MOST_AHEAD or key_of(workload) >= key:
            return
        if workload.shape not in moment.impossible:
            found += 1
            yield workload


def _within_limits(asked: Sequence[Workload], answers: Sequence[MatchResult], quotas: Quotas) -> bool:
    """Whether the last of these was granted, and may use what was found for it once those before it have what was found for them."""
    for workload, answer in zip(asked[:-1], answers, strict=False):
        if answer.verdict in (Verdict.GRANTED, Verdict.RESERVED):
            quotas.take(workload, [share.node for share in answer.shares])
    last, answer = asked[-1], answers[-1]
    within = not (quotas.refusal(last) or quotas.excess(last, [share.node for share in answer.shares]))
    return answer.verdict is Verdict.GRANTED and within


def _may_go(workload: Workload, allocation: Allocation) -> bool:
    """Whole Jobs that run, and were let go: what is about to be let go is left alone."""
    runs = workload.state in (State.ALLOCATED, State.RUNNING) and allocation.released_at is not None
    return runs and workload.kind == "Job" and not allocation.remnant


def _taken_back(victim: Workload, workload: Workload) -> TakeBack:
    message = (
        f"{victim.kind} {victim.namespace}/{victim.name} (priority {victim.priority}) was suspended for {workload.kind} "
        f"{workload.namespace}/{workload.name} (priority {workload.priority}): it waits again, in its old place"
    )
    return TakeBack(workload=victim.id, reason=Reason.PREEMPTED, message=message)
