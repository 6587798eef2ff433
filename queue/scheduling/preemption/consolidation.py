"""Consolidation: moves small work, or lets it give pods back, if wide work starts sooner by more node-hours
than are lost.

Small work on scattered nodes can keep work waiting for hours that needs whole nodes. In queues that
consolidate, the first in the order of all work that waits for nodes may have other work moved. That is a
preemption with other candidates and another price. Priorities do not matter, as moved work restarts at once.
A trial matches the first and then all that is moved, in order: only if all of it starts now anything is
moved. The price is what the moved work did since its start or last checkpoint, and its nodes until it has
restarted. What is won is the time from now to the start that the plan of the queue says, on the nodes
reserved then.

Elastic work gives pods back instead, if it can spare them. These run nowhere else, so they cost their nodes
until the planned start too.

One consolidation is under way at a time. Until the moved work has restarted, it and the first come before all
other work, and once the grace is over nothing else starts, for at most two minutes: it could take the room
(`fluxqueue.queue.model.consolidations`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from msgspec import structs

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Consolidation
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.consolidations import move, prediction, under_way
from fluxqueue.queue.model.moldable import is_moldable
from fluxqueue.queue.model.records import (
    Allocation,
    ReleaseMode,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import GivenBack, MadeRoom, Moved
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.scheduling.graph.graph_jobs import DRAIN_S
from fluxqueue.queue.scheduling.policies.backlog import Backlog, key_of
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import CycleContext
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, Victims, choose_moves
from fluxqueue.queue.scheduling.preemption.consolidation_results import ConsolidationResults
from fluxqueue.queue.scheduling.preemption.elastic_victims import ElasticVictims
from fluxqueue.queue.scheduling.preemption.possible_victims import PossibleVictims, ShownVictims
from fluxqueue.queue.scheduling.preemption.trials import (
    NOTHING_GONE,
    Attempt,
    Gone,
    PreemptionTrials,
    Standing,
)
from fluxqueue.queue.scheduling.preemption.why_not import WhyNot
from fluxqueue.queue.scheduling.preemption.withdrawals import waits_for_nodes
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["MOST_MOVED", "MOST_REMOVALS", "Consolidator", "consolidating", "units_by_node"]

log = structlog.get_logger()

_HEADS: Final = 100
"""Workloads of each queue that are searched for the first that waits for nodes."""
MOST_MOVED: Final = 100
"""Workloads that may be moved at once, and that are searched: those that cost least."""
MOST_REMOVALS: Final = 8
_AGAIN_S: Final = 10.0
"""Between two looks at all running work."""
_NOTHING_WITHDRAWN: Final[Mapping[WorkloadId, str]] = {}

Evict = Callable[
    [Sequence[Eviction], Mapping[WorkloadId, GivenBack], Mapping[WorkloadId, str]], Awaitable[object]
]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The work that is to start, when it starts by the plan (Unix seconds), and on how many nodes."""

    first: Workload
    start: int
    nodes: int

    def won_node_s(self, now: float) -> float:
        """Return what is won if it starts at a time instead."""
        return max(self.start - now, 0.0) * self.nodes


def consolidating(disciplines: Mapping[str, Discipline]) -> dict[str, Consolidation]:
    """Return the rules of the queues that consolidate."""
    return {
        name: each.consolidation
        for name, each in disciplines.items()
        if each.consolidation.enabled and each.reserves
    }


def units_by_node(
    candidates: Sequence[PreemptionCandidate], immobile: frozenset[str], parts: Sequence[Victims] = ()
) -> list[Victims]:
    """Return what may be moved or given back of each node together: nodes first that are empty then, and of
    these the cheapest.
    """
    on_node: dict[str, list[PreemptionCandidate]] = {}
    for each in (*candidates, *(part for unit in parts for part in unit)):
        for node in each.nodes:
            on_node.setdefault(node, []).append(each)

    def order(node: str) -> tuple[object, ...]:
        return (
            node in immobile,
            sum(each.lost_node_s for each in on_node[node]),
            len(on_node[node]),
            node,
        )

    return [tuple(on_node[node]) for node in sorted(on_node, key=order)]


class Consolidator:
    """Moves work for the first that waits. The caller holds the lock of the graph.

    Parameters
    ----------
    ledger
        Pending and running work.
    evict
        Evicts workloads.
    trials
        How it is tried.
    why_not
        Tells the first what is moved for it.
    shown
        What the cluster shows of running work.

    Attributes
    ----------
    retry_after_s
        After the last call: in how many seconds more may be moved; None if that is not known.
    """

    def __init__(
        self, ledger: Ledger, evict: Evict, trials: PreemptionTrials, why_not: WhyNot, shown: ShownVictims
    ) -> None:
        self._ledger = ledger
        self._evict = evict
        self._trials = trials
        self._why_not = why_not
        self._shown = shown
        self._results = ConsolidationResults(ledger, shown)
        self._failed: tuple[object, ...] = ()
        self._freed = False
        self._looked_at: datetime | None = None
        self.retry_after_s: float | None = None

    async def consolidate(
        self,
        backlogs: Mapping[str, Backlog],
        disciplines: Mapping[str, Discipline],
        standing: Standing,
        context: CycleContext,
    ) -> bool:
        """Move work if the first that waits starts then, and more is won than lost; return True if so."""
        self.retry_after_s = await self._results.settle()
        if not (rules := consolidating(disciplines)):
            return False
        first, now = self._first(backlogs, context), self._ledger.clock()
        if under_way(self._ledger.moved(), now).added:
            return False
        if first is None or first.queue not in rules or first.id not in standing.reservations:
            return False
        room, held = first.requeue_state.room, standing.reservations[first.id]
        again_s = rules[first.queue].again_after_seconds
        if room is not None and now < room.at + timedelta(seconds=again_s):
            return False
        plan = _Plan(first, held.start, len(set(held.nodes)))
        if not plan.won_node_s(context.now + DRAIN_S) or self._looked(now, freed=context.capacity_changed):
            return False
        victims_of = PossibleVictims(now, disciplines, self._shown)
        elastic = ElasticVictims(self._ledger, self._shown, victims_of)
        units = self._units(rules, plan, context.now, victims_of, elastic)
        waits_s = (self.retry_after_s, victims_of.wait_s)
        self.retry_after_s = min((each for each in waits_s if each is not None), default=None)
        attempt = Attempt(
            first,
            (),
            frozenset(each.workload for unit in units for each in unit),
            disciplines[first.queue].limits,
            context.quotas.accounts.limiting(first.account),
        )
        if not units or (attempt.key == self._failed and not self._freed):
            return False
        self._failed, self._freed = attempt.key, False
        victims = await self._trials.choose(
            choose_moves(units, most_removals=MOST_REMOVALS),
            attempt,
            standing,
            lambda each: self._gone(elastic, each),
        )
        victims = tuple(dict.fromkeys(victims))
        if (
            not victims
            or await self._trials.nodes(attempt, NOTHING_GONE, standing)
            or await self._trials.in_vain(attempt, self._gone(elastic, victims), standing)
        ):
            return False
        return await self._move(attempt, victims, plan, victims_of, elastic)

    def _looked(self, now: datetime, *, freed: bool) -> bool:
        """True if all running work was looked at a moment ago. What was freed since is remembered."""
        self._freed = self._freed or freed
        if self._looked_at is not None:
            left_s = _AGAIN_S - (now - self._looked_at).total_seconds()
            if 0 < left_s <= _AGAIN_S:
                self.retry_after_s = min(self.retry_after_s or left_s, left_s)
                return True
        self._looked_at = now
        return False

    def _first(self, backlogs: Mapping[str, Backlog], context: CycleContext) -> Workload | None:
        """The first of all that waits for nodes: other work would start before any other."""

        def heads() -> Iterator[Workload]:
            for backlog in backlogs.values():
                for _, waiting in zip(range(_HEADS), backlog, strict=False):
                    workload = self._ledger.get(waiting.id)
                    if (
                        workload is not None
                        and workload.shape not in context.unsatisfiable
                        and waits_for_nodes(workload)
                    ):
                        yield workload
                        break

        return min(heads(), key=key_of, default=None)

    def _units(
        self,
        rules: Mapping[str, Consolidation],
        plan: _Plan,
        now: int,
        victims_of: PossibleVictims,
        elastic: ElasticVictims,
    ) -> list[Victims]:
        """What may be moved or given back, all of a node together."""
        immobile: set[str] = set()
        wholes: list[PreemptionCandidate] = []
        jobs: list[PreemptionCandidate] = []
        most_node_s = plan.won_node_s(now + DRAIN_S)
        for victim, allocation in self._ledger.live():
            found = (
                victims_of.candidate(victim, allocation)
                if self._may_go(victim, allocation, rules, victims_of)
                else None
            )
            if found is not None and is_moldable(victim):
                jobs.append(found)
            elif (
                found is not None
                and (moved := self._priced(found, rules[victim.queue], most_node_s))
                and self._trials.may_restart(victim, plan.first)
            ):
                wholes.append(moved)
            else:
                immobile |= allocation.open_nodes
        wholes.sort(key=lambda each: (each.lost_node_s, each.workload))
        beside_s = plan.won_node_s(now) / plan.nodes  # a pod that is given back runs nowhere else
        parts = [
            tuple(replace(each, lost_node_s=each.lost_node_s + beside_s, priority=0) for each in unit)
            for unit in (elastic.parts(jobs) if jobs else ())
            if all(self._within(each, rules) for each in unit)
        ]
        return units_by_node(wholes[:MOST_MOVED], frozenset(immobile), parts[:MOST_MOVED])

    def _within(self, part: PreemptionCandidate, rules: Mapping[str, Consolidation]) -> bool:
        """True if a pod that is given back loses no more than its queue allows."""
        job = self._ledger.get(part.of or part.workload)
        return job is not None and part.lost_node_s <= rules[job.queue].max_lost_seconds

    @staticmethod
    def _priced(
        found: PreemptionCandidate, rules: Consolidation, most_node_s: float
    ) -> PreemptionCandidate | None:
        """Return work with what it costs to move it; None if that is more than may be lost or is won."""
        nodes = max(len(found.nodes), 1)
        cost = found.lost_node_s + DRAIN_S * nodes
        if not found.returns or found.lost_node_s > rules.max_lost_seconds * nodes or cost >= most_node_s:
            return None
        return replace(found, lost_node_s=cost, priority=0)

    def _may_go(
        self,
        victim: Workload,
        allocation: Allocation,
        rules: Mapping[str, Consolidation],
        victims_of: PossibleVictims,
    ) -> bool:
        """True if running work may be moved at all. What only its pods' eviction stops is left alone: nobody
        knows when it restarts, and budgets of disruption have to allow it.
        """
        if (
            victim.queue not in rules
            or allocation.remnant
            or victim.state is not State.RUNNING
            or victim.evicting
            or is_over_time_limit(victim)
            or victim.release_mode is ReleaseMode.POD
            or not self._ledger.is_released(allocation)
        ):
            return False
        moved = victim.requeue_state.moved
        again_s = rules[victim.queue].again_after_seconds
        if moved is not None and self._ledger.clock() < moved.at + timedelta(seconds=again_s):
            return False
        return (
            victims_of.ran_enough(victim, allocation)
            and not victims_of.obstacle(victim, allocation)
            and not victims_of.budgets(victim, allocation)
        )

    def _gone(self, elastic: ElasticVictims, victims: Sequence[PreemptionCandidate]) -> Gone:
        """Return what is gone, and has to start elsewhere, in a trial."""
        rows = (self._ledger.get(each.workload) for each in victims if each.of is None)
        moved = sorted((row for row in rows if row is not None), key=key_of)
        return replace(elastic.gone(victims), moved=moved)

    async def _move(
        self,
        attempt: Attempt,
        victims: Victims,
        plan: _Plan,
        victims_of: PossibleVictims,
        elastic: ElasticVictims,
    ) -> bool:
        """Move the victims if more is won than lost; return True if so."""
        first, now = attempt.workload, self._ledger.clock()
        rows = [row for each in victims if (row := self._ledger.get(each.of or each.workload)) is not None]
        stop_at = max(map(victims_of.stop_at, rows), default=now)
        starts = self._ledger.wall() + (stop_at - now) + timedelta(seconds=DRAIN_S)
        room = MadeRoom(
            at=now,
            planned=datetime.fromtimestamp(plan.start, UTC),
            nodes=plan.nodes,
            works=len({row.id for row in rows}),
            won_node_s=round(plan.won_node_s(starts.timestamp())),
            lost_node_s=round(sum(each.lost_node_s for each in victims)),
            moved=sum(each.of is None for each in victims),
            given_node_s=round(sum(each.lost_node_s for each in victims if each.of is not None)),
        )
        if room.won_node_s <= room.lost_node_s:
            return False
        evictions = [
            self._as_move(each, victims, first, room) for each in elastic.endings.evictions(attempt, victims)
        ]
        given, alone = elastic.endings.given_back(attempt, victims)
        log.info(
            "workload.consolidating",
            workload=first.id,
            uid=first.uid,
            moved=[each.workload for each in evictions],
            smaller=list(given),
            won_node_s=room.won_node_s,
            lost_node_s=room.lost_node_s,
        )
        # before the effect: a prediction without it is corrected once the work has started
        await self._ledger.set_requeue_states({first.id: structs.replace(first.requeue_state, room=room)})
        await self._evict([*evictions, *alone], given, _NOTHING_WITHDRAWN)
        within_s = (stop_at - now).total_seconds() + 2 * DRAIN_S
        self._why_not.made_room(
            first, elastic.endings.in_words(first.namespace, victims), prediction(room), within_s
        )
        return True

    def _as_move(self, eviction: Eviction, victims: Victims, first: Workload, room: MadeRoom) -> Eviction:
        victim = self._ledger.get(eviction.workload)
        priced = next((each for each in victims if each.workload == eviction.workload), None)
        if victim is None or priced is None:
            return eviction
        nodes = max(len(priced.nodes), 1)
        lost = timedelta(seconds=priced.lost_node_s / nodes - DRAIN_S)
        moved = Moved(at=room.at, first=first.id, since=room.at - lost, nodes=nodes)
        return move(eviction, victim, first, moved, room)
