"""Consolidation in the simulation: the queue's own search of what is moved, with the matcher of the
simulation.

As in a cluster, the first that waits in order is tried, then all that is moved for it, in order. Moved jobs
go on from their last checkpoint, if jobs of the trace save at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fluxqueue.fluxion.messages import CallContext, JobMatchRequest, MatchVerdict
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.graph.graph_jobs import DRAIN_S
from fluxqueue.queue.scheduling.policies.backlog import Backlog, key_of
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import HeldReservation
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, Victims, carry_out, choose_moves
from fluxqueue.queue.scheduling.preemption.consolidation import (
    MOST_MOVED,
    MOST_REMOVALS,
    consolidating,
    units_by_node,
)
from fluxqueue.queue.simulator.simulated_work import Ran, node_name

__all__ = ["Moves", "SimulatedConsolidation"]

_PROBE = 1 << 41


@dataclass(frozen=True, slots=True)
class Moves:
    """What is moved, and for which job."""

    first: WorkloadId
    moved: tuple[WorkloadId, ...]


class SimulatedConsolidation:
    """Chooses what is moved.

    Parameters
    ----------
    fluxion
        The matcher.
    disciplines
        By queue.
    epoch
        The beginning of the trace.
    checkpoint_s
        How often each job saves what it has; 0: never.
    """

    def __init__(
        self,
        fluxion: LocalFluxion,
        disciplines: Mapping[str, Discipline],
        epoch: datetime,
        checkpoint_s: int,
    ) -> None:
        self._fluxion = fluxion
        self._rules = consolidating(disciplines)
        self._epoch = epoch
        self._checkpoint_s = checkpoint_s
        self._again: dict[WorkloadId, int] = {}
        self._failed: tuple[object, ...] = ()

    @property
    def any(self) -> bool:
        """True if any queue consolidates."""
        return bool(self._rules)

    def saved_s(self, ran_s: int) -> int:
        """Return how much a job has saved that ran so long."""
        return ran_s // self._checkpoint_s * self._checkpoint_s if self._checkpoint_s else 0

    async def choose(
        self,
        backlogs: Mapping[str, Backlog],
        reservations: Mapping[WorkloadId, HeldReservation],
        running: Mapping[WorkloadId, tuple[Workload, Ran]],
        now_s: int,
    ) -> Moves | None:
        """Return what is moved for the first that waits; None if nothing helps or pays."""
        heads = (next(iter(backlog)) for backlog in backlogs.values() if len(backlog)) if self._rules else ()
        first = min(heads, key=key_of, default=None)
        if first is None or first.queue not in self._rules or first.id not in reservations:
            return None
        now, held = int(self._epoch.timestamp()) + now_s, reservations[first.id]
        won_node_s = (held.start - now - DRAIN_S) * len(set(held.nodes))
        if self._again.get(first.id, 0) > now_s or won_node_s <= 0:
            return None
        immobile, candidates = set[str](), list[PreemptionCandidate]()
        for workload, ran in running.values():
            found = self._candidate(workload, ran, now_s)
            if found is not None and found.lost_node_s < won_node_s:
                candidates.append(found)
            else:
                immobile |= {node_name(host) for host in ran.hosts}
        candidates.sort(key=lambda each: (each.lost_node_s, each.workload))
        units = units_by_node(candidates[:MOST_MOVED], frozenset(immobile))
        key = first.id, frozenset(each.workload for each in candidates), frozenset(running)
        if not units or key == self._failed:
            return None
        self._failed = key
        yielding = [held.jobid for held in reservations.values() if held.workload in backlogs[first.queue]]
        victims = await self._search(first, units, running, yielding, now)
        if not victims or sum(each.lost_node_s for each in victims) >= won_node_s:
            return None
        moves = Moves(first.id, tuple(each.workload for each in victims))
        for each in (first, *(running[number][0] for number in moves.moved)):
            self._again[each.id] = now_s + self._rules[each.queue].again_after_seconds
        return moves

    async def _search(
        self,
        first: Workload,
        units: Sequence[tuple[PreemptionCandidate, ...]],
        running: Mapping[WorkloadId, tuple[Workload, Ran]],
        yielding: Sequence[FluxionJobId],
        now: int,
    ) -> Victims:
        async def nodes_without(victims: Victims) -> list[str]:
            moved = sorted((running[each.workload][0] for each in victims), key=key_of)
            requests = [
                JobMatchRequest(
                    each.jobspec,
                    FluxionJobId(_PROBE + number),
                    reserve=False,
                    duration_s=each.duration_s or 0,
                )
                for number, each in enumerate((first, *moved))
            ]
            gone = [*(FluxionJobId(int(each.id)) for each in moved), *yielding]
            answers = (await self._fluxion.trial(requests, without=gone, call=CallContext(now=now))).results
            fits = all(each.verdict is MatchVerdict.GRANTED for each in answers)
            return [share.node for share in answers[0].shares] if fits else []

        return await carry_out(choose_moves(units, most_removals=MOST_REMOVALS), nodes_without)

    def _candidate(self, workload: Workload, ran: Ran, now_s: int) -> PreemptionCandidate | None:
        if workload.queue not in self._rules or self._again.get(workload.id, 0) > now_s:
            return None
        ran_s = now_s - ran.start_s
        lost_s = ran_s - self.saved_s(ran_s)
        if lost_s > self._rules[workload.queue].max_lost_seconds:
            return None
        nodes = frozenset(node_name(host) for host in ran.hosts)
        start = self._epoch + timedelta(seconds=ran.start_s)
        return PreemptionCandidate(workload.id, 0, start, (lost_s + DRAIN_S) * len(nodes), nodes=nodes)
