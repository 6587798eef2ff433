"""Tells work that waits for a reservation from work that waits for nodes.

Work that would fit for one second is kept out only by the reservations on those nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import JobMatchRequest, MatchVerdict
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.noderules.jobspec_rules import rules_in
from fluxqueue.queue.scheduling.graph import GraphKeeper
from fluxqueue.queue.scheduling.policies.passes import HeldReservation
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["BlockingReservations"]

_MOST_PROBES = 8
"""Workloads of one cycle that are tried for a second."""


class BlockingReservations:
    """Finds the reservations that keep work from starting. The caller holds the lock of the graph."""

    def __init__(self, ledger: Ledger, graph: GraphKeeper) -> None:
        self._ledger = ledger
        self._graph = graph
        self._probe: FluxionJobId | None = None

    async def refine(self, changes: Sequence[ReasonChange], held: Mapping[WorkloadId, HeldReservation]) -> list[ReasonChange]:
        """Give the reason ``BlockedByReservation`` to those of the first few refused workloads that a reservation keeps out.

        Work with rules about other pods is left out: these rules may be what keeps it from starting.

        Parameters
        ----------
        changes
            Reasons of the cycle so far.
        held
            Reservations in the graph.
        """
        refined: list[ReasonChange] = []
        probes = _MOST_PROBES if held else 0
        for change in changes:
            workload = self._ledger.get(change.workload)
            waits = workload is not None and change.reason is Reason.WAITING_FOR_NODES and workload.id not in held
            if probes and workload is not None and waits and rules_in(workload.jobspec) is None:
                probes -= 1
                if holders := await self._holders(workload, held):
                    text = f"would start now, but not end before nodes are needed that are reserved for {holders}"
                    change = replace(change, reason=Reason.BLOCKED_BY_RESERVATION, message=text)
            refined.append(change)
        return refined

    async def _holders(self, workload: Workload, held: Mapping[WorkloadId, HeldReservation]) -> str:
        """Whose reservations, and from when on, are on the nodes where the workload would fit for a second; empty if it would not fit."""
        if self._probe is None:
            (self._probe,) = await self._ledger.next_jobids(1)
        yielding = {
            workload_id
            for workload_id in held
            if (holder := self._ledger.get(workload_id)) is None
            or (holder.queue != workload.queue and holder.order_priority < workload.order_priority)
        }
        request = JobMatchRequest(workload.jobspec, self._probe, duration_s=1)
        without = [held[workload_id].jobid for workload_id in yielding]
        (answer,) = (await self._graph.fluxion.trial([request], without=without, call=self._graph.call())).results
        if answer.verdict is not MatchVerdict.GRANTED:
            return ""
        nodes = {share.node for share in answer.shares}
        blocking = [each for workload_id, each in held.items() if workload_id not in yielding and not nodes.isdisjoint(each.nodes)]
        first = min(blocking, key=lambda each: each.start, default=None)
        holder = self._ledger.get(first.workload) if first is not None else None
        if first is None or holder is None:
            return ""
        others = f" and {len(blocking) - 1} more" if len(blocking) > 1 else ""
        start = datetime.fromtimestamp(first.start, UTC)
        return f"{holder.ref_within(workload.namespace)}{others} from {start:%Y-%m-%dT%H:%M:%SZ} on"
