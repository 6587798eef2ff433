"""The scheduling cycle: who goes next, asked of Fluxion, stored, and only then released.

One cycle at a time, woken by events and coalesced, so a burst of a thousand arrivals costs a few cycles and not a thousand. Grants are
stored in batches while the cycle goes on, so the first work starts before the last is decided. When Fluxion is away or forgot the graph,
nothing is lost: the cycle says so, the graph is filled anew and the cycle is tried again.

A cycle goes: bring the graph to the present; plan upon the nodes of what was told to stop; push the ends of what runs longer than it
said; let each queue's policy speak (`fluxqueue.queue.policies`); store what was promised; say why the others wait; and, every few seconds,
plan ahead for those without a promise. What ends or was promised at a known time wakes the next cycle by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueSpec, Provision
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import MatchResult, Verdict
from fluxqueue.kube.store import Change
from fluxqueue.queue.controllers.graph import GraphKeeper, GraphLost
from fluxqueue.queue.controllers.outlook import Outlook
from fluxqueue.queue.controllers.preemptor import Preemptor, TakesBack
from fluxqueue.queue.controllers.verdicts import Verdicts
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.cycles import Driver
from fluxqueue.queue.jobspecs import places_of
from fluxqueue.queue.ledger import Freed, Ledger
from fluxqueue.queue.limits import Quotas
from fluxqueue.queue.metrics import CYCLE_SECONDS, CYCLES, FLUXION_UP, GRANTS
from fluxqueue.queue.policies.backlog import Backlog
from fluxqueue.queue.policies.overruns import pushed_end
from fluxqueue.queue.policies.passes import Findings, Line, Memory, Moment, Promise
from fluxqueue.queue.policies.rounds import DEFAULT_DEPTH, Discipline, Round
from fluxqueue.queue.provisioning import Prospects
from fluxqueue.queue.records import UNREAD, FluxionJobId, Grant, ReasonChange, Reservation, Workload, WorkloadId
from fluxqueue.queue.requeues import hosts_by_index
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.tasks import Trigger

__all__ = ["Scheduler", "disciplines_of"]

log = structlog.get_logger()

_RETRY_S = 1.0
_EXACTLY_TOLD = 100
_SOON_S = 0.05
_WATCH_S = 3.0
_DRAIN_S = 60
"""From the wish that work stops until its nodes are planned to be free: twice the grace Kubernetes gives a pod."""

Disciplines = Callable[[], Mapping[str, Discipline]]


def disciplines_of(queues: Iterable[FluxQueue]) -> dict[str, Discipline]:
    """The policy of each FluxQueue, and of the queue ``default``, which exists without one."""
    specs = {names.DEFAULT_QUEUE: FluxQueueSpec(), **{queue.metadata.name: queue.spec for queue in queues}}
    return {
        name: Discipline(
            spec.policy,
            spec.reservation_depth or DEFAULT_DEPTH,
            spec.limits,
            spec.preemption,
            spec.match_policy or "",
            spec.provision,
        )
        for name, spec in specs.items()
    }


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
        How releases, and further cycles, are asked for.
    disciplines
        The policy of each queue, asked anew for every cycle.
    take_back
        Lets workloads give their nodes back, where preemption takes them; the ledger's own if None, which only notes the wish.
    prospects
        What would fit if the cluster grew; nothing if None.
    """

    def __init__(
        self,
        ledger: Ledger,
        graph: GraphKeeper,
        trigger: Trigger,
        disciplines: Disciplines = _default_disciplines,
        take_back: TakesBack | None = None,
        prospects: Prospects | None = None,
    ) -> None:
        self._ledger = ledger
        self._graph = graph
        self._trigger = trigger
        self._disciplines = disciplines
        self._verdicts = Verdicts(graph, prospects or Prospects({}))
        self._provisions: dict[str, Provision] = {}
        self._backlogs: dict[str, Backlog] = {}
        self._queue_of: dict[WorkloadId, str] = {}
        self._memories: dict[str, Memory] = {}
        self._changed: set[WorkloadId] = set()
        self._untold: set[WorkloadId] = set()
        self._limited: set[WorkloadId] = set()
        self._promises: dict[WorkloadId, Promise] = {}
        self._promised_shapes: dict[WorkloadId, str] = {}
        self._jobids: dict[WorkloadId, FluxionJobId] = {}
        self._rebuilds_seen = 0
        self._preemptor = Preemptor(ledger, graph, take_back or ledger.take_back)
        self._outlook = Outlook(ledger, graph)
        self._waking: asyncio.Task[None] | None = None
        self._wake_at = float("inf")
        self.last_error = ""
        ledger.subscribe(self._changed.add)
        self._changed.update(workload.id for workload in ledger.all())

    async def watch_matcher(self) -> None:
        """Notice within seconds that the matcher lost the graph, also when no cycle has anything to ask it; runs until cancelled."""
        while True:
            await asyncio.sleep(_WATCH_S)
            if not await self._graph.alive():
                self.soon()

    async def cycle(self) -> None:
        """Run one cycle; failures of Fluxion are reported and tried again, anything else is the caller's."""
        began = time.perf_counter()
        try:
            async with self._graph.exclusive:
                self._forget_departed()
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
        self._wake_for_what_is_planned()

    async def _match(self) -> int:
        self._refresh()
        causes: dict[WorkloadId, str] = {}
        if self._rebuilds_seen != self._graph.rebuilds:
            causes |= await self._put_promises_back()
            self._rebuilds_seen = self._graph.rebuilds
        causes |= await self._displaced_by_nodes()
        stopping = await self._expect_to_stop()
        causes |= await self._push_overruns()
        causes |= await self._drop_stale_promises()
        disciplines = self._disciplines()
        self._heed_provisions(disciplines)
        quotas = Quotas({name: each.limits for name, each in disciplines.items() if each.limits is not None}, self._ledger.live())
        causes |= await self._drop_promises_over(quotas)
        call = self._graph.call()
        roomier = self._graph.take_roomier() or stopping or bool(causes)
        if roomier:
            for memory in self._memories.values():
                memory.clear()
        moment = Moment(call.now or 0, roomier=roomier, impossible=self._verdicts.impossible, quotas=quotas)
        promised_queues = {queue for found in self._promises if (queue := self._queue_of.get(found)) is not None}
        lines = [
            Line(
                name,
                backlog,
                {found: promise for found, promise in self._promises.items() if self._queue_of.get(found) == name},
                self._memories.setdefault(name, Memory()),
            )
            for name, backlog in sorted(self._backlogs.items())
            if len(backlog) or name in promised_queues
        ]
        granted = 0
        over: list[ReasonChange] = []

        async def store(answers: Sequence[tuple[Workload, MatchResult]]) -> None:
            nonlocal granted
            grants = [_grant(workload, result) for workload, result in await self._within(quotas, answers, over)]
            reach(Point.MATCHED)
            refused = await self._ledger.grant(grants)
            reach(Point.GRANTED)
            self._outlook.started((grant.workload for grant in grants), moment.now)
            for grant in grants:
                self._jobids.pop(grant.workload, None)
            if refused:
                self._changed.update(grant.workload for grant in refused)
                for grant in refused:
                    quotas.drop(grant.workload)
                self.soon()
            granted += len(grants) - len(refused)
            if len(grants) > len(refused):
                GRANTS.inc(len(grants) - len(refused))
                await self._trigger.release()

        driver = Driver(self._graph.fluxion, self._ids_for, store, match_policies=self._match_policies())
        findings = await driver.run(Round(lines, disciplines, moment), self._promises, call)
        self._refresh()
        await self._store_plan(findings, causes | {each.workload: each.message for each in over})
        await self._tell_why(findings, self._over_limits(quotas, [*over, *(each for found in findings for each in found.reasons)]))
        if await self._preemptor.look(self._backlogs, disciplines, self._promises, moment):
            self.soon()
        if wait_s := await self._outlook.look(self._backlogs, self._promises, moment, self._match_policies()):
            self.soon(wait_s)
        return granted

    # ---- before ----------------------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Bring the backlogs to what the ledger knows."""
        changed, now = set(self._changed), self._ledger.clock()
        leaving, arriving = dict[str, list[WorkloadId]](), dict[str, list[Workload]]()
        self._changed.clear()
        for found in changed:
            workload = self._ledger.get(found)
            matchable = (
                workload is not None
                and workload.state is State.PENDING
                and (not workload.blocked or (workload.reason is Reason.UNSATISFIABLE and workload.generation != UNREAD))
                and not workload.backs_off(now)
            )
            stood = self._queue_of.get(found)
            if stood is not None and (workload is None or not matchable or workload.queue != stood):
                leaving.setdefault(stood, []).append(found)
                del self._queue_of[found]
            self._untold.discard(found)
            if workload is not None and matchable:
                arriving.setdefault(workload.queue, []).append(workload)
                self._queue_of[found] = workload.queue
                if workload.reason is Reason.NONE:
                    self._untold.add(found)
                elif workload.reason is Reason.QUEUE_LIMIT:
                    self._limited.add(found)
        for queue, gone in leaving.items():
            self._backlogs[queue].remove_all(gone)
        for queue, workloads in arriving.items():
            self._backlogs.setdefault(queue, Backlog()).update(workloads)

    def _match_policies(self) -> dict[str, str]:
        """Of the queues that have one of their own."""
        return {name: each.match_policy for name, each in self._disciplines().items() if each.match_policy}

    def _forget_departed(self) -> None:
        """Give back what may have been granted under the ids of workloads that are no longer pending."""
        departed = [found for found in self._jobids if (workload := self._ledger.get(found)) is None or workload.state is not State.PENDING]
        if departed:
            gone = {self._jobids.pop(found) for found in departed}
            for found in departed:
                self._promises.pop(found, None)
            self._ledger.put_freed(Freed(jobs=gone))

    async def _put_promises_back(self) -> dict[WorkloadId, str]:
        """Reserve in a graph that was filled anew what had been promised, on the same nodes; returns those that no longer fit."""
        self._promises.clear()
        lost: dict[WorkloadId, str] = {}
        for reservation in self._ledger.reservations():
            workload = self._ledger.get(reservation.workload)
            if workload is None or workload.id not in self._queue_of:
                continue
            nodes = [share.node for share in reservation.shares]
            answer = await self._graph.fluxion.reserve_at(
                reservation.jobid,
                workload.jobspec,
                int(reservation.start.timestamp()),
                nodes=nodes,
                call=self._graph.call(),
                policy=self._match_policies().get(workload.queue, ""),
            )
            if answer.verdict is Verdict.RESERVED:
                self._promises[workload.id] = Promise(workload.id, reservation.jobid, answer.at, answer.end, answer.shares)
                self._promised_shapes[workload.id] = workload.shape
                self._jobids[workload.id] = reservation.jobid
            else:
                lost[workload.id] = f"its nodes are not what they were: {answer.reason}"
        return lost

    async def _displaced_by_nodes(self) -> dict[WorkloadId, str]:
        """Give up reservations whose nodes went, or are down, or filled up with what runs without us."""
        displaced = self._graph.take_displaced()
        lost: dict[WorkloadId, str] = {}
        for found, promise in self._promises.items():
            if promise.jobid in displaced:
                lost[found] = "its nodes went, changed or filled up"
            elif away := [share.node for share in promise.shares if not self._graph.usable(share.node)]:
                lost[found] = f"node {away[0]} is not there or not up"
        if lost:
            gone = [self._promises.pop(found).jobid for found in lost]
            await self._graph.fluxion.cancel_many(gone, call=self._graph.call())
        return lost

    async def _expect_to_stop(self) -> bool:
        """Plan upon the nodes of what was taken back, which drains: until it is gone, nobody else may spoil what waits for them."""
        soon = self._ledger.clock() + timedelta(seconds=_DRAIN_S)
        ends: list[tuple[FluxionJobId, datetime]] = []
        for workload, allocation in self._ledger.live():
            if not workload.taken_back or allocation.remnant or (allocation.end is not None and allocation.end <= soon):
                continue
            done = await self._graph.fluxion.extend(allocation.jobid, int(soon.timestamp()), call=self._graph.call())
            if not done.done:
                raise GraphLost(f"Fluxion did not move the end of job {allocation.jobid}: {done.reason}")
            ends.append((allocation.jobid, soon))
        await self._ledger.move_ends(ends)
        return bool(ends)

    async def _push_overruns(self) -> dict[WorkloadId, str]:
        """Move the ends of what runs longer than it said; returns reservations that had to go."""
        now, lost = self._ledger.clock(), dict[WorkloadId, str]()
        ends: list[tuple[FluxionJobId, datetime]] = []
        holders = {promise.jobid: found for found, promise in self._promises.items()}
        for workload, allocation in self._ledger.live():
            if allocation.end is None or allocation.end > now or not allocation.start < allocation.end:
                continue
            end = pushed_end(allocation.start, allocation.end, now)
            done = await self._graph.fluxion.extend(allocation.jobid, int(end.timestamp()), call=self._graph.call())
            if not done.done:
                raise GraphLost(f"Fluxion did not extend job {allocation.jobid}: {done.reason}")
            ends.append((allocation.jobid, end))
            doing = "takes longer to stop than was expected" if workload.taken_back else "runs longer than it said"
            cause = f"{workload.kind} {workload.namespace}/{workload.name} {doing}"
            for jobid in done.displaced:
                if (found := holders.get(FluxionJobId(jobid))) is not None:
                    self._promises.pop(found, None)
                    lost[found] = cause
            log.info("planned end moved", workload=workload.id, jobid=allocation.jobid, end=end, displaced=list(done.displaced))
        if ends:
            reach(Point.EXTENDED)
        await self._ledger.move_ends(ends)
        return lost

    async def _drop_stale_promises(self) -> dict[WorkloadId, str]:
        """Give up reservations of workloads that ask for something else by now, or may not be matched."""
        stale: dict[WorkloadId, str] = {}
        for found in list(self._promises):
            workload = self._ledger.get(found)
            if workload is None or found not in self._queue_of:
                stale[found] = "it does not wait to be matched any more"
            elif workload.shape != self._promised_shapes.get(found, workload.shape):
                stale[found] = "its request was changed"
        if stale:
            gone = [self._promises.pop(found).jobid for found in stale]
            await self._graph.fluxion.cancel_many(gone, call=self._graph.call())
        return stale

    async def _drop_promises_over(self, quotas: Quotas) -> dict[WorkloadId, str]:
        """Count reservations as use of their queues; give up those for which an edit of the limits left no room."""
        over: dict[WorkloadId, str] = {}
        for found, promise in sorted(self._promises.items(), key=lambda item: (item[1].start, item[0])):
            workload, nodes = self._ledger.get(found), [share.node for share in promise.shares]
            if workload is None or not quotas.limited(workload.queue):
                continue
            if sentence := quotas.refusal(workload) or quotas.excess(workload, nodes):
                over[found] = sentence
            else:
                quotas.take(workload, nodes)
        if over:
            await self._graph.fluxion.cancel_many([self._promises.pop(found).jobid for found in over], call=self._graph.call())
        return over

    async def _within(
        self, quotas: Quotas, answers: Sequence[tuple[Workload, MatchResult]], over: list[ReasonChange]
    ) -> list[tuple[Workload, MatchResult]]:
        """Count grants as use of their queues; give those back that are over a limit."""
        kept: list[tuple[Workload, MatchResult]] = []
        gone: list[FluxionJobId] = []
        for workload, result in answers:
            nodes = [share.node for share in result.shares]
            quotas.drop(workload.id)
            sentence = quotas.refusal(workload) or quotas.excess(workload, nodes)
            if not sentence:
                quotas.take(workload, nodes)
                kept.append((workload, result))
                continue
            quotas.stand_aside(workload)
            over.append(ReasonChange(workload=workload.id, reason=Reason.QUEUE_LIMIT, message=sentence))
            gone.append(FluxionJobId(result.jobid))
            self._jobids.pop(workload.id, None)
        if gone:
            await self._graph.fluxion.cancel_many(gone, call=self._graph.call())
        return kept

    async def _ids_for(self, batch: Sequence[Workload]) -> list[FluxionJobId]:
        """A job id for each, kept until it is granted: a request repeated under its id gets its first answer again."""
        new = [workload.id for workload in batch if workload.id not in self._jobids]
        if new:
            self._jobids.update(zip(new, await self._ledger.store.next_jobids(len(new)), strict=True))
        return [self._jobids[workload.id] for workload in batch]

    # ---- after -----------------------------------------------------------------------------------------------------------------

    async def _store_plan(self, findings: Iterable[Findings], causes: Mapping[WorkloadId, str]) -> None:
        made: list[Reservation] = []
        dropped = dict(causes)
        for each in findings:
            dropped.update(each.dropped)
        for each in findings:
            for found, (workload, answer) in each.promised.items():
                start = datetime.fromtimestamp(answer.at, UTC)
                made.append(
                    Reservation(
                        workload=found,
                        jobid=FluxionJobId(answer.jobid),
                        first_start=self._ledger.first_start(found) or start,
                        start=start,
                        end=datetime.fromtimestamp(answer.end, UTC) if workload.duration_s is not None else None,
                        shares=answer.shares,
                        cause=dropped.get(found, ""),
                    )
                )
                self._promised_shapes[found] = workload.shape
        renewed = {each.workload for each in made}
        for found, cause in dropped.items():
            if self._ledger.reservation(found) is None:
                continue  # it was made and given up in this very cycle
            log.info("reservation given up", workload=found, cause=cause, replaced=found in renewed)
        if made:
            reach(Point.RESERVED)
        await self._ledger.plan(made, [found for found in dropped if found not in renewed])
        self._promised_shapes = {found: shape for found, shape in self._promised_shapes.items() if found in self._promises}

    def _over_limits(self, quotas: Quotas, known: Iterable[ReasonChange]) -> list[ReasonChange]:
        """Who stands aside for a limit: with its figures for the first of each queue, in general terms for those told nothing of it."""
        found = {change.workload: change for change in known if change.reason is Reason.QUEUE_LIMIT}
        for queue, backlog in self._backlogs.items():
            if not quotas.limited(queue):
                continue
            aside = (backlog[int(row)] for row in np.flatnonzero(~quotas.within(queue, backlog)))
            for number, workload in enumerate(waiting for waiting in aside if waiting.id not in self._promises):
                message = f"the queue {queue!r} is at a limit (spec.limits of its FluxQueue)"
                if number < _EXACTLY_TOLD:
                    message = quotas.refusal(workload) or message
                elif workload.reason is Reason.QUEUE_LIMIT:
                    message = workload.message
                found.setdefault(workload.id, ReasonChange(workload=workload.id, reason=Reason.QUEUE_LIMIT, message=message))
        self._untold |= {each for each in self._limited - found.keys() if each in self._queue_of}
        self._limited = set(found)
        return list(found.values())

    async def _tell_why(self, findings: Sequence[Findings], limited: Sequence[ReasonChange]) -> None:
        """Say why workloads wait: exactly for those that were asked about, in general terms for those told nothing so far."""
        aside = {change.workload for change in limited}
        reasons = [*limited, *(change for each in findings for change in each.reasons if change.workload not in aside)]
        for each in findings:
            self._verdicts.learn(each.reasons, self._ledger, self._match_policies())
            for found, (_, answer) in each.promised.items():
                start = datetime.fromtimestamp(answer.at, UTC)
                nodes = f"{len(answer.shares)} nodes are" if len(answer.shares) != 1 else f"node {answer.shares[0].node} is"
                text = f"{nodes} reserved for it from {start:%Y-%m-%dT%H:%M:%SZ} on: it starts then, or sooner if they are free"
                reasons.append(ReasonChange(workload=found, reason=Reason.WAITING_FOR_NODES, message=text))
        said = {change.workload for change in reasons}
        reasons.extend(
            ReasonChange(workload=found, reason=Reason.WAITING_FOR_NODES, message=self._in_general(workload))
            for found in self._untold - said
            if (workload := self._ledger.get(found)) is not None and workload.state is State.PENDING
        )
        reasons = await self._verdicts.name_reservations(reasons, self._ledger, self._promises)
        more = await self._verdicts.judge([change.workload for change in reasons], self._ledger)
        later = await self._verdicts.look_ahead([change.workload for change in reasons], self._ledger)
        final = self._verdicts.final(reasons, self._ledger, self._provisions)
        await self._ledger.set_reasons([each for each in final if each.workload not in later and not self._says_more(each)])
        self._untold |= later
        if more or later:
            self.soon()

    def _heed_provisions(self, disciplines: Mapping[str, Discipline]) -> None:
        """Tell those anew who wait for nodes to be added, where their queue asks for such nodes from now on, or no longer does."""
        provisions = {name: each.provision for name, each in disciplines.items()}
        for queue, backlog in self._backlogs.items():
            if provisions.get(queue) is not self._provisions.get(queue):
                self._untold |= {waiting.id for waiting in backlog if self._verdicts.may_fit(waiting.shape)}
        self._provisions = provisions

    def _says_more(self, change: ReasonChange) -> bool:
        """Whether it is told already for whom it was suspended: that it waits for nodes since is no news."""
        workload = self._ledger.get(change.workload)
        passing = change.reason in (Reason.WAITING_FOR_NODES, Reason.BLOCKED_BY_RESERVATION)
        return passing and workload is not None and workload.reason is Reason.PREEMPTED

    def _in_general(self, workload: Workload) -> str:
        discipline = self._disciplines().get(workload.queue, Discipline())
        if discipline.promises:
            return "what it asks for is not free for as long as it asks: smaller or shorter work of its kind waits too"
        return f"waits its turn: the queue {workload.queue!r} is strictly first come, first served"

    # ---- waking ----------------------------------------------------------------------------------------------------------------

    def _wake_for_what_is_planned(self) -> None:
        """The next moment something is planned for: a reservation begins, or an allocation should have ended."""
        now = self._ledger.clock()
        starts = [promise.start for promise in self._promises.values()]
        ends = [allocation.end.timestamp() for _, allocation in self._ledger.live() if allocation.end is not None] if starts else []
        if coming := [at for at in (*starts, *ends) if at > now.timestamp() - 1]:
            self.soon(max(min(coming) - now.timestamp(), 0) + _SOON_S)

    def _away(self, message: str) -> None:
        FLUXION_UP.set(0)
        if message != self.last_error:
            log.warning("fluxion is away: nothing is matched until it answers", error=message, retry_s=_RETRY_S)
        self.last_error = message
        self.soon(_RETRY_S)

    def queue_changed(self, change: Change[FluxQueue]) -> None:
        """Let an edit of a queue's rules act at once."""
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self.soon()

    def soon(self, delay_s: float = _SOON_S) -> None:
        """Ask for another cycle in a while; of several wishes the soonest counts."""
        at = asyncio.get_running_loop().time() + delay_s
        if self._waking is not None and not self._waking.done():
            if self._wake_at <= at:
                return
            self._waking.cancel()
        self._wake_at = at
        self._waking = asyncio.create_task(self._wake(delay_s))

    async def _wake(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        self._wake_at = float("-inf")
        while True:
            try:
                await self._trigger.schedule()
            except DatabaseUnavailable as error:
                log.warning("a scheduling cycle could not be asked for", error=str(error), retry_s=_RETRY_S)
                await asyncio.sleep(_RETRY_S)
            else:
                return


def _grant(workload: Workload, result: MatchResult) -> Grant:
    start = datetime.fromtimestamp(result.at, UTC)
    return Grant(
        workload=workload.id,
        jobid=FluxionJobId(result.jobid),
        shares=result.shares,
        hosts=hosts_by_index([node for node, _ in places_of(result.shares)], workload.done_indexes),
        generation=workload.generation,
        start=start,
        end=datetime.fromtimestamp(result.end, UTC) if workload.duration_s is not None else None,
    )
