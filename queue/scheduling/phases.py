"""The phases of a scheduling cycle: pending work is offered to Fluxion in policy order, what it grants is
stored, and only then released.

1. *Begin*: the backlogs get the present workloads, the graph the present nodes and allocations.
2. *Revise*: planned ends move where work drains or overruns, and reservations that no longer hold are
  cancelled.
3. *Match*: the policies of all queues propose and the matcher answers. Grants are stored meanwhile.
4. *Store* the reservations that were made, moved or dropped.
5. *Report* why each of the others waits.
6. *Look ahead*: preempt for the first that wait, let Jobs grow that were started with fewer pods, and, every
   few seconds, estimate the starts of those without a reservation.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fluxqueue.api.fluxqueues import AtLimit
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.consolidations import UnderWay, under_way
from fluxqueue.queue.model.records import GUARANTEED_FIRST, Grant
from fluxqueue.queue.scheduling.backlogs import Backlogs
from fluxqueue.queue.scheduling.cycle import Cycle
from fluxqueue.queue.scheduling.flavor_waits import FlavorWaits
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.job_ids import JobIds
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShapes
from fluxqueue.queue.scheduling.growth import Growth
from fluxqueue.queue.scheduling.limits.budget_keeper import BudgetKeeper
from fluxqueue.queue.scheduling.limits.guarantees import Guarantees, held_nodes, largest_of
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.limits.submitted_limits import SubmittedLimits
from fluxqueue.queue.scheduling.limits.wide_answers import WideAnswers
from fluxqueue.queue.scheduling.matching import Matching
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.predicted_durations import PredictedDurations
from fluxqueue.queue.scheduling.preemption.preemptor import Evict, Preemptor
from fluxqueue.queue.scheduling.preemption.why_not import WhyNot
from fluxqueue.queue.scheduling.reasons.avoided_nodes import AvoidedNodes
from fluxqueue.queue.scheduling.reasons.deadlines import Deadlines
from fluxqueue.queue.scheduling.reasons.satisfiability import SatisfiabilityCache
from fluxqueue.queue.scheduling.reasons.wait_reasons import WaitReasons
from fluxqueue.queue.scheduling.reservations.estimates import StartEstimator
from fluxqueue.queue.scheduling.reservations.planned_ends import PlannedEnds
from fluxqueue.queue.scheduling.reservations.reservation_keeper import ReservationKeeper
from fluxqueue.queue.scheduling.surroundings import Surroundings
from fluxqueue.queue.scheduling.wakeups import Wakeup
from fluxqueue.queue.store.freed import Freed
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["CyclePhases"]

_NEXT_ANSWERS_S = 1.0
"""Until work is looked at that waited because many answers before it were over a budget."""


class CyclePhases:
    """Carries out one cycle after the other. The caller holds the lock of the graph.

    Parameters
    ----------
    ledger, graph
        What is stored, and what the matcher holds.
    trigger
        How releases are requested.
    wakeup
        How further cycles are requested.
    evict
        Evicts workloads for preemption.
    node_shapes
        Nodes by which the cluster may grow.
    around
        What the cycles ask about everything else.

    Attributes
    ----------
    budgets
        Keeps what accounts with budgets used.
    """

    def __init__(
        self,
        ledger: Ledger,
        graph: GraphKeeper,
        trigger: Trigger,
        wakeup: Wakeup,
        evict: Evict,
        node_shapes: NodeShapes,
        around: Surroundings,
    ) -> None:
        self._ledger = ledger
        self._graph = graph
        self._trigger = trigger
        self._wakeup = wakeup
        self._around = around
        self._rules = rules = around.rules
        self._predictions = PredictedDurations(ledger)
        self._flavors = FlavorWaits(ledger)
        self._backlogs = Backlogs(ledger, self._predictions.of, self._flavors.closed, graph.has_types)
        self._job_ids = JobIds(ledger)
        self._reservations = ReservationKeeper(ledger, graph, self._backlogs, self._job_ids, rules)
        self._planned_ends = PlannedEnds(ledger, graph)
        self._satisfiability = SatisfiabilityCache(ledger, graph, node_shapes)
        self._avoided = avoided = AvoidedNodes(ledger, graph)
        self._estimator = StartEstimator(ledger, graph, around.published)
        self._matching = Matching(ledger, graph, self._job_ids, avoided, rules, self._estimator.promised)
        self._deadlines = Deadlines(ledger, self._estimator.estimates)
        why_not = WhyNot(ledger)
        self._reasons = WaitReasons(
            ledger,
            graph,
            self._backlogs,
            self._satisfiability,
            avoided,
            rules,
            self._deadlines,
            why_not,
            self._flavors,
        )
        self._preemptor = Preemptor(ledger, graph, evict, rules, why_not, around.victims)
        self._growth = Growth(ledger, graph, wakeup, around.sizes)
        self._holding = False
        self.budgets = BudgetKeeper(ledger)
        self._wide = WideAnswers()
        self._submitted = SubmittedLimits(ledger)
        self.estimates = self._estimator.estimates
        self.parts = (
            self._predictions,
            self._flavors,
            self._backlogs,
            self._estimator,
            self._deadlines,
            self._growth,
            self._submitted,
            rules,
        )

    async def run(self, disciplines: Callable[[], Mapping[str, Discipline]]) -> int:
        """Run one cycle; return how many workloads were granted.

        Raises
        ------
        FluxionError, GraphLost
            The matcher is away, or the graph is not what it should be.
        """
        await self._begin()
        cycle = Cycle(disciplines())
        changed = await self._predictions.begin_cycle(cycle.disciplines) | self._flavors.begin_cycle()
        if changed:
            self._backlogs.changed |= changed
            await self._refresh()
        self._reasons.begin_cycle(cycle)
        await self._revise(cycle)
        await self._match(cycle)
        await self._reservations.store(
            cycle.results, cycle.dropped | {each.workload: each.message for each in cycle.over_limit}
        )
        await self._report(cycle)
        await self._look_ahead(cycle)
        return cycle.granted

    async def report_matcher_away(self, message: str) -> None:
        """Store why nothing is matched, for workloads that have no reason yet."""
        await self._reasons.report_matcher_away(message)

    def reserved_starts(self) -> list[int]:
        """Return the starts of all reservations, in Unix seconds."""
        return [held.start for held in self._reservations.held.values()]

    def next_change(self) -> float:
        """Return when a time that is set aside for people, or the period of a budget, begins or ends next, or
        a flavor opens to work that waits; infinite if none does.
        """
        return min(
            self._around.book.next_change() if self._around.book is not None else float("inf"),
            self.budgets.next_change,
            self._flavors.next_opening,
        )

    async def _begin(self) -> None:
        if departed := self._job_ids.take_departed():
            self._reservations.forget(departed)
            self._ledger.return_freed(Freed(jobs=set(departed.values())))
        # all that is matched must be known to the graph; what comes from now on waits for the next cycle
        self._graph.learn_requests()
        self._backlogs.begin_cycle()
        await self._refresh()
        await self._graph.ensure()
        if (book := self._around.book) is not None:
            known = book.ready
            changed = await book.refresh(self._graph.call().now or 0)
            if changed:
                self._graph.note_capacity_changed()
            if changed or not known:
                self._reasons.note_set_aside(book.wanted())
            await self._graph.set_aside(book.wanted())

    async def _refresh(self) -> None:
        """Apply what changed in the ledger; others get a turn from time to time if that is much."""
        for changed in self._backlogs.refreshing():
            self._reasons.note_changed(changed)
            if not changed:
                await asyncio.sleep(0)

    async def _revise(self, cycle: Cycle) -> None:
        reservations, dropped = self._reservations, cycle.dropped
        dropped |= await reservations.restore_after_rebuild(cycle.match_policies)
        dropped |= await reservations.cancel_on_changed_nodes()
        dropped |= await self._planned_ends.plan_again(reservations)
        draining = await self._planned_ends.expect_drained()
        cycle.preempting = self._preemptor.waited_for()
        dropped |= await self._planned_ends.extend_overruns(reservations)
        await self._planned_ends.lengthen(reservations, predicted=self._predictions.any)
        dropped |= await reservations.cancel_stale()
        limits = {name: each.limits for name, each in cycle.disciplines.items() if each.limits is not None}
        stopping = {name for name, each in cycle.disciplines.items() if each.at_limit is AtLimit.STOP}
        accounts = self._around.accounts()
        beyond = self._submitted.beyond(accounts)
        budgets = await self.budgets.room(accounts)
        self._wide.begin_cycle(self._ledger.clock())
        cycle.quotas = Quotas(
            limits, self._ledger.live(), accounts, beyond, stopping, self._around.room(), budgets, self._wide
        )
        dropped |= await reservations.cancel_over_limits(cycle.quotas)
        rules_changed = self._rules.begin_cycle()
        dropped |= await reservations.cancel_against_rules()
        reordered = await self._put_guaranteed_first(cycle, accounts)
        reordered = reservations.update_priorities() or reordered
        freed = self._graph.take_capacity_changed()
        admitted = self._avoided.take_ended()
        cycle.capacity_changed = freed or admitted or draining or bool(dropped) or reordered or rules_changed

    async def _put_guaranteed_first(self, cycle: Cycle, accounts: AccountTree) -> bool:
        """Order work that is within what is guaranteed to its account before all other;
        return True if the order changed.
        """
        cycle.guarantees = Guarantees(accounts, held_nodes(self._ledger.live()))
        largest = largest_of(self._graph.nodes.values()) if cycle.guarantees.any else {}
        under_way = cycle.under_way = self._under_way()
        guaranteed = cycle.guarantees.first(self._backlogs.by_queue.values(), largest)
        added = Counter(dict.fromkeys(guaranteed, GUARANTEED_FIRST))
        added.update(under_way.added)
        reordered = self._ledger.put_first(added)
        if reordered:
            await self._refresh()
        return reordered

    def _under_way(self) -> UnderWay:
        """Return which consolidation is not over; request a cycle for when it keeps no work waiting any more.

        What was kept waiting is tried then.
        """
        now, before = self._ledger.clock(), self._holding
        found = under_way(self._ledger.moved(), now)
        self._holding = found.holds_until is not None
        if found.holds_until is not None:
            self._wakeup.soon((found.holds_until - now).total_seconds())
        elif before:
            self._graph.note_capacity_changed()
        return found

    async def _match(self, cycle: Cycle) -> None:
        await self._matching.run(
            cycle, self._backlogs, self._reservations, self._satisfiability.unsatisfiable, self._granted
        )
        await self._refresh()
        cycle.quotas.note_backlogs_changed()

    async def _granted(self, cycle: Cycle, grants: Sequence[Grant], refused: Sequence[Grant]) -> None:
        """Request the release of stored grants, and a further cycle for refused ones."""
        self._estimator.started((grant.workload for grant in grants), cycle.context.now)
        if refused:
            self._backlogs.changed.update(grant.workload for grant in refused)
            self._wakeup.soon()
        if len(grants) > len(refused):
            self._trigger.release()

    async def _report(self, cycle: Cycle) -> None:
        self._estimator.follow_reservations(self._reservations.held, cycle.context.now)
        more = await self._reasons.report(cycle, self._reservations.held)
        if more or cycle.turns_left or self._rules.changed or self._predictions.more or self._backlogs.later:
            self._wakeup.soon()
        elif cycle.quotas.left_for_later:
            self._wakeup.soon(_NEXT_ANSWERS_S)

    async def _look_ahead(self, cycle: Cycle) -> None:
        # work that is not matched any more, such as one on which the matcher fails, must not be asked about
        # again
        await self._refresh()
        backlogs, held = self._backlogs.by_queue, self._reservations.held
        if await self._preemptor.preempt(backlogs, cycle.disciplines, held, cycle.context, cycle.guarantees):
            self._wakeup.soon()
        elif self._preemptor.retry_after_s is not None:
            self._wakeup.soon(self._preemptor.retry_after_s)
        if not self._holding:
            await self._growth.run(cycle, backlogs)
        if wait_s := await self._estimator.update(backlogs, held, cycle.context, cycle.disciplines):
            self._wakeup.soon(wait_s)
        elif await self._deadlines.report():
            self._wakeup.soon()
