"""Preemption: evicts less important work if that lets more important work start, in queues that take part in preemption.

At the end of a cycle the preemptor checks the first pending workload in order, over all such queues. If it could start now without some
running work of lower priority, that work is evicted (`fluxqueue.queue.requeue.requeuer`). A victim keeps its submit time, and its reason
names the work it was evicted for. Only whole Jobs of queues that take part can be victims: never a part of anything, and never a bare Pod,
which no controller would create again.

Work is evicted only if that helps. The matcher itself is asked, in a trial of exactly what the next cycle would do. The victims are gone,
and so are the reservations that would yield to the work: those behind it in its queue, and those for lower priorities in other queues. All
work that comes before it in order, in any queue, is matched first. Then the work itself is matched, and its nodes are checked against the
limits of its queue. What ended since the cycle began still has nodes in the graph, and is gone in each trial: if the work could start by
that alone, the next cycle starts it, and nothing is evicted. While victims drain, their planned end is near
(`fluxqueue.queue.scheduling.planned_ends`). So the reservation of the work moves to their nodes, and no work behind it takes the nodes that
are free next to them.

While victims of an earlier preemption drain, nothing else is evicted. That is read from the workloads, so a new leader knows it too. Once
the victims are gone, the work they made room for is the first in order and is matched like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Preemption, QueueLimits
from fluxqueue.fluxion.messages import JobMatchRequest, MatchResult, MatchVerdict
from fluxqueue.queue.model.accounts import Account
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.jobspecs import reservation_in
from fluxqueue.queue.model.reasons import LIMIT_REASONS
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.scheduling.graph import GraphKeeper
from fluxqueue.queue.scheduling.limits import Quotas
from fluxqueue.queue.scheduling.match_rules import MatchRules
from fluxqueue.queue.scheduling.policies.backlog import Backlog, Key, key_of
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import CycleContext, HeldReservation
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, choose_victims, is_below, preemption_order
from fluxqueue.queue.scheduling.possible_victims import Checkpoints, PossibleVictims, no_checkpoints
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Evict", "Preemptor"]

log = structlog.get_logger()

_MOST_CANDIDATES = 500
_SOON_S = 30
"""No work is evicted for work whose reservation begins this soon."""
_HEADS = 100
"""Workloads of each queue that are searched for the first that waits for nodes."""
_MOST_AHEAD = 100
"""Workloads before it in order, in any queue. If there are more, no work is evicted for it."""

Evict = Callable[[Sequence[Eviction]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A workload that is to start, the work before it in order, and who could be evicted for it."""

    workload: Workload
    ahead: tuple[Workload, ...]
    candidates: frozenset[WorkloadId]
    limits: QueueLimits | None
    accounts: tuple[Account, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for attempts with the same outcome, as long as nothing is freed."""
        return tuple((each.id, each.shape) for each in (self.workload, *self.ahead)), self.candidates, self.limits, self.accounts


class Preemptor:
    """Evicts work for the first workload that waits, at the end of each cycle.

    Parameters
    ----------
    ledger, graph
        Pending and running work, and the matcher that tries it. The caller holds the lock of the graph.
    evict
        Evicts workloads.
    rules
        Rules about other pods.

    Attributes
    ----------
    checkpoints
        Returns when a workload last saved what it has.
    retry_after_s
        After the last call: in how many seconds more work has run long enough to be preempted; None if none will.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper, evict: Evict, rules: MatchRules) -> None:
        self._ledger = ledger
        self._graph = graph
        self._evict = evict
        self._rules = rules
        self._probes: list[FluxionJobId] = []
        self._last_failed: tuple[object, ...] | None = None
        self.checkpoints: Checkpoints = no_checkpoints
        self.retry_after_s: float | None = None

    async def preempt(
        self,
        backlogs: Mapping[str, Backlog],
        disciplines: Mapping[str, Discipline],
        reservations: Mapping[WorkloadId, HeldReservation],
        context: CycleContext,
    ) -> bool:
        """Evict work that keeps the first pending workload from starting, if it would start then; return True if work was evicted."""
        self.retry_after_s = None
        taking_part = {name for name, each in disciplines.items() if each.preemption is Preemption.LOWER_PRIORITY}
        if not taking_part or self._under_way():
            return False
        first = self._first(backlogs, taking_part, reservations, context)
        if first is None:
            return False
        victims_of = PossibleVictims(self._ledger.clock(), disciplines, self.checkpoints)
        running = {
            workload.id: (workload, allocation)
            for workload, allocation in self._ledger.live()
            if workload.queue in taking_part
            and is_below(workload, first)
            and _may_be_victim(workload, allocation)
            and victims_of.ran_enough(workload, allocation)
        }
        self.retry_after_s = victims_of.wait_s
        candidates = preemption_order([victims_of.candidate(*each) for each in running.values()])[:_MOST_CANDIDATES]
        ahead = [workload for backlog in backlogs.values() for workload in _before(backlog, key_of(first), context)]
        if not candidates or len(ahead) > _MOST_AHEAD:
            return False
        attempt = _Attempt(
            first,
            tuple(sorted(ahead, key=key_of)),
            frozenset(each.workload for each in candidates),
            disciplines[first.queue].limits,
            context.quotas.accounts.limiting(first.account),
        )
        if attempt.key == self._last_failed and not context.capacity_changed:
            return False
        policies = {name: each.match_policy for name, each in disciplines.items()}
        choice = choose_victims(candidates, first.priority)
        victims: tuple[PreemptionCandidate, ...] = ()
        try:
            trial = next(choice)
            while True:
                gone = [running[each.workload][1] for each in trial]
                trial = choice.send(await self._fits(attempt, gone, reservations, context, policies))
        except StopIteration as end:
            victims = end.value
        if not victims:
            self._last_failed = attempt.key
            return False
        if await self._fits(attempt, (), reservations, context, policies):
            return False
        log.info(
            "workload.preempting", workload=first.id, uid=first.uid, priority=first.priority, victims=[each.workload for each in victims]
        )
        await self._evict([victims_of.eviction(running[each.workload][0], first) for each in victims])
        return True

    def _under_way(self) -> bool:
        return any(each.reason is Reason.PREEMPTED for each, _ in self._ledger.evicting())

    def _first(
        self, backlogs: Mapping[str, Backlog], queues: set[str], reservations: Mapping[WorkloadId, HeldReservation], context: CycleContext
    ) -> Workload | None:
        """The first workload in order that waits for nodes, unless it is about to start."""
        heads = []
        for queue in queues & backlogs.keys():
            for _, waiting in zip(range(_HEADS), backlogs[queue], strict=False):
                workload = self._ledger.get(waiting.id)
                if workload is not None and workload.shape not in context.unsatisfiable and _waits_for_nodes(workload):
                    heads.append(workload)
                    break
        first = min(heads, key=key_of, default=None)
        reservation = reservations.get(first.id) if first is not None else None
        return None if reservation is not None and reservation.start <= context.now + _SOON_S else first

    async def _fits(
        self,
        attempt: _Attempt,
        victims: Sequence[Allocation],
        reservations: Mapping[WorkloadId, HeldReservation],
        context: CycleContext,
        policies: Mapping[str, str],
    ) -> bool:
        """True if the workload of the attempt would start now without the victims."""
        own = [each.id for each in (*attempt.ahead, attempt.workload) if each.id in reservations]
        aside = {*own, *(workload_id for workload_id in reservations if self._yields(workload_id, attempt.workload))}
        quotas = context.quotas.without([*(each.workload for each in victims), *aside])
        jobspecs = {each.id: self._request_of(each) for each in (*attempt.ahead, attempt.workload)}
        if not jobspecs[attempt.workload.id]:
            return False
        asked = [*(each for each in attempt.ahead if jobspecs[each.id] and not quotas.refusal(each)), attempt.workload]
        requests = [
            JobMatchRequest(
                jobspecs[each.id],
                probe,
                reserve=each.id in reservations and each is not attempt.workload,
                duration_s=each.duration_s or 0,
                policy=policies.get(each.queue, ""),
            )
            for each, probe in zip(asked, await self._probes_for(len(asked)), strict=True)
        ]
        freed = self._ledger.freed_jobs()
        gone = [*freed, *(each.jobid for each in victims), *(reservations[workload_id].jobid for workload_id in aside)]
        answers = (await self._graph.fluxion.trial(requests, without=gone, call=self._graph.call())).results
        return _within_limits(asked, answers, quotas)

    def _request_of(self, workload: Workload) -> str:
        """The request as it would be matched now; empty if rules about other pods admit no node."""
        return self._rules.constrained(workload)[0] if self._rules.applies_to(workload) else workload.jobspec

    def _yields(self, workload_id: WorkloadId, workload: Workload) -> bool:
        """True if a reservation yields to a workload that is the first of its queue."""
        holder = self._ledger.get(workload_id)
        if holder is None:
            return False
        return holder.order_priority < workload.order_priority or (holder.queue == workload.queue and key_of(holder) > key_of(workload))

    async def _probes_for(self, count: int) -> list[FluxionJobId]:
        """Job ids for trials, the same each time."""
        if (missing := count - len(self._probes)) > 0:
            self._probes += await self._ledger.next_jobids(missing)
        return self._probes[:count]


def _waits_for_nodes(workload: Workload) -> bool:
    """True for pending work that may start once nodes are free; not at a limit, and not before a FluxReservation that it names."""
    if workload.state is not State.PENDING or workload.reason is Reason.UNSATISFIABLE or workload.reason in LIMIT_REASONS:
        return False
    return workload.reason is not Reason.RESERVATION or not reservation_in(workload.jobspec)


def _before(backlog: Backlog, key: Key, context: CycleContext) -> Iterator[Workload]:
    """The work of a queue before a key that could be matched, at most one more than is considered."""
    count = 0
    for workload in backlog:
        if count > _MOST_AHEAD or key_of(workload) >= key:
            return
        if workload.shape not in context.unsatisfiable:
            count += 1
            yield workload


def _within_limits(asked: Sequence[Workload], answers: Sequence[MatchResult], quotas: Quotas) -> bool:
    """True if the last workload was granted and its nodes are within the limits, once those before it use theirs."""
    for workload, answer in zip(asked[:-1], answers, strict=False):
        if answer.verdict in (MatchVerdict.GRANTED, MatchVerdict.RESERVED):
            quotas.add_usage(workload, [share.node for share in answer.shares])
    last, answer = asked[-1], answers[-1]
    within = not (quotas.refusal(last) or quotas.excess(last, [share.node for share in answer.shares]))
    return answer.verdict is MatchVerdict.GRANTED and within


def _may_be_victim(workload: Workload, allocation: Allocation) -> bool:
    """True for a whole Job that runs and whose release is done. A Job that is about to be released is no victim."""
    runs = workload.state in (State.ALLOCATED, State.RUNNING) and allocation.released_at is not None
    return runs and workload.kind == "Job" and not allocation.remnant and not is_over_time_limit(workload)
