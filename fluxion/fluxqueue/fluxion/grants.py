"""The extended matching calls: a batch, a reservation at a given time, a question.

A job id given by the caller makes a request repeatable: while it is granted it repeats its answer. A reservation whose time has come
is started on the very vertices it names; if something still holds them, the job is matched anew and its reservation is kept until that
succeeds. A failed request says which of two things it met: not now, or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fluxqueue.fluxion.emission import shares, write_r
from fluxqueue.fluxion.explain import explain
from fluxqueue.fluxion.graph import Vertex
from fluxqueue.fluxion.jobs import Job, Placement
from fluxqueue.fluxion.jobspecs import InvalidJobspec, Jobspec
from fluxqueue.fluxion.matching import Later, Matcher, Restriction
from fluxqueue.fluxion.messages import JobRequest, MatchResult, Shortage, Verdict
from fluxqueue.fluxion.policies import UnknownPolicy, read_policy
from fluxqueue.fluxion.state import State
from fluxqueue.fluxion.windows import Window

__all__ = ["Grants"]

_MAX_REMEMBERED = 10_000


class Grants:
    """Answers `MatchBatch`, `ReserveAt` and `Satisfy`."""

    def __init__(self, state: State, matcher: Matcher) -> None:
        self._state = state
        self._matcher = matcher
        self._matchers: dict[str, Matcher] = {"": matcher, state.policy.name: matcher}
        self._no_fit: dict[tuple[object, ...], MatchResult] = {}
        self._no_fit_at = (-1, -1)

    def match(self, request: JobRequest, *, with_allocation: bool) -> MatchResult:
        """Match one job of a batch."""
        state = self._state
        live = state.jobs.get(request.jobid) if request.jobid else None
        if live is not None and not live.reserved:
            return self._answer(Verdict.GRANTED, live, with_allocation)
        try:
            matcher = self._matcher_of(request.policy)
            jobspec = self._read(request.jobspec, matcher)
            duration_s = jobspec.duration_s if request.duration_s is None else self._override(request.duration_s)
        except (InvalidJobspec, UnknownPolicy) as error:
            return MatchResult(Verdict.INVALID, request.jobid, reason=str(error))
        if live is not None and live.start > state.now:
            if not request.improve:
                return self._answer(Verdict.RESERVED, live, with_allocation)
            return self._better(live, jobspec, duration_s, request, matcher, with_allocation)
        if live is not None:
            return self._start(live, jobspec, duration_s, request, matcher, with_allocation)
        return self._fresh(jobspec, duration_s, request, matcher, with_allocation)

    def _matcher_of(self, policy: str) -> Matcher:
        """The matcher of a policy; `UnknownPolicy` if there is none."""
        found = self._matchers.get(policy)
        if found is None:
            found = self._matchers[policy] = Matcher(self._state, policy=read_policy(policy))
        return found

    def _read(self, text: str, matcher: Matcher) -> Jobspec:
        jobspec = self._matcher.read(text)
        if not jobspec.takes_something and not matcher.policy.node_exclusive:
            raise InvalidJobspec("resources: nothing is exclusive: ask for a slot, or set exclusive: true")
        return jobspec

    def _override(self, duration_s: int) -> int:
        if duration_s < 0:
            raise InvalidJobspec(f"duration: {duration_s} is negative")
        return duration_s

    def _fresh(self, jobspec: Jobspec, duration_s: int, request: JobRequest, matcher: Matcher, with_allocation: bool) -> MatchResult:
        state = self._state
        restriction = Restriction(self._vertices(request.exclude)) if request.exclude else Restriction()
        end = state.end_of(state.now, duration_s)
        key = (jobspec, request.exclude, end - state.now, request.reserve, request.explain, matcher.policy.name)
        if self._no_fit_at != (state.releases, state.topology):
            self._no_fit.clear()
            self._no_fit_at = (state.releases, state.topology)
        known = self._no_fit.get(key)
        if known is not None:
            return MatchResult(known.verdict, request.jobid, reason=known.reason, shortages=known.shortages)
        placement = matcher.place(jobspec, state.now, end, restriction)
        if placement is not None:
            return self._book(Verdict.GRANTED, request.jobid, state.now, end, placement, with_allocation)
        if request.reserve and (later := matcher.reserve(jobspec, duration_s, restriction)).placement is not None:
            return self._book_later(request, later, later.placement, duration_s, with_allocation)
        result = self._refuse(jobspec, end, restriction, request.jobid, matcher, explained=request.explain)
        if len(self._no_fit) >= _MAX_REMEMBERED:
            self._no_fit.clear()
        self._no_fit[key] = result
        return result

    def _start(
        self, job: Job, jobspec: Jobspec, duration_s: int, request: JobRequest, matcher: Matcher, with_allocation: bool
    ) -> MatchResult:
        """Let a reservation whose time has come become an allocation."""
        state = self._state
        end = state.end_of(state.now, duration_s)
        result: list[MatchResult] = []

        def restart() -> bool:
            state.free(job)
            if self._still_free(job, end):
                result.append(self._book(Verdict.GRANTED, job.jobid, state.now, end, job.placement, with_allocation))
                return True
            result.append(self._fresh(jobspec, duration_s, request, matcher, with_allocation))
            return result[-1].verdict in (Verdict.GRANTED, Verdict.RESERVED)

        state.atomically(restart)
        return result[-1]

    def _better(
        self, job: Job, jobspec: Jobspec, duration_s: int, request: JobRequest, matcher: Matcher, with_allocation: bool
    ) -> MatchResult:
        """Give a reservation up for an earlier start, if there is one."""
        state = self._state
        alike = state.end_of(job.start, duration_s) == job.end and not request.exclude
        if not alike or matcher.may_be_bettered(job, jobspec, duration_s):
            restriction = Restriction(self._vertices(request.exclude)) if request.exclude else Restriction()
            end = state.end_of(state.now, duration_s)
            # Out of the graph only: derived structures are told if it is to go for good.
            job.release()
            try:
                now = matcher.place(jobspec, state.now, end, restriction)
                later = Later() if now is not None else matcher.reserve(jobspec, duration_s, restriction, instead=job)
            finally:
                job.book()
            if now is not None:
                state.free(job)
                return self._book(Verdict.GRANTED, job.jobid, state.now, end, now, with_allocation)
            if later.placement is not None:
                state.free(job)
                return self._book_later(request, later, later.placement, duration_s, with_allocation)
            if alike:
                self._know(job, request, later)
        return self._answer(Verdict.RESERVED, job, with_allocation)

    def _book_later(self, request: JobRequest, later: Later, placement: Placement, duration_s: int, with_allocation: bool) -> MatchResult:
        """Make a reservation."""
        end = self._state.end_of(later.start, duration_s)
        answer = self._book(Verdict.RESERVED, request.jobid, later.start, end, placement, with_allocation)
        self._know(self._state.jobs[answer.jobid], request, later)
        return answer

    def _know(self, job: Job, request: JobRequest, later: Later) -> None:
        """Remember with a reservation what there was at earlier moments."""
        if not request.exclude and later.shortfall is not None:
            job.shortfall = replace(later.shortfall, tick=self._state.table.openings.settle())

    def _still_free(self, job: Job, end: int) -> bool:
        window = Window(self._state.now, end, self._state.now)
        for vertex, exclusive in job.placement.vertices.items():
            if not window.admits(vertex, exclusive):
                return False
        return all(not mask & ~window.free(run, exclusive=True) for run, mask in job.placement.leaves.items())

    def _book(self, verdict: Verdict, jobid: int, start: int, end: int, placement: Placement, with_allocation: bool) -> MatchResult:
        state = self._state
        job = Job(jobid or state.pick_jobid(), start, end, placement, reserved=verdict is Verdict.RESERVED)
        job.shares = shares(placement)
        state.book(job)
        state.weigh(placement)
        return self._answer(verdict, job, with_allocation)

    def _answer(self, verdict: Verdict, job: Job, with_allocation: bool) -> MatchResult:
        allocation = write_r(job.placement) if with_allocation else ""
        return MatchResult(verdict, job.jobid, job.start, job.end, job.shares, allocation=allocation)

    def _refuse(
        self, jobspec: Jobspec, end: int, restriction: Restriction, jobid: int, matcher: Matcher, *, explained: bool
    ) -> MatchResult:
        if not explained:
            return MatchResult(Verdict.BUSY, jobid)
        state = self._state
        if matcher.on_empty(jobspec) is None:
            reason, shortages = self._why_never(jobspec, Restriction())
            return MatchResult(Verdict.UNSATISFIABLE, jobid, reason=reason, shortages=shortages)
        window = Window(state.now, end, state.now, constraint=jobspec.constraint, exclude=restriction.exclude, only=restriction.only)
        reason, shortages = explain(state.graph, state.table, jobspec, window)
        return MatchResult(Verdict.BUSY, jobid, reason=reason, shortages=shortages)

    def _why_never(self, jobspec: Jobspec, restriction: Restriction) -> tuple[str, tuple[Shortage, ...]]:
        window = Window(0, 1, empty=True, constraint=jobspec.constraint, exclude=restriction.exclude, only=restriction.only)
        return explain(self._state.graph, self._state.table, jobspec, window)

    def reserve_at(self, jobid: int, text: str, start: int, nodes: Sequence[str], policy: str = "") -> MatchResult:
        """Reserve from a given moment on."""
        state = self._state
        live = state.jobs.get(jobid) if jobid else None
        if live is not None:
            return self._answer(Verdict.RESERVED if live.reserved else Verdict.GRANTED, live, with_allocation=False)
        try:
            matcher = self._matcher_of(policy)
            jobspec = self._read(text, matcher)
        except (InvalidJobspec, UnknownPolicy) as error:
            return MatchResult(Verdict.INVALID, jobid, reason=str(error))
        start = max(start, state.now)
        end = state.end_of(start, jobspec.duration_s)
        restriction = Restriction(only=self._vertices(nodes)) if nodes else Restriction()
        placement = matcher.place(jobspec, start, end, restriction)
        if placement is not None:
            return self._book(Verdict.RESERVED, jobid, start, end, placement, with_allocation=False)
        if matcher.on_empty(jobspec, restriction) is None:
            reason, shortages = self._why_never(jobspec, restriction)
            return MatchResult(Verdict.UNSATISFIABLE, jobid, reason=reason, shortages=shortages)
        window = Window(start, end, state.now, constraint=jobspec.constraint, only=restriction.only)
        reason, shortages = explain(state.graph, state.table, jobspec, window)
        return MatchResult(Verdict.BUSY, jobid, reason=reason, shortages=shortages)

    def satisfy(self, text: str) -> MatchResult:
        """Would it fit the empty graph?"""
        try:
            jobspec = self._read(text, self._matcher)
        except InvalidJobspec as error:
            return MatchResult(Verdict.INVALID, reason=str(error))
        placement = self._matcher.on_empty(jobspec)
        if placement is not None:
            return MatchResult(Verdict.GRANTED, shares=shares(placement))
        reason, shortages = self._why_never(jobspec, Restriction())
        return MatchResult(Verdict.UNSATISFIABLE, reason=reason, shortages=shortages)

    def _vertices(self, names: Sequence[str]) -> frozenset[Vertex]:
        by_name = self._state.graph.by_name
        return frozenset(by_name[name] for name in names if name in by_name)
