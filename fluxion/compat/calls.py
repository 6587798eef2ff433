"""flux-sched's calls: match, cancel, info and set_status.

The clock is frozen at 0. `allocate` tries now only and has one kind of failure; `allocate_orelse_reserve`
continues with the change points. Before either, the nodes of the request are compared with a count of the
nodes that are up, which differs from the real number (see `Graph.nodes_up`). A failed match uses up a job id
too, unless its jobspec cannot be read.
"""

from __future__ import annotations

from functools import partial

from fluxqueue.fluxion.compat.requests import CompatInfo, CompatMatch, MatchRequestKind
from fluxqueue.fluxion.errors import Errno, MatchError, UnknownJob, UnknownPath
from fluxqueue.fluxion.graph.jobs import GraphJob, GraphPlacement
from fluxqueue.fluxion.graph.vertices import NODE
from fluxqueue.fluxion.match.jobspec import InvalidJobspec, Jobspec, Resource
from fluxqueue.fluxion.match.matcher import Matcher
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.match.writers import vertex_rows, write_r

__all__ = ["FluxSchedCalls"]


class FluxSchedCalls:
    """Match, cancel, info and set_status on one state."""

    def __init__(self, state: GraphState, matcher: Matcher) -> None:
        self._state = state
        self._matcher = matcher

    def match(self, text: str, request: MatchRequestKind) -> CompatMatch:
        """One match; `MatchError` if it fails."""
        try:
            jobspec = self._matcher.read(text)
            self._matcher.check_types(jobspec)
        except InvalidJobspec as error:
            raise MatchError(Errno.EINVAL, str(error)) from None
        kind = MatchRequestKind
        if request is kind.SATISFIABILITY:
            self._satisfy(jobspec)
            return CompatMatch(0, False, 0, tuple, str)
        books = request in (kind.ALLOCATE, kind.ALLOCATE_ORELSE_RESERVE, kind.ALLOCATE_WITH_SATISFIABILITY)
        later = request in (kind.ALLOCATE_ORELSE_RESERVE, kind.WITHOUT_ALLOCATING_FUTURE)
        jobid = self._state.next_jobid if books else 0
        try:
            at, placement = self._schedule(
                jobspec, later=later, satisfiable=request is kind.ALLOCATE_WITH_SATISFIABILITY
            )
        except MatchError as error:
            if error.errno is not Errno.ENOENT:
                self._state.next_jobid = jobid + 1 if books else self._state.next_jobid
            raise
        if books:
            self._state.next_jobid = jobid + 1
            job = GraphJob(jobid, at, self._state.end_of(at, jobspec.duration_s), placement, reserved=at != 0)
            self._state.book(job)
        self._state.update_weights(placement, booked=books)
        return CompatMatch(
            jobid, books and at != 0, at, partial(vertex_rows, placement), partial(write_r, placement)
        )

    def _schedule(self, jobspec: Jobspec, *, later: bool, satisfiable: bool) -> tuple[int, GraphPlacement]:
        state, matcher = self._state, self._matcher
        if (reason := self._infeasible(jobspec, later=later)) is not None:
            raise MatchError(Errno.ENODEV if satisfiable else Errno.EBUSY, reason)
        placement = matcher.place(jobspec, 0, state.end_of(0, jobspec.duration_s))
        if placement is not None:
            return 0, _holding(placement)
        if later and (reservation := matcher.reserve(jobspec, jobspec.duration_s)).placement is not None:
            return reservation.start, _holding(reservation.placement)
        if (later or satisfiable) and matcher.on_empty(jobspec) is None:
            raise MatchError(Errno.ENODEV, "no allocation possible, even on the emptied graph")
        raise MatchError(Errno.EBUSY, "not enough is free")

    def _infeasible(self, jobspec: Jobspec, *, later: bool) -> str | None:
        """Return why flux-sched's count of nodes rules the request out; None if it does not."""
        wanted = _minimum_nodes(jobspec.resources)
        if wanted == 0:
            return None
        if wanted > self._state.graph.nodes_up:
            return f"wants {wanted} nodes, {self._state.graph.nodes_up} count as up"
        if jobspec.constraint is not None:
            at = self._state.horizon - 1 if later else 0
            fit = sum(
                1
                for node in self._state.graph.nodes
                if node.up and jobspec.constraint.accepts(node) and not node.held(at, at + 1, self._state.now)
            )
            if wanted > fit:
                return f"wants {wanted} nodes, {fit} satisfy the constraint"
        return None

    def _satisfy(self, jobspec: Jobspec) -> None:
        if self._matcher.on_empty(jobspec) is None:
            raise MatchError(Errno.ENODEV, "no allocation possible, even on the emptied graph")

    def cancel(self, jobid: int, *, noent_ok: bool) -> None:
        """End a job; `UnknownJob` if it is unknown and ``noent_ok`` is false."""
        job = self._state.jobs.get(jobid)
        if job is not None:
            self._state.free(job)
        elif not noent_ok:
            raise UnknownJob(f"job {jobid}: unknown, or cancelled already")

    def info(self, jobid: int) -> CompatInfo:
        """Return the state of a job; `UnknownJob` if there never was one."""
        job = self._state.jobs.get(jobid)
        if job is not None:
            return CompatInfo(job.mode.upper(), job.reserved, job.start)
        ended = self._state.ended.get(jobid)
        if ended is None:
            raise UnknownJob(f"job {jobid}: unknown")
        return CompatInfo(ended.mode.upper(), False, ended.at)

    def set_status(self, path: str, *, up: bool) -> None:
        """Mark one vertex up or down, and change the count of up nodes as flux-sched does;
        `UnknownPath` if there is none.
        """
        graph = self._state.graph
        vertex = graph.by_path.get(path)
        if vertex is not None:
            if vertex.up != up:
                vertex.up = up
                self._state.table.refresh_below(vertex)
                below = sum(1 for other in vertex.subtree() if other.type == NODE)
                graph.nodes_up += below if up else -below
        elif (leaf := graph.find_leaf(path)) is not None:
            run, index = leaf
            run.down = run.down & ~(1 << index) if up else run.down | 1 << index
            if run.parent.type == NODE:
                self._state.table.refresh(run.parent)
        else:
            raise UnknownPath(f"vertex {path!r:.200}: no such containment path")
        self._state.releases += 1


def _holding(placement: GraphPlacement) -> GraphPlacement:
    """Refuse a placement that holds nothing exclusively:
    flux-sched finds it and then fails with a meaningless code.
    """
    if not placement.leaves and not any(placement.vertices.values()):
        errno = Errno.ENOENT if placement.shared_leaves else Errno.EBUSY
        raise MatchError(
            errno,
            "nothing that was found for the request is exclusive: ask for a slot, or for something exclusive",
        )
    return placement


def _minimum_nodes(levels: tuple[Resource, ...], times: int = 1) -> int:
    """Return the least number of nodes in a request: sums of products of the minimum counts."""
    total = 0
    for level in levels:
        if level.type == "node":
            total += times * level.count.low
        else:
            total += _minimum_nodes(level.children, times * level.count.low)
    return total
