"""The match of a cycle: one round of the policies over all queues that have work,
with grants stored as they are made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial

from fluxqueue.fluxion.messages import MatchResult
from fluxqueue.queue.metrics import GRANTS
from fluxqueue.queue.model.records import Grant, Workload, WorkloadId
from fluxqueue.queue.scheduling.backlogs import Backlogs
from fluxqueue.queue.scheduling.cycle import Cycle
from fluxqueue.queue.scheduling.grants import GrantWriter, Promised
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.job_ids import JobIds
from fluxqueue.queue.scheduling.graph.match_rules import MatchRules
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.namespace_turns import NamespaceTurns
from fluxqueue.queue.scheduling.policies.passes import CycleContext, PendingQueue, RefusalCache
from fluxqueue.queue.scheduling.policies.rounds import Round
from fluxqueue.queue.scheduling.reasons.avoided_nodes import AvoidedNodes
from fluxqueue.queue.scheduling.reservations.reservation_keeper import ReservationKeeper
from fluxqueue.queue.scheduling.round_driver import RoundDriver
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Matching"]

_LONGEST_TURN_S = 0.1
"""The matcher's CPU for the refused work of one namespace in a cycle: others wait for it."""

Granted = Callable[[Cycle, Sequence[Grant], Sequence[Grant]], Awaitable[None]]
"""Is called with a cycle, the grants of a step, and those of them that the store refused."""


class Matching:
    """Runs the round of each cycle, and keeps the refusals of each queue from cycle to cycle."""

    def __init__(
        self,
        ledger: Ledger,
        graph: GraphKeeper,
        job_ids: JobIds,
        avoided: AvoidedNodes,
        rules: MatchRules,
        promised: Promised,
    ) -> None:
        self._graph = graph
        self._job_ids = job_ids
        self._avoided = avoided
        self._rules = rules
        self._grants = GrantWriter(ledger, graph, job_ids, promised)
        self._refusal_caches: dict[str, RefusalCache] = {}
        self._turns = NamespaceTurns(_LONGEST_TURN_S)

    async def run(
        self,
        cycle: Cycle,
        backlogs: Backlogs,
        reservations: ReservationKeeper,
        unsatisfiable: Mapping[str, MatchResult],
        granted: Granted,
    ) -> None:
        """Run the round of a cycle.

        Parameters
        ----------
        cycle
            Gets the context and the results of the round.
        backlogs, reservations
            The pending work of each queue. The reservations are kept up to date.
        unsatisfiable
            Answers for shapes that are not matched, because they fit no empty graph.
        granted
            Called after grants are stored.
        """
        call = self._graph.call()
        if cycle.capacity_changed:
            for cache in self._refusal_caches.values():
                cache.clear()
        self._avoided.begin_cycle()
        self._turns.begin_round(capacity_changed=cycle.capacity_changed)
        cycle.context = CycleContext(
            call.now or 0,
            capacity_changed=cycle.capacity_changed,
            unsatisfiable=unsatisfiable,
            quotas=cycle.quotas,
            individual=(self._avoided.avoiding, self._rules.individual),
            reserved_starts=self._graph.reserved_starts,
            first_starts=reservations.first_starts(cycle.dropped),
            match_policies=cycle.match_policies,
            turns=self._turns,
            preempting=cycle.preempting,
        )
        queues = self._pending_queues(backlogs, reservations)
        if cycle.under_way.holds_until is not None:
            queues = [_without_others(each, cycle.under_way.added) for each in queues]
        driver = RoundDriver(
            self._graph.fluxion,
            self._job_ids.of,
            partial(self._store, cycle, granted),
            match_policies=cycle.match_policies,
            latest_nodes=cycle.latest_nodes,
            exclude=self._avoided.exclude,
            rules=self._rules,
            turns=self._turns,
        )
        cycle.results = await driver.run(
            Round(queues, cycle.disciplines, cycle.context), reservations.held, call
        )
        cycle.turns_left = self._turns.end_round()

    def _pending_queues(self, backlogs: Backlogs, reservations: ReservationKeeper) -> list[PendingQueue]:
        """Return the queues with work that waits, or with reservations."""
        reserving, caches = reservations.queues, self._refusal_caches
        return [
            PendingQueue(name, backlog, reservations.of_queue(name), caches.setdefault(name, RefusalCache()))
            for name, backlog in sorted(backlogs.by_queue.items())
            if len(backlog) or name in reserving
        ]

    async def _store(
        self, cycle: Cycle, granted: Granted, answers: Sequence[tuple[Workload, MatchResult]]
    ) -> None:
        grants, refused = await self._grants.store(cycle, answers)
        if len(grants) > len(refused):
            GRANTS.inc(len(grants) - len(refused))
        await granted(cycle, grants, refused)


def _without_others(queue: PendingQueue, staying: Container[WorkloadId]) -> PendingQueue:
    """Return a queue with only some of its work, and what has a reservation."""
    backlog = Backlog(each for each in queue.backlog if each.id in staying or each.id in queue.reservations)
    return replace(queue, backlog=backlog, refusal_cache=RefusalCache())
