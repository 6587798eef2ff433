"""Once a minute everything is compared with everything, and what differs is mended and counted.

Events may be lost, processes die between two effects, people delete things by hand. No controller relies on having seen an event: the
sweep makes each of them look at all objects and rows again, and compares what Fluxion holds with the allocations that are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import structlog

from fluxqueue.api.fluxjobs import State
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import Mode
from fluxqueue.queue.controllers.graph import GraphKeeper, GraphLost
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.metrics import REPAIRS, WORKLOADS
from fluxqueue.queue.tasks import Trigger

__all__ = ["Sweeper"]

log = structlog.get_logger()

_FORGET = 10_000


class Looker(Protocol):
    """A controller that can be told to trust no event it has seen."""

    def look_at_everything(self) -> None:
        """Compare everything it is responsible for."""


class Sweeper:
    """Compares and mends.

    Parameters
    ----------
    ledger, graph, trigger
        The queue, the matcher's graph, and how cycles are asked for.
    controllers
        Told to look at everything.
    retention_s
        How long ended workloads stay in the table; their history stays for good.
    """

    def __init__(
        self,
        ledger: Ledger,
        graph: GraphKeeper,
        trigger: Trigger,
        controllers: Sequence[Looker],
        *,
        retention_s: float,
    ) -> None:
        self._ledger = ledger
        self._graph = graph
        self._trigger = trigger
        self._controllers = controllers
        self._retention = timedelta(seconds=retention_s)

    async def sweep(self) -> None:
        """Compare everything once."""
        for controller in self._controllers:
            controller.look_at_everything()
        async with self._graph.exclusive:
            await self._compare_graph()
        reach(Point.SWEPT)
        totals = dict.fromkeys(State, 0)
        for row in await self._ledger.store.counts():
            totals[row.state] += row.workloads
        for state, workloads in totals.items():
            WORKLOADS.labels(str(state)).set(workloads)
        while await self._ledger.store.forget(self._ledger.epoch, self._ledger.clock() - self._retention, _FORGET) == _FORGET:
            log.info("ended workloads left the table", workloads=_FORGET)
        await self._trigger.release()
        await self._trigger.schedule()

    async def _compare_graph(self) -> None:
        try:
            await self._graph.ensure()
            held = {job.jobid for job in await self._graph.fluxion.list_jobs(call=self._graph.call()) if job.mode is Mode.ALLOCATED}
        except (FluxionError, GraphLost) as error:
            log.info("the graph could not be compared", error=str(error))
            self._graph.lose()
            return
        stored = {int(allocation.jobid) for _, allocation in self._ledger.live()}
        if stray := held - stored:
            REPAIRS.labels("stray-in-graph").inc(len(stray))
            log.warning("fluxion held jobs the queue does not know: filled anew", jobids=sorted(stray)[:20])
        if missing := stored - held:
            REPAIRS.labels("missing-in-graph").inc(len(missing))
            log.warning("fluxion did not hold allocations the queue has: filled anew", jobids=sorted(missing)[:20])
        if held != stored:
            self._graph.lose()
