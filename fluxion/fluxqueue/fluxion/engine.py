"""The engine: one resource graph, its jobs and its clock, behind one object that one thread owns.

Everything a client can ask is a method here. The methods check what all calls share (is there a graph, is the caller's leader still
the leader, does it mean this instance, on which clock does it live) and hand on to the modules that know: `matching` finds places,
`jobs` books and frees them, `topology` changes nodes. Nothing here is thread safe and nothing needs to be: the server gives the
engine to a single thread and puts requests in a row before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluxqueue.fluxion.changes import Change
from fluxqueue.fluxion.compat import CompatInfo, CompatMatch, MatchRequestKind
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
)

__all__ = ["Engine"]


class Engine:
    """A resource graph with jobs on it. Owned by one thread.

    Every method but `init` raises `NotInitialised` before the first `init`. Methods that take a `Call` raise `StaleEpoch`,
    `WrongInstance` or `ClockMixed` if the call must not be served; a call without ``now`` that does not place anything in time
    (info, list, cancel, stat, status) is served on either clock.
    """

    def __init__(self) -> None: ...

    # ---- life ------------------------------------------------------------------------------------------------------------------

    @property
    def instance(self) -> str:
        """Changes with every `init`; empty before the first."""
        raise NotImplementedError

    def init(
        self,
        policy: str,
        *,
        jgf: str | bytes | None = None,
        nodes: Sequence[NodeSpec] | None = None,
        call: Call = Call(),
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
        raise NotImplementedError

    # ---- as in the original ----------------------------------------------------------------------------------------------------

    def match(self, jobspec: str, request: MatchRequestKind) -> CompatMatch:
        """Match as the original does, with its accidents. Raises `MatchError` (errno and reason) on failure, `ClockMixed` on a
        graph that lives on the wall clock."""
        raise NotImplementedError

    def cancel(self, jobid: int, noent_ok: bool = True) -> None:
        """Free a job. Raises `UnknownJob` if it is unknown or cancelled already and ``noent_ok`` is false."""
        raise NotImplementedError

    def info(self, jobid: int) -> CompatInfo:
        """How a job stands; `UnknownJob` if it never was."""
        raise NotImplementedError

    def set_status(self, path: str, up: bool) -> None:
        """Mark the vertex of this containment path up or down; `UnknownPath` if there is none."""
        raise NotImplementedError

    # ---- matching --------------------------------------------------------------------------------------------------------------

    def match_batch(
        self, jobs: Sequence[JobRequest], call: Call = Call(), *, with_allocation: bool = False, stop_at_first_failure: bool = False
    ) -> MatchBatch:
        """Match jobs in order; one answer each, fewer after ``stop_at_first_failure``.

        A jobid that is granted already repeats its answer, a reserved one starts (atomically moves to now) once its start has come,
        any other is matched anew.
        """
        raise NotImplementedError

    def reserve_at(self, jobid: int, jobspec: str, start: int, nodes: Sequence[str] = (), call: Call = Call()) -> MatchResult:
        """Reserve from ``start`` on, on these nodes only (any if empty). RESERVED, BUSY, UNSATISFIABLE or INVALID."""
        raise NotImplementedError

    def satisfy(self, jobspec: str, call: Call = Call()) -> MatchResult:
        """Would this match the graph emptied with all nodes up? GRANTED (nothing is booked), UNSATISFIABLE or INVALID."""
        raise NotImplementedError

    # ---- jobs ------------------------------------------------------------------------------------------------------------------

    def job_info(self, jobid: int, call: Call = Call()) -> JobInfo:
        """How a job stands, with its shares; `UnknownJob` if it never was."""
        raise NotImplementedError

    def list_jobs(self, call: Call = Call(), with_shares: bool = False) -> tuple[JobInfo, ...]:
        """Live jobs by jobid, system allocations (negative ids, mode SYSTEM) included."""
        raise NotImplementedError

    def cancel_many(self, jobids: Iterable[int], call: Call = Call()) -> tuple[list[int], list[int]]:
        """Free jobs; returns (cancelled, unknown or cancelled before)."""
        raise NotImplementedError

    def partial_cancel(self, jobid: int, shares: Sequence[NodeShare], paths: Sequence[str] = (), call: Call = Call()) -> Applied:
        """Give back slots (by label) or amounts on nodes, or vertices by path; all or nothing. The job ends with its last vertex."""
        raise NotImplementedError

    def restore(self, jobs: Sequence[RestoredJob], call: Call = Call()) -> Applied:
        """Put back known allocations; all or none. The same jobid with the same shares again is no change."""
        raise NotImplementedError

    def resize(self, shares: Sequence[NodeShare], call: Call = Call()) -> Applied:
        """Set what runs on nodes without us (``amounts``). ``excess``: what was not free; those nodes are closed meanwhile."""
        raise NotImplementedError

    def extend(self, jobid: int, end: int, call: Call = Call()) -> Applied:
        """Move a job's end. ``displaced``: reservations that no longer fit and were dropped."""
        raise NotImplementedError

    def apply(self, changes: Sequence[Change], call: Call = Call()) -> Applied:
        """Make several changes, all or none; ``failed_index`` tells which could not be made."""
        raise NotImplementedError

    # ---- the graph -------------------------------------------------------------------------------------------------------------

    def add_nodes(self, nodes: Sequence[NodeSpec], call: Call = Call()) -> Applied:
        """Add nodes; a known name with another shape is resized, jobs on it stay."""
        raise NotImplementedError

    def remove_nodes(self, nodes: Sequence[str], call: Call = Call()) -> Applied:
        """Take nodes away; jobs on them keep their shares until cancelled."""
        raise NotImplementedError

    def set_node_status(self, up: Mapping[str, bool], call: Call = Call()) -> Applied:
        """Mark nodes (by name) or vertices (by containment path) up or down."""
        raise NotImplementedError

    def set_properties(self, properties: Mapping[str, Mapping[str, str]], call: Call = Call()) -> Applied:
        """Replace all properties of these nodes."""
        raise NotImplementedError

    def stat(self, call: Call = Call(), per_node: bool = False) -> Stat:
        """The graph in numbers."""
        raise NotImplementedError
