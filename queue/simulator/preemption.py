"""Preemption in the simulation: the queue's own choice of victims, with the matcher of the simulation.

As in a cluster, the first that waits in order is tried without the victims and without the reservations that
yield to it, and less is lost with those that ran shorter. Elastic jobs give nodes back before any job is
evicted. A job that is evicted begins again, or goes on from its last checkpoint if it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from fluxqueue.api.fluxqueues import Preemption
from fluxqueue.fluxion.changes import CancelPart
from fluxqueue.fluxion.messages import CallContext, JobMatchRequest, MatchVerdict
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.guarantees import NO_GUARANTEES, Guarantees
from fluxqueue.queue.scheduling.policies.backlog import Backlog, key_of
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import HeldReservation
from fluxqueue.queue.scheduling.policies.victims import (
    PreemptionCandidate,
    Victims,
    VictimSearch,
    carry_out,
    choose_parts,
    choose_victims,
    is_below,
    preemption_order,
)
from fluxqueue.queue.simulator.simulated_growth import SimulatedGrowth
from fluxqueue.queue.simulator.simulated_work import Ran, node_name

__all__ = ["SimulatedPreemption", "WholeVictims"]

WholeVictims = Callable[[Sequence[PreemptionCandidate], int | None], VictimSearch]
"""Another search of victims, which all end as a whole, for work of a priority (None: of any)."""

_PROBE = FluxionJobId(1 << 40)
_SOON_S = 30


class SimulatedPreemption:
    """Chooses victims.

    Parameters
    ----------
    fluxion
        The matcher.
    disciplines
        By queue.
    epoch
        The beginning of the trace.
    growth
        What running jobs can spare and lose.
    wholes
        Another search, to compare with; None: the queue's own.

    Attributes
    ----------
    retry_s
        After a choice: the time at which more work has run long enough; None if none will.
    """

    def __init__(
        self,
        fluxion: LocalFluxion,
        disciplines: Mapping[str, Discipline],
        epoch: datetime,
        growth: SimulatedGrowth,
        wholes: WholeVictims | None = None,
    ) -> None:
        self.retry_s: int | None = None
        self._fluxion = fluxion
        self._disciplines = disciplines
        self._epoch = epoch
        self._growth = growth
        self._wholes = wholes
        self._queues = {
            name for name, each in disciplines.items() if each.preemption is Preemption.LOWER_PRIORITY
        }

    @property
    def any(self) -> bool:
        """True if any queue takes part."""
        return bool(self._queues)

    async def choose(
        self,
        backlogs: Mapping[str, Backlog],
        reservations: Mapping[WorkloadId, HeldReservation],
        running: Mapping[WorkloadId, tuple[Workload, Ran]],
        now_s: int,
        guarantees: Guarantees = NO_GUARANTEES,
    ) -> Victims:
        """Return the victims for the first workload that waits; none if nothing helps. Those that are ``of``
        a job are nodes that it gives back; their ``ranks`` are the numbers of the nodes.
        """
        self.retry_s = None
        heads = [next(iter(backlogs[name])) for name in self._queues if len(backlogs[name])]
        first = min(heads, key=key_of, default=None)
        now = int(self._epoch.timestamp()) + now_s
        if first is None or (first.id in reservations and reservations[first.id].start <= now + _SOON_S):
            return ()
        yielding = [held.jobid for held in reservations.values() if self._yields(held, backlogs, first)]
        for reclaim in (False, True) if first.comes_first else (False,):
            candidates = preemption_order(
                [
                    self._candidate(workload, ran, now_s)
                    for workload, ran in running.values()
                    if self._eligible(workload, ran, None if reclaim else first, now_s)
                ]
            )
            if guarantees.any:
                holdings = [
                    (workload, [node_name(host) for host in ran.hosts])
                    for workload, ran in (running[each.workload] for each in candidates)
                ]
                losing = set(guarantees.losing(first, holdings, reclaim=reclaim))
                candidates = [each for each in candidates if each.workload in losing]
            parts = self._parts(candidates, now_s) if self._wholes is None else ()
            if victims := await self._search(
                first, candidates, parts, yielding, now, guarantees if reclaim else None
            ):
                return victims
        return ()

    async def _search(
        self,
        first: Workload,
        candidates: Sequence[PreemptionCandidate],
        parts: Victims,
        yielding: Sequence[FluxionJobId],
        now: int,
        guarantees: Guarantees | None,
    ) -> Victims:
        request = JobMatchRequest(first.jobspec, _PROBE, reserve=False, duration_s=first.duration_s or 0)

        async def nodes_without(victims: Victims) -> list[str]:
            gone, given = self._gone(victims)
            answers = (
                await self._fluxion.trial(
                    [request], without=[*gone, *yielding], parts=given, call=CallContext(now=now)
                )
            ).results
            nodes = [share.node for share in answers[0].shares]
            covered = guarantees is None or guarantees.covers(first, nodes, ())
            return nodes if covered and answers[0].verdict is MatchVerdict.GRANTED else []

        priority = None if guarantees is not None else first.priority
        if self._wholes is not None:
            return await carry_out(self._wholes(candidates, priority), nodes_without)
        if parts and (victims := await carry_out(choose_parts([[(each,) for each in parts]]), nodes_without)):
            return victims
        return await carry_out(choose_victims(candidates, priority, parts=parts), nodes_without)

    def _gone(self, victims: Victims) -> tuple[list[int], list[CancelPart]]:
        """Return what of the matcher is free without victims: its jobs, and parts of others."""
        evicted = {each.workload for each in victims if each.of is None}
        gone = [each for number in evicted for each in (int(number), *self._growth.pieces_of(int(number)))]
        hosts: dict[int, list[int]] = {}
        for each in victims:
            if each.of is not None and each.of not in evicted:
                hosts.setdefault(int(each.of), []).extend(each.ranks)
        given: list[CancelPart] = []
        for number, its in hosts.items():
            pieces, parts = self._growth.held(number, its)
            gone += pieces
            given += parts
        return gone, given

    def _parts(self, candidates: Sequence[PreemptionCandidate], now_s: int) -> Victims:
        """Return the nodes that candidates can give back, those first that lose least."""
        return tuple(
            preemption_order(
                replace(
                    each,
                    of=each.workload,
                    ranks=(host,),
                    nodes=frozenset((node_name(host),)),
                    lost_node_s=float(lost_s),
                )
                for each in candidates
                for host, lost_s in self._growth.spared(int(each.workload), now_s).items()
            )
        )

    def _eligible(self, workload: Workload, ran: Ran, first: Workload | None, now_s: int) -> bool:
        if workload.queue not in self._queues or (first is not None and not is_below(workload, first)):
            return False
        ready_s = ran.start_s + self._disciplines[workload.queue].preemption_rules.min_run_seconds
        if ready_s > now_s:
            self.retry_s = ready_s if self.retry_s is None else min(self.retry_s, ready_s)
        return ready_s <= now_s

    def _candidate(self, workload: Workload, ran: Ran, now_s: int) -> PreemptionCandidate:
        start = self._epoch + timedelta(seconds=ran.start_s)
        lost = self._growth.lost(int(workload.id), now_s)
        lost_node_s = float(sum(lost.values()) if lost else len(ran.hosts) * (now_s - ran.start_s))
        nodes = frozenset(node_name(host) for host in ran.hosts)
        return PreemptionCandidate(workload.id, workload.priority, start, lost_node_s, nodes=nodes)

    def _yields(self, held: HeldReservation, backlogs: Mapping[str, Backlog], first: Workload) -> bool:
        if held.workload == first.id or held.workload in backlogs[first.queue]:
            return True
        return any(
            held.workload in backlog and held.priority < first.order_priority for backlog in backlogs.values()
        )
