"""Preemption: evicts less important work if that lets more important work start, in queues that take part in
preemption.

At the end of a cycle the preemptor checks the first pending workloads in order, over all such queues. If one
of them could start now without some running work of lower priority, that work is evicted
(`fluxqueue.queue.requeue.requeuer`). So is work that is idle, of any priority, where an administrator wants
that (`fluxqueue.queue.model.idleness`). A victim keeps its submit time, and its reason names the work it was
evicted for. Work of every kind of the queues that take part can be a victim, but never a part of anything,
and nothing of which a PodDisruptionBudget forbids it now
(`fluxqueue.queue.scheduling.policies.disruption_budgets`). What nobody would create again is taken only where
nothing else of its priority helps.

Work is evicted only if that helps: the matcher is asked, in a trial
(`fluxqueue.queue.scheduling.preemption.trials`). If the work could start without any victims, the next cycle
starts it, and nothing is evicted. If no victims help, the next workload is tried, of another kind, since
equal ones would fail as well: a few in each cycle, and in a queue with the policy ``fcfs`` only the first.
What was tried in vain is not tried again before something is freed. While victims drain, their planned end is
near (`fluxqueue.queue.scheduling.reservations.planned_ends`). So the reservation of the work moves to their
nodes, and no work behind it takes the nodes that are free next to them.

Work that is within what is guaranteed to its account may also preempt work of accounts that borrow, whatever
the priorities, and work within the guarantee of another account is spared
(`fluxqueue.queue.scheduling.limits.guarantees`). Then only the queues of the victims have to take part.

If nobody needs the nodes of victims any more that are still in their grace, they go on
(`fluxqueue.queue.scheduling.preemption.withdrawals`). Before that, victims are searched anew, as if these had
not been told to stop: those that other work needs stop at the time that they were told.

While victims of an earlier preemption drain, nothing else is evicted. That is read from the workloads, so a
new leader knows it too. Once the victims are gone, the work they made room for is matched like any other. A
victim that still has pods five minutes after it was stopped delays nobody any more, so a pod that never ends
does not end preemption for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import structlog

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Preemption
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.consolidations import is_being_moved
from fluxqueue.queue.model.idleness import is_unused, waits_last
from fluxqueue.queue.model.preemption_notices import given_back_left_s, stopping_left_s
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.model.requeue_records import GivenBack
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.model.victim_views import STARTING
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.match_rules import MatchRules
from fluxqueue.queue.scheduling.limits.guarantees import NO_GUARANTEES, Guarantees, held_nodes
from fluxqueue.queue.scheduling.policies.backlog import Backlog, key_of, work_before
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.disruption_budgets import allowed_together
from fluxqueue.queue.scheduling.policies.passes import CycleContext, HeldReservation
from fluxqueue.queue.scheduling.policies.victims import (
    PreemptionCandidate,
    Victims,
    choose_parts,
    choose_victims,
    is_below,
    preemption_order,
)
from fluxqueue.queue.scheduling.preemption.consolidation import Consolidator, consolidating
from fluxqueue.queue.scheduling.preemption.elastic_endings import lost_in_words
from fluxqueue.queue.scheduling.preemption.elastic_victims import ElasticVictims
from fluxqueue.queue.scheduling.preemption.possible_victims import PossibleVictims, ShownVictims
from fluxqueue.queue.scheduling.preemption.trials import NOTHING_GONE, Attempt, PreemptionTrials, Standing
from fluxqueue.queue.scheduling.preemption.why_not import MIN_RUN, WhyNot
from fluxqueue.queue.scheduling.preemption.withdrawals import (
    Abandoned,
    Withdrawals,
    reasons_of,
    waits_for_nodes,
)
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Evict", "Preemptor"]

log = structlog.get_logger()

_MOST_CANDIDATES = 500
_SOON_S = 30
"""No work is evicted for work whose reservation begins this soon."""
_HEADS = 100
"""Workloads of each queue that are searched for the first that wait for nodes."""
_MOST_TRIED = 4
"""Workloads that are tried in one cycle, each of another kind, until work was evicted for one."""
_MOST_AHEAD = 100
"""Workloads before it in order, in any queue. If there are more, no work is evicted for it."""
_MOST_AHEAD_TOLD = 8
"""Workloads before it in order that are matched in each trial.
If there are more, it is not told why no work is evicted for it."""
_NEXT_S = 1.0
"""Until the next workload is told why no work is evicted for it."""
_NO_PREEMPTION = "in a queue without preemption"
_STOPPING = "stopping already"
_GUARANTEED = "within what is guaranteed to its account"
_BUDGET = "whose budgets of disruption allow no eviction now"

Evict = Callable[
    [Sequence[Eviction], Mapping[WorkloadId, GivenBack], Mapping[WorkloadId, str]], Awaitable[object]
]


@dataclass(frozen=True, slots=True)
class _Rules:
    """Who may preempt and be preempted, in one cycle."""

    disciplines: Mapping[str, Discipline]
    taking_part: Collection[str]
    victims_of: PossibleVictims
    elastic: ElasticVictims
    guarantees: Guarantees
    abandoned: Mapping[WorkloadId, Abandoned]
    """What was told to stop for work that does not need that any more."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Who could be preempted for a workload.

    Attributes
    ----------
    elastic, wholes
        In order: all that could go on with fewer pods, and so many as are searched of those that could end as
        a whole.
    spared
        Who holds nodes and could not be preempted, each with the cause.
    """

    elastic: Sequence[PreemptionCandidate]
    wholes: Sequence[PreemptionCandidate]
    spared: Mapping[WorkloadId, str]


class Preemptor:
    """Evicts work for one of the first workloads that wait, at the end of each cycle.

    Parameters
    ----------
    ledger, graph
        Pending and running work, and the matcher that tries it. The caller holds the lock of the graph.
    evict
        Evicts workloads.
    rules
        Rules about other pods.
    why_not
        Tells the first that wait why nothing is preempted for them.
    shown
        What the cluster shows of running work.

    Attributes
    ----------
    retry_after_s
        After the last call: in how many seconds more work may be preempted, because it has run long enough, a
        budget of disruption may allow it, or the victims of before are not waited for any more; None if none
        may.
    """

    def __init__(
        self,
        ledger: Ledger,
        graph: GraphKeeper,
        evict: Evict,
        rules: MatchRules,
        why_not: WhyNot,
        shown: ShownVictims,
    ) -> None:
        self._ledger = ledger
        self._evict = evict
        self._trials = PreemptionTrials(ledger, graph, rules)
        self._withdrawals = Withdrawals(ledger, graph, self._trials)
        self._consolidator = Consolidator(ledger, evict, self._trials, why_not, shown)
        self._why_not = why_not
        self._failed: Sequence[tuple[object, ...]] = ()
        self._shown = shown
        self.retry_after_s: float | None = None

    async def preempt(
        self,
        backlogs: Mapping[str, Backlog],
        disciplines: Mapping[str, Discipline],
        reservations: Mapping[WorkloadId, HeldReservation],
        context: CycleContext,
        guarantees: Guarantees = NO_GUARANTEES,
    ) -> bool:
        """Evict work that keeps one of the first pending workloads from starting, if it would start then;
        return True if so.

        If nothing is evicted for one of them, it is told why.
        """
        self._consolidator.retry_after_s = None
        self._why_not.withdraw_past()
        preempted = await self._preempt(backlogs, disciplines, reservations, context, guarantees)
        await self._why_not.store()
        waits_s = (self.retry_after_s, self._consolidator.retry_after_s, self._why_not.ends_in_s())
        self.retry_after_s = min((each for each in waits_s if each is not None), default=None)
        return preempted

    async def _preempt(
        self,
        backlogs: Mapping[str, Backlog],
        disciplines: Mapping[str, Discipline],
        reservations: Mapping[WorkloadId, HeldReservation],
        context: CycleContext,
        guarantees: Guarantees,
    ) -> bool:
        self.retry_after_s = None
        taking_part = {
            name for name, each in disciplines.items() if each.preemption is Preemption.LOWER_PRIORITY
        }

        moving = consolidating(disciplines)

        def may_preempt(first: Workload, victim: Workload) -> bool:
            known = first.queue in disciplines and first.shape not in context.unsatisfiable
            consolidates = known and {first.queue, victim.queue} <= moving.keys()
            if is_being_moved(victim) or (consolidates and first.requeue_state.room is not None):
                return consolidates  # or it gives pods back for that
            grounds = (
                self._grounds(first, taking_part, guarantees) if known and victim.queue in taking_part else []
            )
            below = is_unused(victim, self._ledger.epoch) or is_below(victim, first)
            return any(guaranteed_to or below for guaranteed_to in grounds)

        def attempts(first: Workload) -> list[Attempt]:
            ahead = work_before(backlogs.values(), first, context.unsatisfiable, _MOST_AHEAD)
            limits, accounts = (
                disciplines[first.queue].limits,
                context.quotas.accounts.limiting(first.account),
            )
            grounds = self._grounds(first, taking_part, guarantees) if len(ahead) <= _MOST_AHEAD else []
            if not ahead and not grounds and first.queue in moving:
                grounds = [""]
            return [
                Attempt(first, ahead, frozenset(), limits, accounts, guaranteed_to)
                for guaranteed_to in grounds
            ]

        standing = Standing(
            reservations,
            context.quotas,
            {name: each.match_policy for name, each in disciplines.items()},
            guarantees,
        )
        abandoned = await self._withdrawals.abandoned(may_preempt, attempts, standing)
        if (left_s := self._under_way_s(abandoned)) > 0:
            self.retry_after_s = left_s
            return await self._withdraw(abandoned)
        if taking_part and await self._preempt_by_rules(
            backlogs, disciplines, taking_part, abandoned, standing, context
        ):
            return True
        if not taking_part:
            self._why_not.keep(())
            if await self._withdraw(abandoned):
                return True
        return await self._consolidator.consolidate(backlogs, disciplines, standing, context)

    async def _preempt_by_rules(
        self,
        backlogs: Mapping[str, Backlog],
        disciplines: Mapping[str, Discipline],
        taking_part: Collection[str],
        abandoned: Mapping[WorkloadId, Abandoned],
        standing: Standing,
        context: CycleContext,
    ) -> bool:
        victims_of = PossibleVictims(self._ledger.clock(), disciplines, self._shown, self._ledger.epoch)
        elastic = ElasticVictims(self._ledger, self._shown, victims_of, abandoned)
        who = _Rules(disciplines, taking_part, victims_of, elastic, standing.guarantees, abandoned)
        return await self._preempt_for_first(backlogs, who, standing, context)

    async def _preempt_for_first(
        self, backlogs: Mapping[str, Backlog], who: _Rules, standing: Standing, context: CycleContext
    ) -> bool:
        """Evict work for the first that starts then; return True if something was evicted, or goes on."""
        elastic, disciplines = who.elastic, who.disciplines
        failed: list[tuple[object, ...]] = []
        in_vain: dict[WorkloadId, tuple[Attempt, Mapping[WorkloadId, str]]] = {}
        for workload in self._first(backlogs, who, standing.reservations, context):
            ahead = work_before(backlogs.values(), workload, context.unsatisfiable, _MOST_AHEAD)
            if len(ahead) > _MOST_AHEAD:
                continue
            for guaranteed_to in self._grounds(workload, who.taking_part, who.guarantees):
                could_be = self._candidates(workload, who, guaranteed_to)
                attempt = Attempt(
                    workload,
                    ahead,
                    elastic.work.ending(could_be.wholes),
                    disciplines[workload.queue].limits,
                    context.quotas.accounts.limiting(workload.account),
                    guaranteed_to,
                    frozenset(each.workload for each in could_be.elastic),
                )
                victims: Victims = ()
                if attempt.key not in self._failed or context.capacity_changed:
                    victims = await self._choose(attempt, could_be, standing, elastic)
                if victims and not guaranteed_to and self._come_before(workload, victims, who):
                    victims = ()
                if victims and not await self._trials.in_vain(attempt, elastic.gone(victims), standing):
                    self._why_not.keep(in_vain)
                    return await self._preempt_for(attempt, victims, who, standing)
                failed.append(attempt.key)
                if len(ahead) <= _MOST_AHEAD_TOLD:
                    in_vain[workload.id] = attempt, could_be.spared
        self._failed = failed
        self._why_not.keep(in_vain)
        if who.abandoned:
            return await self._withdraw(who.abandoned)
        victims_of = who.victims_of
        waits_s = (
            victims_of.wait_s,
            await self._explain(in_vain.values(), victims_of, standing, freed=context.capacity_changed),
        )
        self.retry_after_s = min((each for each in waits_s if each is not None), default=None)
        return False

    def _come_before(self, workload: Workload, victims: Victims, who: _Rules) -> bool:
        held = [
            (row, its)
            for row, its in who.elastic.work.live()
            if {row.id} & {each.workload for each in victims}
        ]
        return (
            who.guarantees.any
            and not workload.comes_first
            and who.guarantees.come_before(workload, list(held_nodes(held)))
        )

    async def _explain(
        self,
        in_vain: Iterable[tuple[Attempt, Mapping[WorkloadId, str]]],
        victims_of: PossibleVictims,
        standing: Standing,
        *,
        freed: bool,
    ) -> float | None:
        """Find for one workload why nothing is preempted for it;
        return in how many seconds that is due for another one.
        """
        later: list[float] = []
        found = False
        for attempt, spared in in_vain:
            wait_s = self._why_not.wait_s(attempt, spared, freed=freed)
            if wait_s == 0 and not found:
                found = True
                await self._why_not.find(attempt, spared, self._trials, standing, victims_of)
            elif wait_s is not None:
                later.append(max(wait_s, _NEXT_S))
        return min(later, default=None)

    def waited_for(self) -> frozenset[WorkloadId]:
        """Return the work for which other work stops, or gives pods back, as long as that is waited for."""
        now = self._ledger.clock()
        firsts = {
            row.requeue_state.preempted_for for row, _ in self._ledger.evicting() if stopping_left_s(row, now)
        }
        firsts |= {
            given.preempted_for
            for row, its in self._ledger.giving_back()
            if (given := row.requeue_state.given_back) is not None and given_back_left_s(row, its, now)
        }
        return frozenset(WorkloadId(each) for each in firsts if each)

    def _under_way_s(self, abandoned: Collection[WorkloadId] = ()) -> float:
        """For how many seconds more the victims of an earlier preemption are waited for,
        but for those that are abandoned.
        """
        now = self._ledger.clock()
        whole = (
            stopping_left_s(each, now) for each, _ in self._ledger.evicting() if each.id not in abandoned
        )
        parts = (
            given_back_left_s(*each, now)
            for each in self._ledger.giving_back()
            if each[0].id not in abandoned
        )
        return max((*whole, *parts), default=0.0)

    def _first(
        self,
        backlogs: Mapping[str, Backlog],
        who: _Rules,
        reservations: Mapping[WorkloadId, HeldReservation],
        context: CycleContext,
    ) -> list[Workload]:
        """The first workloads in order that wait for nodes and are not about to start, one of each kind."""
        heads: list[Workload] = []
        for queue in who.disciplines.keys() & backlogs.keys():
            kinds: set[tuple[object, ...]] = set()
            for _, waiting in zip(range(_HEADS), backlogs[queue], strict=False):
                workload = self._ledger.get(waiting.id)
                if (
                    workload is None
                    or workload.shape in context.unsatisfiable
                    or not waits_for_nodes(workload)
                ):
                    continue
                if queue not in who.taking_part and not workload.comes_first:
                    break
                if closed := waiting.closed_flavors:
                    workload = replace(workload, closed_flavors=closed)
                kind = workload.shape, workload.account, workload.namespace, workload.priority, closed
                if kind not in kinds:
                    kinds.add(kind)
                    heads.append(workload)
                if len(kinds) == _MOST_TRIED or not who.disciplines[queue].reserves:
                    break
        soon = context.now + _SOON_S
        to_be_free = frozenset[str]().union(*(each.nodes for each in who.abandoned.values()))
        waiting_long = (
            each
            for each in heads
            if each.id not in reservations
            or reservations[each.id].start > soon
            or not to_be_free.isdisjoint(reservations[each.id].nodes)
        )
        return sorted(waiting_long, key=key_of)[:_MOST_TRIED]

    @staticmethod
    def _grounds(workload: Workload, taking_part: Collection[str], guarantees: Guarantees) -> list[str]:
        """Why work may be preempted for a workload: because of its priority (empty),
        or because this account has a guarantee. Nothing is for work that waits behind all other.
        """
        grounds = [""] if workload.queue in taking_part and not waits_last(workload) else []
        covering = guarantees.covering(workload) if workload.comes_first else ""
        return [*grounds, covering] if covering else grounds

    def _candidates(self, workload: Workload, who: _Rules, guaranteed_to: str) -> _Candidates:
        """Who could be preempted for a workload, in order;
        and who holds nodes and could not be, each with the cause.
        """
        running: dict[WorkloadId, tuple[Workload, Allocation]] = {}
        spared: dict[WorkloadId, str] = {}
        for victim, allocation in who.elastic.work.live():
            if allocation.remnant:
                continue
            if why := self._obstacle(victim, allocation, workload, who, guaranteed_to):
                spared[victim.id] = why
            else:
                running[victim.id] = victim, allocation
        candidates = preemption_order(who.elastic.work.with_further(*each) for each in running.values())
        if who.guarantees.any:
            holdings = list(held_nodes(running[each.workload] for each in candidates))
            losing = set(who.guarantees.losing(workload, holdings, reclaim=bool(guaranteed_to)))
            spared |= dict.fromkeys(
                (each.workload for each in candidates if each.workload not in losing), _GUARANTEED
            )
            candidates = [each for each in candidates if each.workload in losing]
        allowed = list(
            islice(
                allowed_together(candidates, lambda each: who.victims_of.budgets(*running[each.workload])),
                _MOST_CANDIDATES,
            )
        )
        if len(allowed) < min(len(candidates), _MOST_CANDIDATES):
            who.victims_of.refused_by_budgets()
            spared |= dict.fromkeys(
                {each.workload for each in candidates} - {each.workload for each in allowed}, _BUDGET
            )
        for each in who.elastic.work.ending(allowed):
            spared.pop(each, None)  # a further pod of a Job, which ends with it
        return _Candidates(who.elastic.elastic(candidates, allowed), allowed, spared)

    def _obstacle(
        self, victim: Workload, allocation: Allocation, workload: Workload, who: _Rules, guaranteed_to: str
    ) -> str:
        """Why running work may not be preempted for a workload, in words that follow its name;
        empty if it may.
        """
        if victim.queue not in who.taking_part:
            return _NO_PREEMPTION
        if not guaranteed_to and not who.victims_of.is_below(victim, workload):
            return _priority_in_words(victim, workload)
        if victim.state not in (State.ALLOCATED, State.RUNNING) or is_over_time_limit(victim):
            return _STOPPING  # it ends anyway
        if not self._ledger.is_released(allocation):
            return STARTING
        if not who.victims_of.ran_enough(victim, allocation):
            return MIN_RUN
        return who.victims_of.obstacle(victim, allocation)

    async def _choose(
        self, attempt: Attempt, could_be: _Candidates, standing: Standing, elastic: ElasticVictims
    ) -> Victims:
        """Return the victims without which the workload of the attempt would start; none if nothing helps.

        The pods of elastic Jobs are read only if something would help. What loses least of them may be on
        nodes that do not help. Then what is on the nodes that the work would get is tried.
        """
        choose, jobs = self._trials.choose, could_be.elastic
        parts: list[Victims] = []
        if jobs:
            if not await self._trials.nodes(
                attempt, elastic.gone([*dict.fromkeys((*could_be.wholes, *jobs))]), standing
            ):
                return ()
            parts = elastic.parts(jobs)
        if parts and (taken := await self._trials.nodes(attempt, elastic.gone(jobs), standing)):
            for orders in (parts, elastic.parts_by_node(jobs)), (elastic.parts_by_node(jobs, taken),):
                if victims := await choose(choose_parts(orders), attempt, standing, elastic.gone):
                    return elastic.closed(victims)
        priority = None if attempt.guaranteed_to else attempt.workload.priority
        wholes = elastic.beside(could_be.wholes, parts)
        search = choose_victims(wholes, priority, parts=[part for (part,) in parts])
        return elastic.closed(await choose(search, attempt, standing, elastic.gone))

    async def _preempt_for(
        self, attempt: Attempt, victims: Sequence[PreemptionCandidate], who: _Rules, standing: Standing
    ) -> bool:
        """Evict the victims, or have them give pods back, unless the workload would start without that;
        return True if anything changed.
        """
        if await self._trials.nodes(attempt, NOTHING_GONE, standing):
            return await self._withdraw(who.abandoned)
        first, elastic = attempt.workload, who.elastic
        given, evictions = elastic.endings.given_back(attempt, victims)
        log.info(
            "workload.preempting",
            workload=first.id,
            uid=first.uid,
            priority=first.priority,
            guaranteed_to=attempt.guaranteed_to,
            victims=[each.workload for each in victims if each.of is None],
            smaller=list(given),
        )
        await self._evict(
            [*evictions, *elastic.endings.evictions(attempt, victims)], given, reasons_of(who.abandoned)
        )
        self._withdrawals.note_helped(attempt)
        self._why_not.made_room(
            first,
            elastic.endings.in_words(first.namespace, victims),
            lost_in_words(victims),
            self._under_way_s(),
        )
        return True

    async def _withdraw(self, abandoned: Mapping[WorkloadId, Abandoned]) -> bool:
        """Let work go on that was told to stop in vain; return True if there is any."""
        if abandoned:
            log.info("workload.preemption_in_vain", workloads=list(abandoned))
            await self._evict((), {}, reasons_of(abandoned))
        return bool(abandoned)


def _priority_in_words(victim: Workload, workload: Workload) -> str:
    """How running work stands to work that it may not be preempted for."""
    if victim.priority == workload.priority:
        return "of equal priority"
    return (
        "of higher priority"
        if victim.priority > workload.priority
        else "first in the order, by the weights of priorities"
    )
