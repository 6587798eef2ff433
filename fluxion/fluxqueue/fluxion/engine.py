"""The engine: one resource graph, its jobs and its clock, behind one object that one thread owns.

Everything a client can ask is a method here. The methods check what all calls share (is there a graph, is the caller's leader still
the leader, does it mean this instance, on which clock does it live) and hand on to the modules that know: `matching` finds places,
`jobs` books and frees them, `topology` changes nodes. Nothing here is thread safe and nothing needs to be: the server gives the
engine to a single thread and puts requests in a row before it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence

from fluxqueue.fluxion.bookings import Bookings, Refused
from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    Change,
    ExtendJob,
    RemoveNodes,
    ResizeSystem,
    RestoreJobs,
    SetNodeStatus,
    SetProperties,
    nodes_of,
)
from fluxqueue.fluxion.compat import CompatInfo, CompatMatch, MatchRequestKind
from fluxqueue.fluxion.errors import ClockMixed, InitError, NotInitialised, StaleEpoch, UnknownJob, WrongInstance
from fluxqueue.fluxion.foreign import Foreign
from fluxqueue.fluxion.grants import Grants
from fluxqueue.fluxion.jgf import InvalidGraph, read_jgf
from fluxqueue.fluxion.matching import Matcher
from fluxqueue.fluxion.messages import (
    Applied,
    Call,
    JobInfo,
    JobRequest,
    MatchBatch,
    MatchResult,
    NodeShare,
    NodeSpec,
    RestoredJob,
    Stat,
    Verdict,
)
from fluxqueue.fluxion.nodespecs import graph_of_nodes
from fluxqueue.fluxion.original import OriginalCalls
from fluxqueue.fluxion.policies import UnknownPolicy, read_policy
from fluxqueue.fluxion.state import State
from fluxqueue.fluxion.statistics import stat
from fluxqueue.fluxion.topology import Topology
from fluxqueue.fluxion.weights import InvalidPruneFilters, Weights, read_prune_filters

__all__ = ["Engine"]

NO_CALL = Call()


class _Session:
    """One instance: its state and the modules that work on it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.matcher = Matcher(state)
        self.original = OriginalCalls(state, Matcher(state, astray=True))
        self.grants = Grants(state, self.matcher)
        self.bookings = Bookings(state)
        self.foreign = Foreign(state)
        self.topology = Topology(state, self.bookings)

    def make(self, change: Change) -> tuple[int, ...]:
        """Make one change; returns dropped reservations."""
        match change:
            case CancelJobs(jobids):
                self.bookings.cancel(jobids)
            case CancelPart(jobid, shares, paths):
                self.bookings.cancel_part(jobid, shares, paths)
            case RestoreJobs(jobs):
                self.bookings.restore(jobs)
            case ResizeSystem(shares):
                return self.foreign.resize(shares)
            case ExtendJob(jobid, end):
                return self.bookings.extend(jobid, end)
            case SetNodeStatus(up):
                self.topology.set_status(up)
            case SetProperties(nodes):
                self.topology.set_properties(nodes)
            case AddNodes(specs):
                return self.topology.add(specs)
            case RemoveNodes(names):
                return self.topology.remove(names)
        return ()


class Engine:
    """A resource graph with jobs on it. Owned by one thread.

    Every method but `init` raises `NotInitialised` before the first `init`. Methods that take a `Call` raise `StaleEpoch`,
    `WrongInstance` or `ClockMixed` if the call must not be served; a call without ``now`` that does not place anything in time
    (info, list, cancel, stat, status) is served on either clock.
    """

    def __init__(self) -> None:
        self._session: _Session | None = None

    # ---- life ------------------------------------------------------------------------------------------------------------------

    @property
    def instance(self) -> str:
        """Changes with every `init`; empty before the first."""
        return self._session.state.instance if self._session is not None else ""

    def init(
        self,
        policy: str,
        *,
        jgf: str | bytes | None = None,
        nodes: Sequence[NodeSpec] | None = None,
        call: Call = NO_CALL,
        prune_filters: str | None = None,
    ) -> str:
        """Load a graph and forget the one before, with all its jobs.

        Parameters
        ----------
        policy
            ``lonode``, ``first``, ...; empty means ``first``, as in the original.
        jgf, nodes
            The graph: JGF text, or node specifications. Exactly one of them.
        prune_filters
            As the original's option; ``ALL:core,ALL:node`` if None. It decides exploration weights under policy first.

        Returns
        -------
        str
            The new instance id.

        Raises
        ------
        InitError
            Unknown policy or unreadable graph; the graph before, if any, stays.
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
        state = State(uuid.uuid4().hex, graph, chosen, epoch=call.epoch)
        if chosen.stop_on_first:
            state.weights = Weights(state.table, prune_types)
        if call.now is not None:
            state.advance(call.now)
        self._session = _Session(state)
        return state.instance

    # ---- as in the original ----------------------------------------------------------------------------------------------------

    def match(self, jobspec: str, request: MatchRequestKind) -> CompatMatch:
        """Match as the original does, with its accidents. Raises `MatchError` (errno and reason) on failure, `ClockMixed` on a
        graph that lives on the wall clock.
        """
        session = self._open()
        if session.state.wall_clock:
            raise ClockMixed("match: this graph lives on the wall clock, the original's calls know none: use MatchBatch")
        session.state.freeze()
        return session.original.match(jobspec, request)

    def cancel(self, jobid: int, noent_ok: bool = True) -> None:
        """Free a job. Raises `UnknownJob` if it is unknown or cancelled already and ``noent_ok`` is false."""
        session = self._open()
        session.original.cancel(jobid, noent_ok=noent_ok)
        session.foreign.settle()

    def info(self, jobid: int) -> CompatInfo:
        """How a job stands; `UnknownJob` if it never was."""
        return self._open().original.info(jobid)

    def set_status(self, path: str, up: bool) -> None:
        """Mark the vertex of this containment path up or down; `UnknownPath` if there is none."""
        self._open().original.set_status(path, up=up)

    # ---- matching --------------------------------------------------------------------------------------------------------------

    def match_batch(
        self, jobs: Sequence[JobRequest], call: Call = NO_CALL, *, with_allocation: bool = False, stop_at_first_failure: bool = False
    ) -> MatchBatch:
        """Match jobs in order; one answer each, fewer after ``stop_at_first_failure``.

        A jobid that is granted already repeats its answer, a reserved one starts (atomically moves to now) once its start has come,
        any other is matched anew.
        """
        session = self._enter(call, places=True)
        began = time.perf_counter()
        results: list[MatchResult] = []
        for request in jobs:
            result = session.grants.match(request, with_allocation=with_allocation)
            results.append(result)
            if stop_at_first_failure and result.verdict is not Verdict.GRANTED:
                break
        return MatchBatch(tuple(results), session.state.instance, time.perf_counter() - began)

    def reserve_at(
        self, jobid: int, jobspec: str, start: int, nodes: Sequence[str] = (), call: Call = NO_CALL, policy: str = ""
    ) -> MatchResult:
        """Reserve from ``start`` on, on these nodes only (any if empty), by a policy (the graph's if empty).

        RESERVED, BUSY, UNSATISFIABLE or INVALID.
        """
        return self._enter(call, places=True).grants.reserve_at(jobid, jobspec, start, nodes, policy)

    def satisfy(self, jobspec: str, call: Call = NO_CALL) -> MatchResult:
        """Would this match the graph emptied with all nodes up? GRANTED (nothing is booked), UNSATISFIABLE or INVALID."""
        return self._enter(call).grants.satisfy(jobspec)

    # ---- jobs ------------------------------------------------------------------------------------------------------------------

    def job_info(self, jobid: int, call: Call = NO_CALL) -> JobInfo:
        """How a job stands, with its shares; `UnknownJob` if it never was."""
        state = self._enter(call).state
        job = state.jobs.get(jobid)
        if job is not None:
            return job.info(state.horizon)
        if jobid in state.ended:
            return state.ended[jobid]
        raise UnknownJob(f"job {jobid}: unknown")

    def list_jobs(self, call: Call = NO_CALL, with_shares: bool = False) -> tuple[JobInfo, ...]:
        """Live jobs by jobid, system allocations (negative ids, mode SYSTEM) included."""
        state = self._enter(call).state
        return tuple(state.jobs[jobid].info(state.horizon, with_shares=with_shares) for jobid in sorted(state.jobs))

    def cancel_many(self, jobids: Iterable[int], call: Call = NO_CALL) -> tuple[list[int], list[int]]:
        """Free jobs; returns (cancelled, unknown or cancelled before)."""
        session = self._enter(call)
        answer = session.bookings.cancel(list(jobids))
        session.foreign.settle()
        return answer

    def partial_cancel(self, jobid: int, shares: Sequence[NodeShare], paths: Sequence[str] = (), call: Call = NO_CALL) -> Applied:
        """Give back slots (by label) or amounts on nodes, or vertices by path; all or nothing. The job ends with its last vertex."""
        return self._change(self._enter(call), CancelPart(jobid, tuple(shares), tuple(paths)))

    def restore(self, jobs: Sequence[RestoredJob], call: Call = NO_CALL) -> Applied:
        """Put back known allocations; all or none. The same jobid with the same shares again is no change."""
        return self._change(self._enter(call, places=True), RestoreJobs(tuple(jobs)))

    def resize(self, shares: Sequence[NodeShare], call: Call = NO_CALL) -> Applied:
        """Set what runs on nodes without us (``amounts``). ``excess``: what was not free; those nodes are closed meanwhile."""
        return self._change(self._enter(call, places=True), ResizeSystem(tuple(shares)))

    def extend(self, jobid: int, end: int, call: Call = NO_CALL) -> Applied:
        """Move a job's end. ``displaced``: reservations that no longer fit and were dropped."""
        return self._change(self._enter(call, places=True), ExtendJob(jobid, end))

    def apply(self, changes: Sequence[Change], call: Call = NO_CALL) -> Applied:
        """Make several changes, all or none; ``failed_index`` tells which could not be made."""
        placing = (RestoreJobs, ResizeSystem, ExtendJob)
        return self._change(self._enter(call, places=any(isinstance(change, placing) for change in changes)), *changes)

    # ---- the graph -------------------------------------------------------------------------------------------------------------

    def add_nodes(self, nodes: Sequence[NodeSpec], call: Call = NO_CALL) -> Applied:
        """Add nodes; a known name with another shape is resized, jobs on it stay."""
        return self._change(self._enter(call), AddNodes(tuple(nodes)))

    def remove_nodes(self, nodes: Sequence[str], call: Call = NO_CALL) -> Applied:
        """Take nodes away; jobs on them keep their shares until cancelled."""
        return self._change(self._enter(call), RemoveNodes(tuple(nodes)))

    def set_node_status(self, up: Mapping[str, bool], call: Call = NO_CALL) -> Applied:
        """Mark nodes (by name) or vertices (by containment path) up or down."""
        return self._change(self._enter(call), SetNodeStatus(up))

    def set_properties(self, properties: Mapping[str, Mapping[str, str]], call: Call = NO_CALL) -> Applied:
        """Replace all properties of these nodes."""
        return self._change(self._enter(call), SetProperties(properties))

    def stat(self, call: Call = NO_CALL, per_node: bool = False) -> Stat:
        """The graph in numbers."""
        session = self._enter(call)
        return stat(session.state, per_node=per_node)

    # ---- what all calls share --------------------------------------------------------------------------------------------------

    def _open(self) -> _Session:
        if self._session is None:
            raise NotInitialised("there is no graph: call Init first")
        return self._session

    def _enter(self, call: Call, *, places: bool = False) -> _Session:
        """Check a call and set the clock by it; ``places`` if it puts something in time."""
        session = self._open()
        state = session.state
        if call.instance and call.instance != state.instance:
            raise WrongInstance(f"instance {call.instance!r:.80} is gone, this is {state.instance}: Init and Restore")
        self._check_epoch(state, call)
        if call.now is not None:
            if state.wall_clock is False:
                raise ClockMixed("now: this graph's clock stands at 0, because a call without now has placed something in it")
            state.advance(call.now)
        elif places:
            if state.wall_clock:
                raise ClockMixed("now: is needed, this graph lives on the wall clock")
            state.freeze()
        return session

    def _check_epoch(self, state: State, call: Call) -> None:
        if call.epoch and call.epoch < state.epoch:
            raise StaleEpoch(f"epoch {call.epoch} is over: {state.epoch} leads now")
        state.epoch = max(state.epoch, call.epoch)

    def _change(self, session: _Session, *changes: Change) -> Applied:
        """Make changes, all or none."""
        instance = session.state.instance
        displaced: list[int] = []
        done = 0

        def work() -> bool:
            nonlocal done
            for change in changes:
                displaced.extend(session.make(change))
                done += 1
            session.foreign.settle()
            return True

        try:
            session.state.atomically(work)
        except Refused as refusal:
            return Applied(False, instance, str(refusal), failed_index=done)
        touched = {name for change in changes for name in nodes_of(change)}
        return Applied(True, instance, "", tuple(sorted(set(displaced))), session.foreign.owed(touched))
