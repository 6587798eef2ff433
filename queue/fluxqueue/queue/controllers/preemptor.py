"""Suspends less important work where that lets more important work start, in queues that take part in preemption.

At the end of a cycle the first in order of all that wait in such queues is looked at: if it could start now were some work of lower
priority gone, that work is taken back (`fluxqueue.queue.controllers.requeuer`), keeps its submit time, and says for whom. What could be
suspended is whole Jobs of queues that take part too: never a part of anything, never a bare Pod, which nobody would make anew.

Whether it would help is asked of the matcher itself: the victims are taken out of the graph, the work is matched, and everything is put
back, within the lock of the cycle. Should that be cut short, the graph is lost and filled anew from the table, as after any failure.

One at a time: as long as victims of an earlier look drain, nobody else is chosen. That is read from the table, so a new leader knows it
too. Once they are gone, the work they made room for is the first in order and is matched like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Preemption
from fluxqueue.fluxion.messages import JobRequest, RestoredJob, Verdict
from fluxqueue.queue.controllers.graph import GraphKeeper, GraphLost, restored
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.policies.backlog import Backlog
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

TakesBack = Callable[[Sequence[TakeBack]], Awaitable[object]]


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
        self._probe: FluxionJobId | None = None
        self._in_vain: tuple[WorkloadId, str, frozenset[WorkloadId]] | None = None

    async def look(
        self,
        backlogs: Mapping[str, Backlog],
        disciplines: Mapping[str, Discipline],
        promises: Mapping[WorkloadId, Promise],
        moment: Moment,
    ) -> None:
        """Take back what stands in the way of the first that waits, if that helps it; the lock of the graph is held by the caller."""
        taking_part = {name for name, each in disciplines.items() if each.preemption is Preemption.LOWER_PRIORITY}
        if not taking_part or self._under_way():
            return
        first = self._first(backlogs, taking_part, promises, moment)
        if first is None:
            return
        running = {
            workload.id: (workload, allocation)
            for workload, allocation in self._ledger.live()
            if workload.queue in taking_part and workload.priority < first.priority and _may_go(workload, allocation)
        }
        candidates = [Candidate(workload.id, workload.priority, allocation.start) for workload, allocation in running.values()]
        candidates = sacrifice_order(candidates)[:_MOST_CANDIDATES]
        tried = first.id, first.shape, frozenset(each.workload for each in candidates)
        if not candidates or (tried == self._in_vain and not moment.roomier):
            return
        choice, policy = choose(candidates, first.priority), disciplines[first.queue].match_policy
        victims: tuple[Candidate, ...] = ()
        try:
            trial = next(choice)
            while True:
                trial = choice.send(await self._fits(first, policy, [running[each.workload][1] for each in trial], promises))
        except StopIteration as end:
            victims = end.value
        if not victims:
            self._in_vain = tried
            return
        log.info("preempting", workload=first.id, uid=first.uid, priority=first.priority, victims=[each.workload for each in victims])
        await self._take_back([_taken_back(running[each.workload][0], first) for each in victims])

    def _under_way(self) -> bool:
        return any(each.state is State.DRAINING and each.reason is Reason.PREEMPTED for each, _ in self._ledger.live())

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

    async def _fits(self, workload: Workload, policy: str, victims: Sequence[Allocation], promises: Mapping[WorkloadId, Promise]) -> bool:
        """Whether it would start now without them; the graph is left as it was."""
        fluxion, call = self._graph.fluxion, self._graph.call()
        if self._probe is None:
            (self._probe,) = await self._ledger.store.next_jobids(1)
        gone = [restored(allocation) for allocation in victims]
        if (own := promises.get(workload.id)) is not None:
            gone.append(RestoredJob(own.jobid, own.shares, own.start, own.end, reserved=True))
        await fluxion.cancel_many([job.jobid for job in gone], call=call)
        request = JobRequest(workload.jobspec, self._probe, duration_s=workload.duration_s or 0, policy=policy)
        (answer,) = (await fluxion.match_batch([request], call=call)).results
        if answer.verdict is Verdict.GRANTED:
            await fluxion.cancel_many([self._probe], call=call)
        back = await fluxion.restore(gone, call=call)
        if not back.done:
            raise GraphLost(f"Fluxion did not put back what was tried without: {back.reason}")
        return answer.verdict is Verdict.GRANTED


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
