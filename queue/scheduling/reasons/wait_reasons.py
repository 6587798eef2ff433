"""Why pending workloads wait, as each cycle reports it.

Workloads that were matched get the answer of the matcher. The others behind them were not matched. They get a
general reason once, while they have none. Several sources then refine the reasons, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import chain, compress, islice
from operator import attrgetter

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Provision
from fluxqueue.fluxion.messages import AdvanceReservation
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.reasons import LIMIT_REASONS
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.backlogs import Backlogs
from fluxqueue.queue.scheduling.cycle import Cycle
from fluxqueue.queue.scheduling.flavor_waits import FlavorWaits
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.match_rules import MatchRules
from fluxqueue.queue.scheduling.limits.budgets import USED_UP
from fluxqueue.queue.scheduling.policies.passes import HeldReservation
from fluxqueue.queue.scheduling.policies.refusals import EXPLAINED
from fluxqueue.queue.scheduling.preemption.why_not import WhyNot
from fluxqueue.queue.scheduling.reasons.avoided_nodes import AvoidedNodes
from fluxqueue.queue.scheduling.reasons.blocking_reservations import BlockingReservations
from fluxqueue.queue.scheduling.reasons.deadlines import Deadlines
from fluxqueue.queue.scheduling.reasons.outages import Outages
from fluxqueue.queue.scheduling.reasons.satisfiability import SatisfiabilityCache, in_namespace_turns
from fluxqueue.queue.scheduling.reasons.unsatisfiable_reasons import NO_PRESENT_NODE, UnsatisfiableReasons
from fluxqueue.queue.scheduling.reasons.wait_text import (
    RESERVED,
    at_limit,
    in_general,
    names_reservation,
    reservation_reason,
    reserved_words,
)
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["WaitReasons"]

_MOST_TOLD = 10_000
"""Workloads that get the reason in a cycle that they wait for a limit."""
_MOST_GENERAL = 5_000
"""Workloads that get a general reason in a cycle: each is refined in some steps, of 20 µs in all."""
_COMPARED_AT_ONCE = 4_096
_LONGEST_COMPARED_S = 0.25
"""Workloads that are compared with changed nodes at a time, and after which time the rest is left to the next
cycle."""


class WaitReasons:
    """Reports why pending workloads wait. The caller holds the lock of the graph.

    Parameters
    ----------
    ledger, graph, backlogs
        The workloads, the matcher, and who waits in which queue.
    satisfiability, avoided, rules, deadlines, why_not, flavors
        Sources of reasons.
    """

    def __init__(
        self,
        ledger: Ledger,
        graph: GraphKeeper,
        backlogs: Backlogs,
        satisfiability: SatisfiabilityCache,
        avoided: AvoidedNodes,
        rules: MatchRules,
        deadlines: Deadlines,
        why_not: WhyNot,
        flavors: FlavorWaits,
    ) -> None:
        self._ledger = ledger
        self._backlogs = backlogs
        self._satisfiability = satisfiability
        self._avoided = avoided
        self._rules = rules
        self._deadlines = deadlines
        self._why_not = why_not
        self._flavors = flavors
        self._blocking = BlockingReservations(ledger, graph)
        self._unsatisfiable = UnsatisfiableReasons(ledger, graph, satisfiability)
        self._outages = Outages(ledger, graph)
        self._unexplained: set[WorkloadId] = set()
        self._unchecked: set[WorkloadId] = set()
        """Work of which it is not known yet whether it can ever start.
        It has a reason, and gets one again when that is known."""
        self._never: set[WorkloadId] = set()
        """Work that is told that no present node could hold it."""
        self._nodes_version = -1
        self._uncompared: list[WorkloadId] = []
        """Work that is still to be compared with the nodes of that version, the first of it last."""
        self._limited: set[WorkloadId] = set()
        self._told_limit: set[WorkloadId] = set()
        """Work that was found to be told of its limit (`_is_told`), unchanged since."""
        self._told_with = -1, 0
        """Version of the graph and number of shapes that never fit, by which it was found."""
        self._untold = False
        self._told: dict[WorkloadId, int | None] = {}
        """Start of the reservation that the reason of a workload names; None:
        not known, since a former leader wrote it."""
        self._kept_out: set[WorkloadId] = set()
        """Work whose reason names what is set aside for people."""
        self._matcher_away: set[WorkloadId] = set()
        self._provisions: dict[str, Provision] = {}

    def note_changed(self, workloads: Iterable[WorkloadId]) -> None:
        """Find out which of the changed workloads have no reason yet."""
        for workload_id in workloads:
            self._unexplained.discard(workload_id)
            self._kept_out.discard(workload_id)
            self._told_limit.discard(workload_id)
            self._never.discard(workload_id)
            workload = self._ledger.get(workload_id) if workload_id in self._backlogs else None
            if workload is None:
                continue
            self._blocking.note_told(workload)
            self._why_not.note_shown(workload)
            self._outages.note_shown(workload)
            if workload.reason is Reason.RESERVATION:
                self._kept_out.add(workload_id)
            if workload.reason in (Reason.UNSATISFIABLE, Reason.PROVISIONING) or workload.message.startswith(
                NO_PRESENT_NODE
            ):
                self._never.add(workload_id)
            outdated = self._deadlines.names_another(workload) or self._flavors.is_outdated(workload)
            if workload.reason is Reason.NONE or outdated:
                self._unexplained.add(workload_id)
            elif workload.reason in LIMIT_REASONS:
                self._limited.add(workload_id)
            elif RESERVED in workload.message:
                self._told.setdefault(workload_id, None)

    def note_set_aside(self, reservations: Sequence[AdvanceReservation]) -> None:
        """Explain again the work whose reason names none of what is set aside now:
        it is over, was deleted or has other times.
        """
        kept_out = (
            workload
            for workload_id in self._kept_out
            if (workload := self._ledger.get(workload_id)) is not None
        )
        self._unexplained |= {
            each.id
            for each in kept_out
            if not any(names_reservation(each.message, one) for one in reservations)
        }

    def begin_cycle(self, cycle: Cycle) -> None:
        """Explain again where a queue changed whether it requests nodes,
        to the work that waits for nodes to be added.
        """
        self._unexplained |= {
            workload_id for workload_id in self._matcher_away if workload_id in self._backlogs
        }
        self._matcher_away.clear()
        provisions = {name: each.provision for name, each in cycle.disciplines.items()}
        for queue, backlog in self._backlogs.by_queue.items():
            if provisions.get(queue) is not self._provisions.get(queue):
                self._unexplained |= {
                    waiting.id for waiting in backlog if self._satisfiability.needed_shapes(waiting.shape)
                }
        self._provisions = provisions

    async def report_matcher_away(self, message: str) -> None:
        """Store why nothing is matched, for the first workloads that have no reason yet.
        The next cycle gives them another reason.
        """
        arrived = (
            self._ledger.get(workload_id) for workload_id in self._backlogs.changed | self._unexplained
        )
        unexplained = [
            row.id
            for row in arrived
            if row is not None and row.state is State.PENDING and row.reason is Reason.NONE
        ]
        text = f"nothing is started at present: {message}"
        changes = [
            ReasonChange(workload=each, reason=Reason.WAITING_FOR_NODES, message=text)
            for each in unexplained[:EXPLAINED]
        ]
        await self._ledger.set_reasons(changes)
        self._matcher_away |= {change.workload for change in changes}

    async def report(self, cycle: Cycle, held: Mapping[WorkloadId, HeldReservation]) -> bool:
        """Store why workloads wait after a round; return True if some are left for the next cycle."""
        for result in cycle.results:
            self._satisfiability.learn_refused(result.reasons, cycle.match_policies)
        unchecked = await self._compare_with_nodes(cycle.match_policies)
        changes = self._collect(cycle, held)
        changes = await self._blocking.refine(changes, held)
        workloads = [change.workload for change in changes]
        self._unchecked = await self._satisfiability.check(workloads)
        later = await self._satisfiability.check_growth(workloads)
        changes = self._unsatisfiable.refine(changes, self._provisions)
        changes = await self._outages.refine(changes, held)
        changes = self._flavors.refine(self._avoided.refine(changes))
        changes = self._why_not.refine(self._deadlines.refine(changes))
        await self._ledger.set_reasons(
            [each for each in changes if each.workload not in later and not self._is_known_preempted(each)]
        )
        self._unexplained = (self._unexplained - {each.workload for each in changes}) | later
        return unchecked or bool(self._unchecked or later) or self._untold

    async def _compare_with_nodes(self, match_policies: Container[str]) -> bool:
        """After a change of nodes, explain again what is told that it never fits and does, and what never
        fits and is not told so.

        Most of it is not matched, since something smaller was refused before it. A cycle compares a part, of
        each namespace in turn. Return True if some is left for the next cycle.
        """
        if self._nodes_version != self._satisfiability.version:
            self._nodes_version = self._satisfiability.version
            backlogs = self._backlogs.by_queue.items()
            waiting = [each for queue, backlog in backlogs if queue not in match_policies for each in backlog]
            waiting = in_namespace_turns(waiting, attrgetter("namespace"))
            self._uncompared = [each.id for each in reversed(waiting)]
        until = time.perf_counter() + _LONGEST_COMPARED_S
        while self._uncompared:
            part = self._uncompared[-_COMPARED_AT_ONCE:]
            left = await self._satisfiability.check(part[::-1])
            self._uncompared[-_COMPARED_AT_ONCE:] = [each for each in part if each in left]
            self._unexplained |= {
                each for each in part if each not in left and self._is_told_wrong(each, match_policies)
            }
            if left or time.perf_counter() > until:
                break
        return bool(self._uncompared)

    def _is_told_wrong(self, workload_id: WorkloadId, match_policies: Container[str]) -> bool:
        """True if work waits that never fits and is not told so, or the other way round."""
        row = self._ledger.get(workload_id) if workload_id in self._backlogs else None
        if row is None or row.queue in match_policies:
            return False
        return (row.shape in self._satisfiability.unsatisfiable) is not (workload_id in self._never)

    def _collect(self, cycle: Cycle, held: Mapping[WorkloadId, HeldReservation]) -> list[ReasonChange]:
        """The reasons of the round: limits first, then the matcher's answers, reservations,
        and general reasons for the rest.
        """
        limited, aside = self._over_limits(cycle, held)
        for result in cycle.results:
            result.reasons = self._rules.mark_temporary(result.reasons)
        changes = [
            *limited,
            *(
                change
                for result in cycle.results
                for change in result.reasons
                if change.workload not in aside
            ),
        ]
        for result in cycle.results:
            self._satisfiability.learn(result.reasons, cycle.match_policies)
            reserved = {
                workload_id: answer
                for workload_id, (_, answer) in result.reserved.items()
                if workload_id in held
            }
            changes += [reservation_reason(workload_id, answer) for workload_id, answer in reserved.items()]
            self._told |= {workload_id: answer.at for workload_id, answer in reserved.items()}
        explained = aside | {change.workload for change in changes}
        changes += self._moved_reservations(held, explained)
        self._unexplained |= {
            workload_id for workload_id in self._blocking.outdated(held) if workload_id in self._backlogs
        }
        self._unexplained |= self._outages.outdated(self._backlogs)
        self._unexplained |= {workload_id for workload_id in self._unchecked if workload_id in self._backlogs}
        for workload in self._next_unexplained(explained):
            text = (
                self._told_reservation(held[workload.id])
                if workload.id in held
                else in_general(workload, cycle.disciplines)
            )
            changes.append(ReasonChange(workload=workload.id, reason=Reason.WAITING_FOR_NODES, message=text))
        return changes

    def _next_unexplained(self, explained: Collection[WorkloadId]) -> list[Workload]:
        """Return the work that gets a general reason, first what has none.
        A change of nodes may concern all work: what is left is for the next cycles.
        """
        rows = map(self._ledger.get, self._unexplained.difference(explained))
        waiting = [row for row in rows if row is not None and row.state is State.PENDING]
        if len(waiting) > _MOST_GENERAL:
            self._untold = True
            waiting.sort(key=lambda row: row.reason is not Reason.NONE)
        return waiting[:_MOST_GENERAL]

    def _told_reservation(self, reservation: HeldReservation) -> str:
        """Return what is said of a workload's reservation, and note that it is."""
        self._told[reservation.workload] = reservation.start
        return reserved_words(reservation.nodes, reservation.start)

    def _moved_reservations(
        self, held: Mapping[WorkloadId, HeldReservation], explained: Collection[WorkloadId]
    ) -> list[ReasonChange]:
        """New reasons for those whose reason names another start than their reservation has.
        Who lost it is explained again.
        """
        moved: list[ReasonChange] = []
        for workload_id, start in list(self._told.items()):
            reservation = held.get(workload_id)
            if workload_id not in self._backlogs:
                del self._told[workload_id]
            elif reservation is None:
                del self._told[workload_id]
                self._unexplained.add(workload_id)
            elif workload_id not in explained and reservation.start != start:
                text = self._told_reservation(reservation)
                moved.append(
                    ReasonChange(workload=workload_id, reason=Reason.WAITING_FOR_NODES, message=text)
                )
        return moved

    def _over_limits(
        self, cycle: Cycle, held: Collection[WorkloadId]
    ) -> tuple[list[ReasonChange], set[WorkloadId]]:
        """Return who is over a limit and why, and all that are: most of these were told so before, or are
        told in a later cycle.

        The first of each queue are told the figures, those behind in general terms, if they have no reason
        yet.
        """
        known = [*cycle.over_limit, *(change for result in cycle.results for change in result.reasons)]
        changes = {change.workload: change for change in known if change.reason in LIMIT_REASONS}
        over, self._untold = set(changes), False
        satisfiability = self._satisfiability.version, len(self._satisfiability.unsatisfiable)
        if satisfiability != self._told_with:
            self._told_limit, self._told_with = set(), satisfiability
        for queue, backlog in self._backlogs.by_queue.items():
            if not cycle.quotas.limited(queue):
                continue
            aside = list(compress(backlog, (~cycle.quotas.within(queue, backlog)).tolist()))
            waiting = {each.id for each in aside}.difference(held)
            over |= waiting
            first = list(islice((each for each in aside if each.id in waiting), EXPLAINED))
            untold = waiting.difference(self._told_limit, (each.id for each in first))
            behind = (each for each in aside if each.id in untold) if untold else ()
            for number, workload in enumerate(chain(first, behind)):
                exact = number < EXPLAINED
                if workload.id in changes:
                    continue
                if not exact and self._is_told(workload):
                    self._told_limit.add(workload.id)
                elif len(changes) < _MOST_TOLD:
                    changes[workload.id] = at_limit(workload, cycle.quotas, exact=exact)
                else:
                    self._untold = self._untold or workload.reason is Reason.NONE
        self._unexplained |= {
            workload_id for workload_id in self._limited - over if workload_id in self._backlogs
        }
        self._limited = over
        return list(changes.values()), over

    def _is_told(self, workload: Workload) -> bool:
        """True if a workload that waits for a limit has that reason, naming no day,
        or the one that it could not start anyway.
        """
        if workload.reason is Reason.UNSATISFIABLE:
            return workload.shape in self._satisfiability.unsatisfiable
        return (
            workload.reason in LIMIT_REASONS
            and USED_UP not in workload.message
            and self._satisfiability.fits(workload.shape)
        )

    def _is_known_preempted(self, change: ReasonChange) -> bool:
        """True if the workload shows for whom it was preempted.
        That it waits for nodes since then adds nothing.
        """
        workload = self._ledger.get(change.workload)
        waits = change.reason in (Reason.WAITING_FOR_NODES, Reason.BLOCKED_BY_RESERVATION)
        return waits and workload is not None and workload.reason is Reason.PREEMPTED
