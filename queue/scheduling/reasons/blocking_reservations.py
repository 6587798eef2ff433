"""Tells work that waits for a reservation from work that waits for nodes.

Work that would fit for one second is kept out only by the reservations on those nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import JobMatchRequest, MatchVerdict
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.flavors import waits_since_s
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.noderules.jobspec_rules import rules_in
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.policies.passes import HeldReservation
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["BlockingReservations"]

_MOST_PROBES = 8
"""Workloads of one cycle that are tried for a second."""


@dataclass(frozen=True, slots=True)
class _Named:
    """What a reason says: whose reservation, in words and by its id, when that starts,
    and whose others it counts.
    """

    words: str
    first: WorkloadId
    start: int
    others: frozenset[WorkloadId]

    def holds(self, held: Mapping[WorkloadId, HeldReservation]) -> bool:
        """True if these reservations are still there."""
        first = held.get(self.first)
        return first is not None and first.start == self.start and self.others <= held.keys()


class BlockingReservations:
    """Finds the reservations that keep work from starting. The caller holds the lock of the graph."""

    def __init__(self, ledger: Ledger, graph: GraphKeeper) -> None:
        self._ledger = ledger
        self._graph = graph
        self._probe: FluxionJobId | None = None
        self._told: dict[WorkloadId, _Named | None] = {}
        """What the reasons of workloads name; None: not known, since a former leader wrote it."""

    def note_told(self, workload: Workload) -> None:
        """Note a workload whose reason names a reservation."""
        if workload.reason is Reason.BLOCKED_BY_RESERVATION:
            self._told.setdefault(workload.id, None)

    def outdated(self, held: Mapping[WorkloadId, HeldReservation]) -> Collection[WorkloadId]:
        """Return the workloads whose reason names a reservation that is not there, or starts at another time,
        and forget them.
        """
        gone = []
        for workload_id, named in list(self._told.items()):
            workload = self._ledger.get(workload_id)
            if workload is None or workload.reason is not Reason.BLOCKED_BY_RESERVATION:
                del self._told[workload_id]
            elif named is None or named.words not in workload.message or not named.holds(held):
                del self._told[workload_id]
                gone.append(workload_id)
        return gone

    async def refine(
        self, changes: Sequence[ReasonChange], held: Mapping[WorkloadId, HeldReservation]
    ) -> list[ReasonChange]:
        """Give the reason ``BlockedByReservation`` to those of the first few refused workloads that a
        reservation keeps out.

        Work with rules about other pods is left out: these rules may be what keeps it from starting.
        """
        refined: list[ReasonChange] = []
        probes = _MOST_PROBES if held else 0
        for change in changes:
            workload = self._ledger.get(change.workload)
            waits = (
                workload is not None and change.reason is Reason.WAITING_FOR_NODES and workload.id not in held
            )
            if probes and workload is not None and waits and rules_in(workload.jobspec) is None:
                probes -= 1
                if (named := await self._blocking(workload, held)) is not None:
                    self._told[workload.id] = named
                    text = (
                        "would start now, but not end before nodes are needed that are reserved for "
                        f"{named.words}"
                    )
                    change = replace(change, reason=Reason.BLOCKED_BY_RESERVATION, message=text)
            refined.append(change)
        return refined

    async def _blocking(
        self, workload: Workload, held: Mapping[WorkloadId, HeldReservation]
    ) -> _Named | None:
        """Whose reservations, and from when on, are on the nodes where the workload would fit for a second;
        None if it would not fit.
        """
        if self._probe is None:
            (self._probe,) = await self._ledger.next_jobids(1)
        yielding = {
            workload_id
            for workload_id in held
            if (holder := self._ledger.get(workload_id)) is None
            or (holder.queue != workload.queue and holder.order_priority < workload.order_priority)
        }
        request = JobMatchRequest(
            workload.jobspec, self._probe, duration_s=1, waits_since=waits_since_s(workload)
        )
        without = [held[workload_id].jobid for workload_id in yielding]
        (answer,) = (
            await self._graph.fluxion.trial([request], without=without, call=self._graph.call())
        ).results
        if answer.verdict is not MatchVerdict.GRANTED:
            return None
        nodes = {share.node for share in answer.shares}
        blocking = [
            each
            for workload_id, each in held.items()
            if workload_id not in yielding and not nodes.isdisjoint(each.nodes)
        ]
        first = min(blocking, key=lambda each: each.start, default=None)
        holder = self._ledger.get(first.workload) if first is not None else None
        if first is None or holder is None:
            return None
        others = f" and {len(blocking) - 1} more" if len(blocking) > 1 else ""
        start = datetime.fromtimestamp(first.start, UTC)
        words = f"{holder.ref_within(workload.namespace)}{others} from {start:%Y-%m-%dT%H:%M:%SZ} on"
        return _Named(
            words,
            first.workload,
            first.start,
            frozenset(each.workload for each in blocking) - {first.workload},
        )
