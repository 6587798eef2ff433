"""What is known about requests beyond one cycle: which could never start, and whose reservation is in the way.

Whether a request would fit the emptied cluster depends on its family and its count alone, and is monotone in the count: a few questions
answer for all shapes. They are asked a few at a time, so that a queue of many shapes does not hold up a cycle.

What fits no cluster as it is may fit one that has grown (`fluxqueue.queue.provisioning`): that is no *never* but a wait, for nodes that
somebody adds or that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Provision
from fluxqueue.fluxion.messages import JobRequest, MatchResult, Verdict
from fluxqueue.queue.controllers.graph import GraphKeeper
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.policies.demands import Demand, demand_of
from fluxqueue.queue.policies.passes import Promise
from fluxqueue.queue.provisioning import Prospects
from fluxqueue.queue.records import FluxionJobId, ReasonChange, WorkloadId

__all__ = ["Verdicts"]

_HOPEFUL = frozenset({Reason.WAITING_FOR_NODES, Reason.BLOCKED_BY_RESERVATION, Reason.QUEUE_LIMIT})
_QUESTIONS = 200
_NAMED = 8
_MOST_SHAPES = 100_000


class Verdicts:
    """Remembers what never fits, for as long as the graph is the same.

    Parameters
    ----------
    graph
        Whose ``version`` says how long.
    prospects
        What would fit if the cluster grew.
    """

    def __init__(self, graph: GraphKeeper, prospects: Prospects) -> None:
        self._graph = graph
        self._prospects = prospects
        self._version = -1
        self._impossible: dict[str, MatchResult] = {}
        self._judged: set[str] = set()
        self._hopes: dict[str, tuple[str, ...]] = {}
        self._demands: dict[str, Demand] = {}
        self._fits: dict[str, int] = {}
        self._fails: dict[str, tuple[int, MatchResult]] = {}
        self._probe: FluxionJobId | None = None

    @property
    def impossible(self) -> Mapping[str, MatchResult]:
        """Verdicts for shapes that fit no emptied graph."""
        if self._version != self._graph.version:
            self._version = self._graph.version
            self._impossible, self._judged, self._hopes = {}, set(), {}
            self._fits.clear()
            self._fails.clear()
        return self._impossible

    def learn(self, changes: Sequence[ReasonChange], ledger: Ledger, match_policies: Mapping[str, str]) -> None:
        """Take over what a pass was told, by the graph's own match policy: what never fits by that of a queue may fit in another."""
        for change in changes:
            workload = ledger.get(change.workload) if change.reason is Reason.UNSATISFIABLE else None
            if workload is not None and workload.queue not in match_policies:
                self._impossible[workload.shape] = MatchResult(Verdict.UNSATISFIABLE, reason=change.message)

    async def judge(self, workloads: Sequence[WorkloadId], ledger: Ledger) -> bool:
        """Find out which of those that wait could never start; returns whether some are left for later."""
        asked = 0
        for found in workloads:
            workload = ledger.get(found)
            if workload is None or workload.shape in self._judged or workload.shape in self.impossible:
                continue
            if asked >= _QUESTIONS:
                return True
            demand = self._demand(workload.shape, workload.jobspec)
            failed = self._fails.get(demand.family)
            if failed is not None and demand.count == failed[0]:
                self._impossible[workload.shape] = failed[1]
            elif demand.count > self._fits.get(demand.family, 0):
                asked += 1
                answer = await self._graph.fluxion.satisfy(workload.jobspec, call=self._graph.call())
                if answer.verdict is Verdict.UNSATISFIABLE:
                    self._impossible[workload.shape] = answer
                    self._fails[demand.family] = demand.count, answer
                else:
                    self._fits[demand.family] = demand.count
            self._judged.add(workload.shape)
        return False

    def _demand(self, shape: str, jobspec: str) -> Demand:
        if len(self._demands) > _MOST_SHAPES:
            self._demands.clear()
        demand = self._demands.get(shape)
        if demand is None:
            demand = self._demands[shape] = demand_of(jobspec)
        return demand

    async def name_reservations(
        self, reasons: Sequence[ReasonChange], ledger: Ledger, promises: Mapping[WorkloadId, Promise]
    ) -> list[ReasonChange]:
        """Tell those who wait for a reservation from those who wait for nodes.

        Whoever would fit for a second is kept out by what is promised on these nodes, and by nothing else. The first few that were
        refused are looked at that closely.
        """
        named: list[ReasonChange] = []
        looks = _NAMED if promises else 0
        for change in reasons:
            workload = ledger.get(change.workload)
            if looks and workload is not None and change.reason is Reason.WAITING_FOR_NODES and workload.id not in promises:
                looks -= 1
                if holders := await self._in_the_way(workload.jobspec, ledger, promises):
                    text = f"would start now, but not end before nodes are needed that are reserved for {holders}"
                    change = replace(change, reason=Reason.BLOCKED_BY_RESERVATION, message=text)
            named.append(change)
        return named

    async def _in_the_way(self, jobspec: str, ledger: Ledger, promises: Mapping[WorkloadId, Promise]) -> str:
        if self._probe is None:
            (self._probe,) = await ledger.store.next_jobids(1)
        request = JobRequest(jobspec, self._probe, duration_s=1)
        (answer,) = (await self._graph.fluxion.match_batch([request], call=self._graph.call())).results
        if answer.verdict is not Verdict.GRANTED:
            return ""
        await self._graph.fluxion.cancel_many([self._probe], call=self._graph.call())
        nodes = {share.node for share in answer.shares}
        holders = [promise for promise in promises.values() if any(share.node in nodes for share in promise.shares)]
        first = min(holders, key=lambda promise: promise.start, default=None)
        holder = ledger.get(first.workload) if first is not None else None
        if holder is None:
            return ""
        others = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
        return f"{holder.kind} {holder.namespace}/{holder.name}{others}"

    async def look_ahead(self, workloads: Iterable[WorkloadId], ledger: Ledger) -> set[WorkloadId]:
        """Find out which of those that could never start could if the cluster grew; returns those that are left for later."""
        if not self._prospects.any:
            return set()
        if not self.impossible:
            self._prospects.forget()
        asked: dict[str, str] = {}
        later: set[WorkloadId] = set()
        for found in workloads:
            workload = ledger.get(found)
            if workload is None or workload.shape not in self.impossible or workload.shape in self._hopes or workload.shape in asked:
                continue
            if len(asked) >= _QUESTIONS:
                later.add(found)
            else:
                asked[workload.shape] = workload.jobspec
        if asked:
            hopes = await self._prospects.look([*asked.values()], self._graph.present)
            self._hopes.update(zip(asked, hopes, strict=True))
        return later

    def may_fit(self, shape: str) -> bool:
        """Whether a request waits for nodes that are still to be added."""
        return shape in self.impossible and bool(self._hopes.get(shape))

    def final(self, reasons: Sequence[ReasonChange], ledger: Ledger, provisions: Mapping[str, Provision]) -> list[ReasonChange]:
        """Say *never* where *not now* would raise false hopes, and *not yet* where the cluster may grow.

        Parameters
        ----------
        reasons
            As found.
        ledger
            Of whom.
        provisions
            What each queue does for work that waits for nodes to be added.
        """
        final = []
        for change in reasons:
            workload = ledger.get(change.workload)
            never = self.impossible.get(workload.shape) if workload is not None else None
            if workload is None or never is None or (change.reason not in _HOPEFUL and change.reason is not Reason.UNSATISFIABLE):
                final.append(change)
            elif hopes := self._hopes.get(workload.shape, ()):
                # Who may not use more than he has is not to have nodes added.
                asked = provisions.get(workload.queue) is Provision.GATE
                final.append(change if change.reason is Reason.QUEUE_LIMIT else _grown(change, hopes, asked=asked))
            elif change.reason in _HOPEFUL:
                final.append(replace(change, reason=Reason.UNSATISFIABLE, message=never.reason))
            else:
                final.append(change)
        return final


def _grown(change: ReasonChange, hopes: tuple[str, ...], *, asked: bool) -> ReasonChange:
    """The reason of what fits no node there is, but nodes of these shapes."""
    fits = f"no nodes there are could hold it; with more nodes of shape {' and '.join(hopes)} it would fit"
    if asked:
        return replace(change, reason=Reason.PROVISIONING, message=f"{fits}: they are asked of the autoscaler")
    text = f"{fits}: it starts when they are added (the queue asks for none: spec.provision of its FluxQueue)"
    return replace(change, reason=Reason.WAITING_FOR_NODES, message=text)
