"""Runs scheduling cycles: one at a time, when something changed, and again when Fluxion failed.

Events request cycles and many requests become one, so a burst of a thousand arrivals costs a few cycles. When
Fluxion is away or lost the graph, nothing is lost: the cycle reports it, the graph is filled again, and the
cycle is tried again. A reservation that begins, and an allocation that should have ended, request the next
cycle by themselves. `fluxqueue.queue.scheduling.phases` is the cycle itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta

import structlog

from fluxqueue.api.fluxaccounts import BudgetStatus, FluxAccount
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.nodes import Node
from fluxqueue.api.storage import CSINode
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.metrics import CYCLE_SECONDS, CYCLES, FLUXION_UP
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper, GraphLost
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShapes
from fluxqueue.queue.scheduling.phases import CyclePhases
from fluxqueue.queue.scheduling.policies.disciplines import Discipline, disciplines_of
from fluxqueue.queue.scheduling.preemption.preemptor import Evict
from fluxqueue.queue.scheduling.surroundings import Surroundings
from fluxqueue.queue.scheduling.wakeups import SOON_S, Wakeup
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["Scheduler"]

log = structlog.get_logger()

_RETRY_S = 1.0
_SHOWN_S = 1.0
_FURTHEST_S = 86_400.0
"""A time of a reservation that is further away is looked at again by then."""
_WATCH_S = 30.0
"""Between two questions to a matcher whose connection stays."""

Disciplines = Callable[[], Mapping[str, Discipline]]


def _default_disciplines() -> Mapping[str, Discipline]:
    return disciplines_of(())


class Scheduler:
    """Runs scheduling cycles.

    Parameters
    ----------
    ledger
        Pending workloads, and where grants and reservations are stored.
    graph
        The matcher's graph.
    trigger
        How releases and further cycles are requested.
    disciplines
        Returns the discipline of each queue; called in every cycle.
    evict
        Evicts workloads for preemption; None: the ledger's own, which only records that they are to stop.
    node_shapes
        Nodes by which the cluster may grow; None: it does not grow.
    around
        What the cycles ask about everything else; None: there is nothing else.

    Attributes
    ----------
    last_error
        Why Fluxion is away; empty while it answers.
    estimates
        When pending workloads are expected to start.
    """

    def __init__(
        self,
        ledger: Ledger,
        graph: GraphKeeper,
        trigger: Trigger,
        disciplines: Disciplines = _default_disciplines,
        evict: Evict | None = None,
        node_shapes: NodeShapes | None = None,
        around: Surroundings | None = None,
    ) -> None:
        self.last_error = ""
        self._ledger = ledger
        self._graph = graph
        self._disciplines = disciplines
        self._wakeup = Wakeup(trigger)
        self._phases = CyclePhases(
            ledger,
            graph,
            trigger,
            self._wakeup,
            evict or ledger.evict,
            node_shapes or NodeShapes({}),
            around or Surroundings(),
        )
        self.estimates = self._phases.estimates
        self.parts = self._phases.parts

    def budgets(self) -> dict[str, BudgetStatus]:
        """Return what is left of the budget of each account, as of the last cycle."""
        return {name: line.status() for name, line in self._phases.budgets.lines.items()}

    async def watch_matcher(self) -> None:
        """Detect that the matcher lost the graph, also when no cycle has anything to ask it. Runs until
        cancelled.

        A matcher that ends takes its connection with it, which is noticed at once. So it is asked rarely:
        each call wakes a dozen threads of gRPC, which then look for more work for seconds.
        """
        while True:
            await self._graph.fluxion.wait_for_loss(_WATCH_S)
            if not await self._graph.alive():
                self.soon()

    async def cycle(self) -> None:
        """Run one cycle. Failures of Fluxion are reported and the cycle is tried again;
        other errors are raised.
        """
        began = time.perf_counter()
        try:
            async with self._graph.exclusive:
                granted = await self._phases.run(self._disciplines)
        except (FluxionError, GraphLost) as error:
            self._graph.invalidate()
            await self._matcher_away(str(error))
            return
        if self.last_error:
            log.info("fluxion.back")
        self.last_error = ""
        FLUXION_UP.set(1)
        CYCLES.labels("granted" if granted else "idle").inc()
        CYCLE_SECONDS.observe(time.perf_counter() - began)
        self._wake_when_planned()

    async def _matcher_away(self, message: str) -> None:
        FLUXION_UP.set(0)
        if message != self.last_error:
            log.warning("fluxion.away", error=message, retry_s=_RETRY_S)
        self.last_error = message
        self.soon(_RETRY_S)
        await self._phases.report_matcher_away(message)
        CYCLES.labels("fluxion-away").inc()

    def _wake_when_planned(self) -> None:
        """Request a cycle for the next planned event: a reservation begins,
        or an allocation should have ended.
        """
        starts, change = self._phases.reserved_starts(), self._phases.next_change()
        now = self._ledger.wall()
        if change < float("inf"):
            self.soon(min(max(change - now.timestamp(), 0), _FURTHEST_S) + SOON_S)
        if not starts:
            return
        recent = now - timedelta(seconds=1)
        coming: list[float] = [start for start in starts if start > recent.timestamp()]
        if (end := self._ledger.next_planned_end(recent)) is not None:
            coming.append(end.timestamp())
        if coming:
            self.soon(max(min(coming) - now.timestamp(), 0) + SOON_S)

    def queue_changed(
        self, change: Change[FluxQueue] | Change[FluxAccount] | Change[FluxReservation]
    ) -> None:
        """Request a cycle after an edit of a queue's rules, of an account, or of a reservation."""
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self.soon()

    def node_changed(self, _change: Change[Node] | Change[CSINode]) -> None:
        """Request a cycle: work may fit now."""
        self.soon()

    def idle_changed(self, _workload_id: WorkloadId) -> None:
        """Request a cycle: idle work may be preempted now."""
        self.soon()

    def size_missed(self) -> None:
        """Request a cycle for when the watch has shown what changed of a Job before its patch."""
        self.soon(_SHOWN_S)

    def soon(self, delay_s: float = SOON_S) -> None:
        """Request a cycle after a delay. Of several requests the earliest counts."""
        self._wakeup.soon(delay_s)
