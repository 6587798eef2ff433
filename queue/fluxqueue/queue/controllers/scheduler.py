"""The scheduling cycle: who goes next, asked of Fluxion, stored, and only then released.

One cycle at a time, woken by events and coalesced, so a burst of a thousand arrivals costs a few cycles and not a thousand. Grants are
stored in batches while the cycle goes on, so the first work starts before the last is decided. When Fluxion is away or forgot the graph,
nothing is lost: the cycle says so, the graph is filled anew and the cycle is tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import structlog

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import JobRequest, MatchResult, Verdict
from fluxqueue.queue.controllers.graph import GraphKeeper, GraphLost
from fluxqueue.queue.jobspecs import SLOT
from fluxqueue.queue.ledger import Freed, Ledger
from fluxqueue.queue.metrics import CYCLE_SECONDS, CYCLES, FLUXION_UP, GRANTS
from fluxqueue.queue.policies.fcfs import FcfsPass
from fluxqueue.queue.records import FluxionJobId, Grant, ReasonChange, Workload, WorkloadId
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.tasks import Trigger

__all__ = ["Scheduler", "ranks_of"]

log = structlog.get_logger()

_BATCH = 100
_RETRY_S = 1.0
_UNBOUNDED = 0
"""As in the jobspec: a duration of 0 lasts as long as the graph."""


class Scheduler:
    """Runs scheduling cycles.

    Parameters
    ----------
    ledger
        Pending workloads, and where grants are stored.
    graph
        The matcher's graph.
    trigger
        How releases, and further cycles, are asked for.
    """

    def __init__(self, ledger: Ledger, graph: GraphKeeper, trigger: Trigger) -> None:
        self._ledger = ledger
        self._graph = graph
        self._trigger = trigger
        self._impossible: dict[str, MatchResult] = {}
        self._possible: set[str] = set()
        self._judged_version = -1
        self._jobids: dict[WorkloadId, FluxionJobId] = {}
        self._waking: asyncio.Task[None] | None = None
        self.last_error = ""

    async def cycle(self) -> None:
        """Run one cycle; failures of Fluxion are reported and tried again, anything else is the caller's."""
        began = time.perf_counter()
        try:
            async with self._graph.exclusive:
                await self._graph.ensure()
                granted = await self._match()
        except (FluxionError, GraphLost) as error:
            self._graph.lose()
            self._away(str(error))
            CYCLES.labels("fluxion-away").inc()
            return
        if self.last_error:
            log.info("fluxion is back")
        self.last_error = ""
        FLUXION_UP.set(1)
        CYCLES.labels("granted" if granted else "idle").inc()
        CYCLE_SECONDS.observe(time.perf_counter() - began)

    async def _match(self) -> int:
        if self._judged_version != self._graph.version:
            self._judged_version = self._graph.version
            self._impossible.clear()
            self._possible.clear()
        self._forget_departed()
        candidates = [workload for workload in self._ledger.pending() if not workload.blocked or workload.reason is Reason.UNSATISFIABLE]
        round_ = FcfsPass(candidates, self._impossible)
        granted = 0
        while batch := round_.next_batch(_BATCH):
            ids = await self._ids_for(batch)
            requests = [
                JobRequest(jobspec=workload.jobspec, jobid=jobid, explain=True, duration_s=_UNBOUNDED)
                for workload, jobid in zip(batch, ids, strict=True)
            ]
            answer = await self._graph.fluxion.match_batch(requests, call=self._graph.call(), stop_at_first_failure=True)
            round_.accept(batch, answer.results)
            grants = [
                _grant(workload, result)
                for workload, result in zip(batch, answer.results, strict=False)
                if result.verdict is Verdict.GRANTED
            ]
            refused = await self._ledger.grant(grants)
            for grant in grants:
                self._jobids.pop(grant.workload, None)
            granted += len(grants) - len(refused)
            if granted:
                GRANTS.inc(len(grants) - len(refused))
                await self._trigger.release()
        await self._judge_new_shapes(round_.reasons)
        await self._ledger.set_reasons(self._final_reasons(round_.reasons))
        return granted

    async def _ids_for(self, batch: Sequence[Workload]) -> list[FluxionJobId]:
        """A job id for each, kept until it is granted: a request repeated under its id gets its first answer again."""
        new = [workload.id for workload in batch if workload.id not in self._jobids]
        if new:
            self._jobids.update(zip(new, await self._ledger.store.next_jobids(len(new)), strict=True))
        return [self._jobids[workload.id] for workload in batch]

    def _forget_departed(self) -> None:
        """Give back what may have been granted under the ids of workloads that are no longer pending."""
        departed = [found for found in self._jobids if (workload := self._ledger.get(found)) is None or workload.state is not State.PENDING]
        if departed:
            self._ledger.put_freed(Freed(jobs={self._jobids.pop(found) for found in departed}))

    async def _judge_new_shapes(self, reasons: Sequence[ReasonChange]) -> None:
        """Find out early which of those that wait their turn could never start."""
        for change in reasons:
            workload = self._ledger.get(change.workload)
            if workload is None or workload.shape in self._impossible or workload.shape in self._possible:
                continue
            answer = await self._graph.fluxion.satisfy(workload.jobspec, call=self._graph.call())
            if answer.verdict is Verdict.UNSATISFIABLE:
                self._impossible[workload.shape] = answer
            else:
                self._possible.add(workload.shape)

    def _final_reasons(self, reasons: Sequence[ReasonChange]) -> list[ReasonChange]:
        final = []
        for change in reasons:
            workload = self._ledger.get(change.workload)
            impossible = self._impossible.get(workload.shape) if workload else None
            if impossible is not None and change.reason is Reason.WAITING_FOR_NODES:
                change = ReasonChange(workload=change.workload, reason=Reason.UNSATISFIABLE, message=impossible.reason)
            final.append(change)
        return final

    def _away(self, message: str) -> None:
        FLUXION_UP.set(0)
        if message != self.last_error:
            log.warning("fluxion is away: nothing is matched until it answers", error=message, retry_s=_RETRY_S)
        self.last_error = message
        self.soon(_RETRY_S)

    def soon(self, delay_s: float = 0.05) -> None:
        """Ask for another cycle in a while; asking twice is asking once."""
        if self._waking is None or self._waking.done():
            self._waking = asyncio.create_task(self._wake(delay_s))

    async def _wake(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            try:
                await self._trigger.schedule()
            except DatabaseUnavailable as error:
                log.warning("a scheduling cycle could not be asked for", error=str(error), retry_s=_RETRY_S)
                await asyncio.sleep(_RETRY_S)
            else:
                return


def ranks_of(result: MatchResult) -> tuple[str, ...]:
    """The node of rank i: nodes in the order Fluxion chose them, each for as many ranks as it holds slots."""
    return tuple(share.node for share in result.shares for _ in range(share.slots.get(SLOT, 0)))


def _grant(workload: Workload, result: MatchResult) -> Grant:
    start = datetime.fromtimestamp(result.at, UTC)
    return Grant(
        workload=workload.id,
        jobid=FluxionJobId(result.jobid),
        shares=result.shares,
        hosts=ranks_of(result),
        start=start,
        end=start + timedelta(seconds=workload.duration_s) if workload.duration_s is not None else None,
    )
