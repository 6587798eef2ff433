"""The engine: one resource graph, its jobs and its clock, behind one object that one thread owns.

Every call of a client is a method here. The method checks what all calls share: the graph is loaded, the
caller is still the leader, it expects this instance, and it uses the clock of this graph. Then it delegates:
`matching` matches, `job_changes` and `system_allocations` change what jobs hold, `topology` changes nodes,
`statistics` sums up. The engine is not thread safe and need not be: the server gives it to a single thread,
which serves one request after the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    Change,
    ExtendJob,
    RemoveNodes,
    ResizeSystem,
    RestoreJobs,
    SetAdvanceReservations,
    SetNodeStatus,
    SetProperties,
    nodes_of,
)
from fluxqueue.fluxion.compat.calls import FluxSchedCalls
from fluxqueue.fluxion.compat.requests import CompatInfo, CompatMatch, MatchRequestKind
from fluxqueue.fluxion.engine.advance_reservations import AdvanceReservations
from fluxqueue.fluxion.engine.job_changes import JobChanges
from fluxqueue.fluxion.engine.matching import JobMatching
from fluxqueue.fluxion.engine.refusals import Refused
from fluxqueue.fluxion.engine.statistics import stat
from fluxqueue.fluxion.engine.system_allocations import SystemAllocations
from fluxqueue.fluxion.engine.topology import Topology
from fluxqueue.fluxion.errors import (
    ClockMixed,
    InitError,
    NotInitialised,
    StaleEpoch,
    UnknownJob,
    WrongInstance,
)
from fluxqueue.fluxion.graph.jgf import InvalidGraph, read_jgf
from fluxqueue.fluxion.graph.nodespecs import graph_of_nodes
from fluxqueue.fluxion.match.matcher import Matcher
from fluxqueue.fluxion.match.policies import UnknownPolicy, read_policy
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.match.weights import InvalidPruneFilters, Weights, read_prune_filters
from fluxqueue.fluxion.match.work_time import work_time
from fluxqueue.fluxion.messages import (
    AppliedChanges,
    CallContext,
    GraphNodeSpec,
    JobInfo,
    JobMatchRequest,
    MatchBatch,
    MatchResult,
    MatchVerdict,
    Stat,
)

__all__ = ["Engine"]

NO_CALL = CallContext()
_LONGEST_BATCH_S = 0.5
"""CPU after which a batch ends: other calls wait for it, and it has a deadline."""
_PLACING = (RestoreJobs, ResizeSystem, ExtendJob, SetAdvanceReservations)
"""Changes that place something in time."""
_BOOKED = (MatchVerdict.GRANTED, MatchVerdict.RESERVED)


class _Session:
    """One instance: its state and the objects that work on it."""

    def __init__(self, state: GraphState) -> None:
        self.state = state
        self.matcher = Matcher(state)
        self.flux_sched = FluxSchedCalls(state, Matcher(state, deep_slots=True))
        self.matching = JobMatching(state, self.matcher)
        self.job_changes = JobChanges(state)
        self.system_allocations = SystemAllocations(state)
        self.topology = Topology(state, self.job_changes)
        self.advance_reservations = AdvanceReservations(state)

    def make(self, change: Change) -> tuple[int, ...]:
        """Make one change; return the dropped reservations."""
        match change:
            case CancelJobs(jobids):
                self.job_changes.cancel(jobids)
            case CancelPart(jobid, shares, paths):
                self.job_changes.cancel_part(jobid, shares, paths)
            case RestoreJobs(jobs):
                self.job_changes.restore(jobs)
            case ResizeSystem(shares):
                return self.system_allocations.resize(shares)
            case ExtendJob(jobid, end):
                return self.job_changes.extend(jobid, end)
            case SetNodeStatus(up):
                self.topology.set_status(up)
            case SetProperties(nodes):
                self.topology.set_properties(nodes)
                return self.matching.drop_unfit(nodes)
            case AddNodes(specs):
                displaced = self.topology.add(specs) + self.matching.drop_unfit(spec.name for spec in specs)
                return displaced + self.advance_reservations.settle()
            case RemoveNodes(names):
                return self.topology.remove(names)
            case SetAdvanceReservations(reservations):
                return self.advance_reservations.set(reservations)
        return ()


class Engine:
    """A resource graph with jobs on it, owned by one thread.

    Every method but `init` raises `NotInitialised` before the first `init`. Methods that take a `CallContext`
    raise `StaleEpoch`, `WrongInstance` or `ClockMixed` if the call must not be served. A call without ``now``
    that places nothing in time (for example info, stat, or the end of a job) is served on either clock.
    """

    def __init__(self) -> None:
        self._session: _Session | None = None

    # ---- life ----------------------------------------------------------------------------------------------

    @property
    def instance(self) -> str:
        """Changes with every `init`; empty before the first."""
        return self._session.state.instance if self._session is not None else ""

    def init(
        self,
        policy: str,
        *,
        jgf: str | bytes | None = None,
        nodes: Sequence[GraphNodeSpec] | None = None,
        call: CallContext = NO_CALL,
        prune_filters: str | None = None,
    ) -> str:
        """Load a graph and forget the one before, with all its jobs.

        Parameters
        ----------
        policy
            ``lonode``, ``first``, ...; empty means ``first``, as in flux-sched.
        jgf, nodes
            The graph: JGF text, or node specifications. Exactly one of them.
        prune_filters
            As flux-sched's option; ``ALL:core,ALL:node`` if None. It decides exploration weights under policy
            first.

        Raises
        ------
        InitError
            Unknown policy or unreadable graph; a graph that was loaded before stays.
        """
        if self._session is not None:
            self._check_epoch(self._session.state, call)
        if (jgf is None) == (nodes is None):
            raise InitError("init: either jgf or nodes is needed")
        try:
            chosen = read_policy(policy)
            graph = read_jgf(jgf) if jgf is not None else graph_of_nodes(nodes or ())
            prune_types = read_prune_filters(prune_filters, graph.leaf_types)
        except (UnknownPolicy, InvalidGraph, InvalidPruneFilters) as error:
            raise InitError(str(error)) from None
        state = GraphState(uuid.uuid4().hex, graph, chosen, epoch=call.epoch)
        if chosen.stop_on_first:
            state.weights = Weights(state.table, prune_types)
        if call.now is not None:
            state.advance(call.now)
        self._session = _Session(state)
        return state.instance

    @property
    def state(self) -> GraphState:
        """The graph with its jobs, for callers in the thread of the engine that ask it more than a call can
        say; they change nothing.
        """
        return self._open().state

    # ---- as in flux-sched ----------------------------------------------------------------------------------

    def match(self, jobspec: str, request: MatchRequestKind) -> CompatMatch:
        """Match exactly as flux-sched does.

        Raises
        ------
        MatchError
            The match failed; it has errno and reason.
        ClockMixed
            The graph uses the wall clock.
        """
        session = self._open()
        if session.state.wall_clock:
            raise ClockMixed(
                "match: this graph uses the wall clock, which Match does not know: use MatchBatch"
            )
        session.state.freeze()
        return session.flux_sched.match(jobspec, request)

    def cancel(self, jobid: int, noent_ok: bool = True) -> None:
        """End a job; `UnknownJob` if it is unknown or cancelled already and ``noent_ok`` is false."""
        session = self._open()
        session.flux_sched.cancel(jobid, noent_ok=noent_ok)
        session.system_allocations.settle_excess()

    def info(self, jobid: int) -> CompatInfo:
        """Return the state of a job; `UnknownJob` if there never was one."""
        return self._open().flux_sched.info(jobid)

    def set_status(self, path: str, up: bool) -> None:
        """Mark the vertex of this containment path up or down; `UnknownPath` if there is none."""
        self._open().flux_sched.set_status(path, up=up)

    # ---- matching ------------------------------------------------------------------------------------------

    def match_batch(
        self,
        jobs: Sequence[JobMatchRequest],
        call: CallContext = NO_CALL,
        *,
        with_allocation: bool = False,
        stop_at_first_failure: bool = False,
        yielding: Sequence[int] = (),
    ) -> MatchBatch:
        """Match jobs in order; return one answer each, fewer after ``stop_at_first_failure``,
        or if they take long: at least one.

        A jobid that is granted already repeats its answer. A reservation becomes an allocation once its start
        has come. Any other job is matched. The reservations in ``yielding`` do not block these jobs: they
        stay unless one of these jobs takes their resources.
        """
        session = self._enter(call, places=True)
        began_s = before_s = work_time()
        results: list[MatchResult] = []
        seconds: list[float] = []
        withdrawn = session.job_changes.withdraw(yielding)
        try:
            for request in jobs:
                if before_s > began_s + _LONGEST_BATCH_S:
                    break
                result = session.matching.match(request, with_allocation=with_allocation)
                results.append(result)
                after_s = work_time()
                seconds.append(after_s - before_s)
                before_s = after_s
                if stop_at_first_failure and result.verdict is not MatchVerdict.GRANTED:
                    break
        finally:
            session.job_changes.reinstate(
                withdrawn, [result.jobid for result in results if result.verdict in _BOOKED]
            )
        displaced = tuple(jobid for jobid in yielding if jobid not in session.state.jobs)
        took_s = work_time() - began_s
        return MatchBatch(tuple(results), session.state.instance, took_s, displaced, tuple(seconds))

    def trial(
        self,
        jobs: Sequence[JobMatchRequest],
        without: Sequence[int] = (),
        call: CallContext = NO_CALL,
        parts: Sequence[CancelPart] = (),
    ) -> MatchBatch:
        """Return what `match_batch` would answer if the jobs ``without`` did not exist and others had given
        ``parts`` back, to all jobs however long it takes.

        The graph stays as it is. If a job does not hold its part, every answer is BUSY.
        """
        session = self._enter(call, places=True)
        began_s = work_time()
        results: list[MatchResult] = []

        def ask() -> bool:
            for change in list[Change]([CancelJobs(without), *parts]):
                session.make(change)
            session.system_allocations.settle_excess()
            results.extend(session.matching.match(each, with_allocation=False) for each in jobs)
            return False

        try:
            session.state.atomically(ask)
        except Refused:
            results = [MatchResult(MatchVerdict.BUSY, each.jobid) for each in jobs]
        return MatchBatch(tuple(results), session.state.instance, work_time() - began_s)

    def reserve_at(
        self,
        jobid: int,
        jobspec: str,
        start: int,
        nodes: Sequence[str] = (),
        call: CallContext = NO_CALL,
        policy: str = "",
    ) -> MatchResult:
        """Reserve from ``start`` on, on these nodes only (any if empty), by a policy (the graph's if empty).

        The verdict is RESERVED, BUSY, UNSATISFIABLE or INVALID.
        """
        return self._enter(call, places=True).matching.reserve_at(jobid, jobspec, start, nodes, policy)

    def satisfy(self, jobspec: str, call: CallContext = NO_CALL) -> MatchResult:
        """Return GRANTED if it matches the graph without jobs and with all nodes up,
        else UNSATISFIABLE or INVALID; books nothing.
        """
        return self._enter(call).matching.satisfy(jobspec)

    # ---- jobs ----------------------------------------------------------------------------------------------

    def job_info(self, jobid: int, call: CallContext = NO_CALL) -> JobInfo:
        """Return the state of a job with its shares; `UnknownJob` if there never was one."""
        state = self._enter(call).state
        job = state.jobs.get(jobid)
        if job is not None:
            return job.info(state.horizon)
        if jobid in state.ended:
            return state.ended[jobid]
        raise UnknownJob(f"job {jobid}: unknown")

    def list_jobs(self, call: CallContext = NO_CALL, with_shares: bool = False) -> tuple[JobInfo, ...]:
        """Return the live jobs by jobid; system allocations and reserved times (modes SYSTEM and ADVANCE)
        have negative ids.
        """
        state = self._enter(call).state
        return tuple(
            state.jobs[jobid].info(state.horizon, with_shares=with_shares) for jobid in sorted(state.jobs)
        )

    def apply(self, changes: Sequence[Change], call: CallContext = NO_CALL) -> AppliedChanges:
        """Make changes, all or none; ``failed_index`` is the index of the one that could not be made.

        ``displaced`` reservations no longer fit, and were dropped. ``excess`` is what was not free, and
        closes its node.
        """
        session = self._enter(call, places=any(isinstance(change, _PLACING) for change in changes))
        instance = session.state.instance
        displaced: list[int] = []
        done = 0

        def work() -> bool:
            nonlocal done
            for change in changes:
                displaced.extend(session.make(change))
                done += 1
            session.system_allocations.settle_excess()
            return True

        try:
            session.state.atomically(work)
        except Refused as refusal:
            return AppliedChanges(False, instance, str(refusal), failed_index=done)
        touched = {name for change in changes for name in nodes_of(change)}
        return AppliedChanges(
            True, instance, "", tuple(sorted(set(displaced))), session.system_allocations.excess_on(touched)
        )

    def stat(self, call: CallContext = NO_CALL, per_node: bool = False) -> Stat:
        """Return sizes and use of the graph."""
        session = self._enter(call)
        return stat(session.state, per_node=per_node)

    # ---- what all calls share ------------------------------------------------------------------------------

    def _open(self) -> _Session:
        if self._session is None:
            raise NotInitialised("there is no graph: call Init first")
        return self._session

    def _enter(self, call: CallContext, *, places: bool = False) -> _Session:
        """Check a call and advance the clock to it; ``places`` if the call places something in time."""
        session = self._open()
        state = session.state
        if call.instance and call.instance != state.instance:
            raise WrongInstance(
                f"instance {call.instance!r:.80} is gone, this is {state.instance}: Init and Restore"
            )
        self._check_epoch(state, call)
        if call.now is not None:
            if state.wall_clock is False:
                raise ClockMixed(
                    "now: the clock of this graph is frozen at 0, "
                    "because a call without now has placed something in it"
                )
            state.advance(call.now)
            state.forget_idle()
        elif places:
            if state.wall_clock:
                raise ClockMixed("now: is needed, because this graph uses the wall clock")
            state.freeze()
        return session

    def _check_epoch(self, state: GraphState, call: CallContext) -> None:
        if call.epoch and call.epoch < state.epoch:
            raise StaleEpoch(f"epoch {call.epoch} is over: {state.epoch} leads now")
        state.epoch = max(state.epoch, call.epoch)
