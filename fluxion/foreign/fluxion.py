"""The matcher of the queue with a foreign Fluxion service behind it.

The queue's own graph is kept in this process. It has what the three calls lack: clock, restored allocations,
foreign pods, nodes that change, reasons, and whether a request fits at all. A request is matched there first,
which tells BUSY from UNSATISFIABLE. If it fits, the foreign service chooses the nodes, and its choice is
checked and booked in our graph (`bookings`). Reservations are never made: a foreign graph has no clock.

The graph of the service is what was free at its last Init (`free_graphs`), less what it granted since. It is
out of date whenever something else changes. So an answer that is refused, and a match that fails although the
request fits, lead to a new Init if anything changed since the last one, and to a second attempt. If the
service still chooses nothing that can be booked, it is asked for the placement of our own matcher, node by
node. Only then the work waits, and its reason says so.

A process that ends between a match and the commit of the queue loses nothing: the next leader begins with an
Init.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog

from fluxqueue.fluxion.changes import CancelJobs, RestoreJobs
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.foreign.answers import InvalidAnswer
from fluxqueue.fluxion.foreign.bookings import (
    accepting_nodes,
    never_fits,
    problem_of,
    shares_of,
    slots_on,
)
from fluxqueue.fluxion.foreign.free_graphs import MOST_BYTES, free_graph
from fluxqueue.fluxion.foreign.parts import Part, foreign_jobspec, free_parts, node_parts, slot_parts
from fluxqueue.fluxion.foreign.service import ForeignService
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.match.jobspec import Jobspec, read_jobspec
from fluxqueue.fluxion.messages import (
    CallContext,
    JobMatchRequest,
    MatchBatch,
    MatchResult,
    MatchVerdict,
    NodeShare,
    RestoredJob,
)
from fluxqueue.fluxion.rpc.compatible import InitRpc
from fluxqueue.fluxion.rpc.failures import FluxionUnavailable, InternalError
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.fluxion.rpc.matching import MatchBatchRpc
from fluxqueue.fluxion.rpc.reports import InfoRpc, ListRpc, StatRpc
from fluxqueue.fluxion.rpc.requests import Answer, Rpc

__all__ = ["ForeignFluxion"]

log = structlog.get_logger()

_READING = (InfoRpc, ListRpc, StatRpc)
_MOST_SILENCES: Final = 2
_SILENCED_S: Final = 600
_MOST_REMEMBERED: Final = 1_000
_REFUSED: Final = "the answer of the foreign matcher is refused"
_NONE: Final = "the foreign matcher found no nodes for it, though the queue's own graph has them"


class ForeignFluxion(Fluxion):
    """`Fluxion` on a graph of this process, of which a foreign service chooses the nodes.

    Parameters
    ----------
    client
        Connection to the service.
    policy
        Match policy of its graph.
    units
        In what it counts.
    most_bytes
        Size of the largest graph that it is given.
    """

    def __init__(
        self, client: Fluxion, policy: str, units: ForeignUnits | None = None, *, most_bytes: int = MOST_BYTES
    ) -> None:
        self.engine = Engine()
        self.service = ForeignService(client, policy)
        self._units = units or ForeignUnits()
        self._most_bytes = most_bytes
        self._one_at_a_time = asyncio.Lock()
        self._changed = False
        self._lost = False
        self._silences: dict[str, tuple[float, ...]] = {}

    async def close(self) -> None:
        """Close the connection."""
        await self.service.client.close()

    async def wait_for_loss(self, within_s: float) -> None:
        """Return when the connection to the service ended, or after so many seconds.
        Its graph may be lost then; ours is not.
        """
        began = time.monotonic()
        await self.service.client.wait_for_loss(within_s)
        if time.monotonic() - began < within_s:
            self.service.doubt()
            self._lost = True

    async def _send(self, rpc: Rpc[Answer]) -> Answer:
        async with self._one_at_a_time:
            if isinstance(rpc, MatchBatchRpc) and not rpc.trial:
                return await self._match_batch(rpc)  # type: ignore[return-value]  # the answer of this class
            if isinstance(rpc, InfoRpc) and self._lost and self.engine.instance:
                await self._fill()
            elif not isinstance(rpc, _READING):
                self._changed = True
            answer = await self._run(rpc)
            if isinstance(rpc, InitRpc):
                # It shows whether the service can be used. What runs comes afterwards, so the first match
                # gives it another graph.
                await self._fill()
                self.service.doubt()
            return answer

    async def _run(self, rpc: Rpc[Answer]) -> Answer:
        """Carry a call out on our graph, in a thread: large ones must not delay the renewal of the Lease."""
        return await asyncio.to_thread(rpc.run, self.engine)

    async def _fill(self, wanted: Sequence[NodeShare] = ()) -> None:
        """Give the service what is free now."""
        nodes = frozenset(share.node for share in wanted)
        await self.service.init(free_graph(self.engine.state, self._units, nodes, self._most_bytes))
        self._changed = self._lost = False

    async def _match_batch(self, rpc: MatchBatchRpc) -> MatchBatch:
        results: list[MatchResult] = []
        began = time.perf_counter()
        for request in rpc.jobs:
            result = await self._match(
                replace(request, reserve=False, improve=False, latest_nodes=False), rpc
            )
            results.append(result)
            if rpc.stop_at_first_failure and result.verdict is not MatchVerdict.GRANTED:
                break
        return MatchBatch(tuple(results), self.engine.instance, time.perf_counter() - began)

    async def _match(self, request: JobMatchRequest, rpc: MatchBatchRpc) -> MatchResult:
        """Match one job: on our graph, then by the service."""
        known = bool(self.engine.instance) and request.jobid in self.engine.state.jobs
        alone = replace(rpc, jobs=(request,), stop_at_first_failure=False, yielding=())
        own = (await self._run(alone)).results[0]
        if known or own.verdict is not MatchVerdict.GRANTED:
            return own
        # Nothing else enters our graph until the choice of the service is booked, so our own choice is taken
        # out again at once.
        self.engine.apply([CancelJobs([own.jobid])])
        request = replace(request, jobid=own.jobid)
        read = read_jobspec(request.jobspec)
        by_name = self.engine.state.graph.by_name
        jobspec = read.in_flavor_of([by_name[share.node] for share in own.shares])
        if self._is_silenced(request.jobspec):
            reason = (
                f"the foreign matcher gave no answer to this request {_MOST_SILENCES} times: "
                "it is asked again after some minutes"
            )
            return MatchResult(MatchVerdict.UNSATISFIABLE, own.jobid, reason=reason)
        free, fixed = free_parts(jobspec), node_parts(own.shares)
        shares, problem = await self._choose(request, jobspec, free, own.shares) if free else ((), "")
        if shares:
            return self._book(own, shares)
        _, problem = await self._choose(request, jobspec, fixed, own.shares)
        if not problem:
            return await self._book_own(own, replace(alone, jobs=(request,)))
        log.info("foreign.refused", job=own.jobid, reason=problem)
        if jobspec is not read:
            other = await self._match(self._elsewhere(request, jobspec), rpc)
            if other.verdict is MatchVerdict.GRANTED:
                return other
        parts = free or slot_parts(jobspec)
        never = [
            never_fits(self.engine.state, each, parts, self._units) for each in read.of_flavors or (read,)
        ]
        if all(never):
            return MatchResult(MatchVerdict.UNSATISFIABLE, own.jobid, reason=never[0])
        return MatchResult(MatchVerdict.BUSY, own.jobid, reason=self._why(problem))

    def _elsewhere(self, request: JobMatchRequest, jobspec: Jobspec) -> JobMatchRequest:
        """Return a request that the service refused in one of its flavors without the nodes of that."""
        admits = jobspec.constraint
        refused = (each.name for each in self.engine.state.graph.nodes if admits and admits.accepts(each))
        return replace(request, exclude=(*request.exclude, *refused))

    async def _choose(
        self, request: JobMatchRequest, jobspec: Jobspec, parts: Sequence[Part], own: tuple[NodeShare, ...]
    ) -> tuple[tuple[NodeShare, ...], str]:
        """Ask the service, and once more with a new graph if the one it has may be the cause of what is
        wrong.

        Returns
        -------
        tuple
            What the work takes, and in a sentence what is wrong; one of them is empty.
        """
        problem = ""
        for _ in range(2):
            if self.service.certain:
                await self.service.cancel_others(self.engine.state.jobs)
            if not self.service.certain:
                await self._fill(own)
            shares, problem = await self._ask(request, jobspec, parts, own)
            if not problem:
                self._silences.pop(request.jobspec, None)
                return shares, ""
            await self.service.cancel([request.jobid])
            if (
                self.service.certain
                and not self._changed
                and all(share.node in self.service.offered for share in own)
            ):
                break
            self.service.doubt()
        return (), problem

    async def _ask(
        self, request: JobMatchRequest, jobspec: Jobspec, parts: Sequence[Part], own: tuple[NodeShare, ...]
    ) -> tuple[tuple[NodeShare, ...], str]:
        """Ask for all parts; return what they take, or in a sentence why it cannot be booked."""
        placed: list[tuple[Part, dict[str, int]]] = []
        for part in parts:
            accepted = accepting_nodes(self.engine.state, jobspec, request, part)
            if accepted.isdisjoint(self.service.offered):
                return (), _NONE
            try:
                taken = await self._match_part(
                    request, foreign_jobspec(part, self._units, accepted, self.service.offered)
                )
            except InvalidAnswer as error:
                return (), f"{_REFUSED}: {error}"
            if taken is None:
                return (), _NONE
            if other := next((node for node in taken if node not in accepted), None):
                return (), f"{_REFUSED}: it takes node {other:.80}, which it was told not to take"
            slots = slots_on(part, taken, self._units)
            if isinstance(slots, str):
                return (), f"{_REFUSED}: {slots}"
            placed.append((part, slots))
        if all(part.node for part in parts):
            return own, ""
        shares = shares_of(placed)
        problem = problem_of(self.engine.state, jobspec, request, shares)
        return shares, f"{_REFUSED}: {problem}" if problem else ""

    async def _match_part(self, request: JobMatchRequest, text: str) -> dict[str, dict[str, int]] | None:
        try:
            return await self.service.match(request.jobid, text)
        except FluxionUnavailable:
            self._silences[request.jobspec] = (*self._silences.get(request.jobspec, ()), time.monotonic())[
                -_MOST_SILENCES:
            ]
            if len(self._silences) > _MOST_REMEMBERED:
                del self._silences[next(iter(self._silences))]
            raise

    def _is_silenced(self, jobspec: str) -> bool:
        """True if the service gave no answer to this request several times:
        it may end the service each time.
        """
        times = self._silences.get(jobspec, ())
        return len(times) >= _MOST_SILENCES and time.monotonic() - times[-1] < _SILENCED_S

    def _book(self, own: MatchResult, shares: tuple[NodeShare, ...]) -> MatchResult:
        """Book a checked choice in our graph."""
        self._changed = True
        done = self.engine.apply(
            [RestoreJobs([RestoredJob(own.jobid, shares, own.at, own.end)])],
            CallContext(now=self.engine.state.now),
        )
        if not done.done:
            raise InternalError(f"job {own.jobid} of the foreign matcher cannot be booked: {done.reason}")
        return replace(own, shares=shares, allocation="")

    async def _book_own(self, own: MatchResult, alone: MatchBatchRpc) -> MatchResult:
        """Book the placement of our own matcher again: nothing has changed in our graph since it was
        found.
        """
        self._changed = True
        again = (await self._run(alone)).results[0]
        if again.shares != own.shares:
            raise FluxionUnavailable(
                f"job {own.jobid}: the graph changed while the foreign matcher was asked"
            )
        return again

    def _why(self, problem: str) -> str:
        if problem != _NONE:
            return problem
        if self.service.left_out:
            return f"{problem}: {self.service.left_out} nodes do not fit into a message of its service"
        return (
            f"{problem}: it counts in pieces of {self._units.cpu_m}m cpu and {self._units.memory_mib}Mi "
            "memory"
        )
