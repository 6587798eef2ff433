"""Looks whether cluster, tables, memory and graph tell one story, and mends what does not.

`fluxqueue.queue.doctor` compares; here the four are read. The sweep looks at what this process has in its caches, which costs no call to
the API server; a person's `kubectl fluxqueue doctor` reads everything anew, so that a cache that went wrong is found as well. Tables and
memory are read under the lock of their changes, so what differs there differs. What is believed is what two looks saw.

Mending is bringing the leader to where every start begins: tables read anew, graph filled anew, every object and row looked at again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fluxqueue.api.objects import Node
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import JobInfo, NodeUse
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import FLUXJOBS, JOBS, NODES, PODS
from fluxqueue.kube.transport import Api
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.controllers.foreign import ForeignPods
from fluxqueue.queue.controllers.graph import GraphKeeper, GraphLost
from fluxqueue.queue.doctor import Difference, Finding, Snapshot, differences, lasting
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.metrics import REPAIRS
from fluxqueue.queue.store import DatabaseUnavailable

__all__ = ["Doctor", "routes"]

log = structlog.get_logger()

_BETWEEN_S = 1.0
_SETTLES_S = 5.0
_IN_GRAPH = (Difference.GRAPH_JOBS, Difference.GRAPH_NODES, Difference.GRAPH_FOREIGN)


class Doctor:
    """Examines and mends.

    Parameters
    ----------
    api, caches, ledger, graph, foreign
        The cluster as it is and as this process saw it, the queue, and the matcher's graph.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, graph: GraphKeeper, foreign: ForeignPods) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._graph = graph
        self._foreign = foreign

    async def examine(self, *, looks: int = 2, anew: bool = True, thorough: bool = True, pending: bool = True) -> list[Finding]:
        """What differs.

        Parameters
        ----------
        looks
            With two, only what both saw: a single look sees things that are on their way.
        anew
            Read the API server, instead of what this process has of it.
        thorough
            Read the tables, and ask Fluxion what its jobs hold where, and for its nodes, which takes seconds in a large cluster.
        pending
            Read from the tables also what waits.
        """
        found = await self._look(anew=anew, thorough=thorough, pending=pending)
        for _ in range(1, looks):
            if not found:
                break
            await asyncio.sleep(_BETWEEN_S)
            found = lasting(found, await self._look(anew=anew, thorough=thorough, pending=pending))
        return found

    async def mend(self, findings: Sequence[Finding]) -> None:
        """Mend what can be mended, and count it; objects and rows are looked at again by whoever called."""
        for what in Difference:
            some = [finding for finding in findings if finding.what is what]
            if some:
                REPAIRS.labels(str(what)).inc(len(some))
                log.warning("a difference is mended", what=str(what), count=len(some), first=some[0].sentence)
        if any(finding.what is Difference.MEMORY for finding in findings):
            await self.reread()
        elif any(finding.what in _IN_GRAPH for finding in findings):
            self._graph.lose()

    async def reread(self) -> None:
        """Read the tables anew, and have the graph filled from them."""
        async with self._graph.exclusive:
            await self._ledger.load()
            self._graph.lose()

    async def _look(self, *, anew: bool, thorough: bool, pending: bool) -> list[Finding]:
        api, caches, ledger = self._api, self._caches, self._ledger
        specs = self._graph.specs_of
        if anew:
            pods, nodes = await api.list(PODS), await api.list(NODES)
            jobs, fluxjobs = await api.list(JOBS), await api.list(FLUXJOBS)
        else:
            pods, nodes, jobs, fluxjobs = caches.pods.list(), caches.nodes.list(), caches.jobs.list(), caches.fluxjobs.list()
        failed: list[Finding] = []
        filled = self._graph.rebuilds
        graph_jobs: tuple[JobInfo, ...] = ()
        graph_nodes: tuple[NodeUse, ...] = ()
        async with self._graph.exclusive:
            try:
                await self._graph.ensure()
                graph_jobs = await self._graph.fluxion.list_jobs(call=self._graph.call(), with_shares=thorough)
                if thorough:
                    graph_nodes = (await self._graph.fluxion.stat(call=self._graph.call(), per_node=True)).node_use
            except (FluxionError, GraphLost) as error:
                self._graph.lose()
                failed.append(Finding(Difference.GRAPH_JOBS, "fluxion", f"Fluxion does not answer as it should: {error}"))
            stored, remembered = await ledger.compared(pending=pending) if thorough else (ledger.told(), ledger.told())
        usable: list[Node] = [node for node in nodes if not node.metadata.deletion_timestamp]
        seen = Snapshot(
            pods=pods,
            nodes=usable,
            jobs=jobs,
            fluxjobs=fluxjobs,
            workloads=stored.workloads,
            allocations=stored.allocations,
            reservations=stored.reservations,
            remembered=remembered.workloads,
            held=remembered.allocations,
            graph_jobs=graph_jobs,
            graph_nodes=graph_nodes,
            specs=specs(usable),
            foreign={share.node: share.amounts for share in self._foreign.shares(use.node for use in graph_nodes)},
            now=ledger.clock(),
            thorough=thorough,
        )
        found = await asyncio.to_thread(differences, seen)
        if failed or self._graph.rebuilds != filled:  # just filled: the next cycle puts back what was reserved
            found = [finding for finding in found if finding.what not in _IN_GRAPH]
        return failed + found


def routes(doctor: Callable[[], Doctor | None], sweep: Callable[[], Awaitable[None]]) -> list[Route]:
    """What `kubectl fluxqueue doctor` asks.

    Parameters
    ----------
    doctor
        The leader's; None while this replica does not lead.
    sweep
        Compares and mends everything once.
    """

    async def examine(request: Request) -> Response:
        return await _answer(request, repair=False)

    async def repair(request: Request) -> Response:
        return await _answer(request, repair=True)

    async def _answer(request: Request, *, repair: bool) -> Response:
        leads = doctor()
        if leads is None:
            return JSONResponse({"error": "this replica of the queue does not lead, or is still starting"}, status_code=503)
        text = request.query_params.get("looks", "2")
        looks = int(text) if text in ("1", "2", "3") else 2
        try:
            found = await leads.examine(looks=looks)
            mended: list[Finding] = []
            if repair and found:
                await leads.mend(found)
                await sweep()
                await asyncio.sleep(_SETTLES_S)
                left = await leads.examine(looks=looks)
                mended = [finding for finding in found if finding not in left]
                found = left
        except (ApiError, DatabaseUnavailable) as error:
            return JSONResponse({"error": str(error)}, status_code=502)
        return JSONResponse({"findings": [_told(finding) for finding in found], "repaired": [_told(finding) for finding in mended]})

    return [Route("/doctor", examine, methods=["GET"]), Route("/doctor/repair", repair, methods=["POST"])]


def _told(finding: Finding) -> dict[str, Any]:
    told = asdict(finding)
    return {"invariant": finding.what.invariant, **told, "what": str(finding.what), "remedy": finding.what.remedy}
