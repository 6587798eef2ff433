"""Trials of preemption: whether a workload would start now without certain running work, as the matcher
itself answers.

A trial is exactly what the next cycle would do. The victims are gone, and so are the reservations that would
yield to the work: those behind it in its queue, and those for lower priorities in other queues. All work that
comes before it in order, in any queue, is matched first. Then the work itself is matched, and its nodes are
checked against the limits of its queue and account. What ended since the cycle began still has nodes in the
graph, and is gone in each trial.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fluxqueue.api.fluxqueues import QueueLimits
from fluxqueue.fluxion.messages import JobMatchRequest, MatchResult, MatchVerdict
from fluxqueue.queue.model.accounts import Account
from fluxqueue.queue.model.flavors import waits_since_s
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.match_rules import MatchRules
from fluxqueue.queue.scheduling.limits.guarantees import Guarantees
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import key_of
from fluxqueue.queue.scheduling.policies.passes import HeldReservation
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, Victims, VictimSearch, carry_out
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["NOTHING_GONE", "Attempt", "Gone", "PreemptionTrials", "Standing"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A workload that is to start, the work before it in order, who could be evicted for it,
    and who could give pods back.
    """

    workload: Workload
    ahead: tuple[Workload, ...]
    candidates: frozenset[WorkloadId]
    limits: QueueLimits | None
    accounts: tuple[Account, ...]
    guaranteed_to: str = ""
    """Account whose guarantee covers the workload, if the attempt is made because of that."""
    elastic: frozenset[WorkloadId] = frozenset()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for attempts with the same outcome, as long as nothing is freed."""
        return (
            tuple((each.id, each.shape, each.closed_flavors) for each in (self.workload, *self.ahead)),
            self.candidates,
            self.limits,
            self.accounts,
            self.guaranteed_to,
            self.elastic,
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """What holds in all trials of one cycle.

    Attributes
    ----------
    reservations
        In the graph, by workload.
    quotas
        Use against the limits.
    policies
        Match policy of each queue.
    guarantees
        What is guaranteed to accounts.
    """

    reservations: Mapping[WorkloadId, HeldReservation]
    quotas: Quotas
    policies: Mapping[str, str]
    guarantees: Guarantees = field(default_factory=Guarantees)


@dataclass(frozen=True, slots=True)
class Gone:
    """What is gone in a trial: whole allocations, and some slots (ranks) of others.

    Attributes
    ----------
    moved
        Work of these allocations that has to start elsewhere then, in order. It still counts against limits,
        there on its new nodes.
    within_s
        How long it may take until all is gone. The work starts only then, so it has to fit for longer.
    """

    allocations: Sequence[Allocation] = ()
    parts: Sequence[tuple[Workload, Allocation, Collection[int]]] = ()
    moved: Sequence[Workload] = ()
    within_s: int = 0


NOTHING_GONE = Gone()


class PreemptionTrials:
    """Tries attempts. The caller holds the lock of the graph.

    Parameters
    ----------
    ledger, graph, rules
        Who holds reservations, the matcher, and rules about other pods.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper, rules: MatchRules) -> None:
        self._ledger = ledger
        self._graph = graph
        self._rules = rules
        self._probes: list[FluxionJobId] = []

    async def choose(
        self,
        search: VictimSearch,
        attempt: Attempt,
        standing: Standing,
        gone: Callable[[Sequence[PreemptionCandidate]], Gone],
    ) -> Victims:
        """Carry a search out, and return what it chooses;
        ``gone`` returns what is gone while some victims are tried.
        """
        return await carry_out(search, lambda victims: self.nodes(attempt, gone(victims), standing))

    async def nodes(
        self, attempt: Attempt, victims: Gone, standing: Standing, *, chosen: bool = False
    ) -> frozenset[str]:
        """Return the nodes that the workload of the attempt and those before it would get without the
        victims; none if it would not start.

        What is given back in part counts against limits until it is gone. What the work has to be near may be
        among several victims, and some of them may help although all do not. So rules that only then admit no
        node do not count before the victims are ``chosen``.
        """
        reservations = standing.reservations
        own = [each.id for each in (*attempt.ahead, attempt.workload) if each.id in reservations]
        aside = {
            *own,
            *(workload_id for workload_id in reservations if self._yields(workload_id, attempt.workload)),
        }
        moved = {each.id for each in victims.moved}
        ended = (each.workload for each in victims.allocations if each.workload not in moved)
        quotas = standing.quotas.without([*ended, *aside])
        jobspecs = self._requests(attempt, victims, chosen=chosen)
        if not all(jobspecs.get(each.id) for each in (attempt.workload, *victims.moved)):
            return frozenset()
        asked = [
            *(each for each in attempt.ahead if jobspecs[each.id] and not quotas.refusal(each)),
            attempt.workload,
        ]
        tried = (*asked, *victims.moved)
        requests = [
            JobMatchRequest(
                jobspecs[each.id],
                probe,
                reserve=each.id in reservations and each is not attempt.workload,
                duration_s=_duration_s(each, victims.within_s if each is attempt.workload else 0),
                policy=standing.policies.get(each.queue, ""),
                waits_since=waits_since_s(each),
            )
            for each, probe in zip(tried, await self._probes_for(len(tried)), strict=True)
        ]
        freed, freed_parts = self._graph.jobs.held_by(self._ledger.freed)
        whole = [jobid for each in victims.allocations for jobid in self._graph.jobs.of(each.jobid)]
        gone = [*freed, *whole, *(reservations[workload_id].jobid for workload_id in aside)]
        given = [
            part for _, its, ranks in victims.parts for part in self._graph.jobs.parts_without(its, ranks)
        ]
        parts = [*(part for part in freed_parts if part.jobid not in gone), *given]
        answers = (
            await self._graph.fluxion.trial(requests, without=gone, parts=parts, call=self._graph.call())
        ).results
        answers, restarts = answers[: len(asked)], answers[len(asked) :]
        if not _within_limits(asked, answers, quotas, list(zip(victims.moved, restarts, strict=True))):
            return frozenset()
        *before, nodes = ([share.node for share in answer.shares] for answer in answers)
        if attempt.guaranteed_to and not standing.guarantees.covers(
            attempt.workload, nodes, [each for each in zip(asked, before, strict=False) if each[1]]
        ):
            return frozenset()
        return frozenset(nodes).union(*before)

    async def in_vain(self, attempt: Attempt, victims: Gone, standing: Standing) -> bool:
        """True if rules about other pods keep the work from starting without the victims that were chosen."""
        return self._ruled(attempt) and not await self.nodes(attempt, victims, standing, chosen=True)

    def may_restart(self, victim: Workload, first: Workload) -> bool:
        """False if the nodes of a victim depend on pods that are placed before it restarts:
        a trial answers for all at once, and does not know them.
        """
        return not (self._rules.applies_to(victim) or self._rules.keeps_off(first, victim))

    def _ruled(self, attempt: Attempt) -> bool:
        return any(map(self._rules.applies_to, (*attempt.ahead, attempt.workload)))

    def _requests(self, attempt: Attempt, victims: Gone, *, chosen: bool) -> dict[WorkloadId, str]:
        """The requests of the work, of what is before it and of what is moved, as they are matched once the
        victims are gone.

        Where rules keep the work off all nodes now, it has no reservation, and others would take the nodes of
        victims that end one after the other. So it gets none.
        """
        works = (*attempt.ahead, attempt.workload, *victims.moved)
        if not self._request_of(attempt.workload):
            return {attempt.workload.id: ""}
        gone = victims.allocations if self._ruled(attempt) else ()
        with self._rules.without([each.workload for each in gone]):
            then = {each.id: self._request_of(each) for each in works}
        if then[attempt.workload.id] or chosen or len(gone) < 2:
            return then
        return {each.id: self._request_of(each) for each in works}  # a part of these victims may be enough

    def _request_of(self, workload: Workload) -> str:
        """The request as it would be matched now; empty if rules about other pods admit no node."""
        return self._rules.constrained(workload)[0] if self._rules.applies_to(workload) else workload.jobspec

    def _yields(self, workload_id: WorkloadId, workload: Workload) -> bool:
        """True if a reservation yields to a workload that is the first of its queue."""
        holder = self._ledger.get(workload_id)
        if holder is None:
            return False
        return holder.order_priority < workload.order_priority or (
            holder.queue == workload.queue and key_of(holder) > key_of(workload)
        )

    async def _probes_for(self, count: int) -> list[FluxionJobId]:
        """Job ids for trials, the same each time."""
        if (missing := count - len(self._probes)) > 0:
            self._probes += await self._ledger.next_jobids(missing)
        return self._probes[:count]


def _duration_s(workload: Workload, later_s: int) -> int:
    """Return for how long work that starts later has its nodes from now on; 0: without end."""
    return workload.duration_s + later_s if workload.duration_s else 0


def _within_limits(
    asked: Sequence[Workload],
    answers: Sequence[MatchResult],
    quotas: Quotas,
    moved: Sequence[tuple[Workload, MatchResult]],
) -> bool:
    """True if the last workload was granted and its nodes are within the limits,
    once those before it use theirs; and so is what is moved on its new nodes, for all of its duration again.
    """
    for workload, answer in zip(asked[:-1], answers, strict=False):
        if answer.verdict in (MatchVerdict.GRANTED, MatchVerdict.RESERVED):
            quotas.add_usage(workload, [share.node for share in answer.shares], answer.shares)
    last, answer = asked[-1], answers[-1]
    hosts = [share.node for share in answer.shares]
    if (
        answer.verdict is not MatchVerdict.GRANTED
        or quotas.refusal(last)
        or quotas.excess(last, hosts, answer.shares)
    ):
        return False
    quotas.add_usage(last, hosts, answer.shares)
    for workload, _ in moved:
        quotas.remove_usage(workload.id)
    for workload, restart in moved:
        hosts = [share.node for share in restart.shares]
        if restart.verdict is not MatchVerdict.GRANTED or quotas.excess(workload, hosts, restart.shares):
            return False
        quotas.add_usage(workload, hosts, restart.shares)
    return True
