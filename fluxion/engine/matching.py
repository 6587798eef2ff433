"""The extended matching calls: MatchBatch, ReserveAt and Satisfy.

A job id of the caller's makes a request repeatable: a granted job repeats its answer. A reservation whose
start has come becomes an allocation of the same vertices. If something still holds them, the job is matched
again, and its reservation is kept until that succeeds. A failed request tells whether it cannot match now
(BUSY) or never (UNSATISFIABLE).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from fluxqueue.fluxion.engine.asked import Asked
from fluxqueue.fluxion.engine.reserved_times import (
    anywhere,
    in_the_way,
    not_begun,
    obstacle,
    refusal_inside,
    rooms,
    utc,
)
from fluxqueue.fluxion.graph.constraints import CONSTRAINED_TYPES
from fluxqueue.fluxion.graph.jobs import GraphJob, GraphPlacement
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.jobspec import InvalidJobspec, Jobspec
from fluxqueue.fluxion.match.matcher import LaterPlacement, Matcher, Restriction
from fluxqueue.fluxion.match.molding import Molded, Molder
from fluxqueue.fluxion.match.policies import UnknownPolicy, read_policy
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.match.windows import Window
from fluxqueue.fluxion.match.writers import node_shares, write_r
from fluxqueue.fluxion.messages import JobMatchRequest, MatchResult, MatchVerdict, Shortage

__all__ = ["JobMatching"]

_MAX_REFUSALS = 256


class JobMatching:
    """Answers `MatchBatch`, `ReserveAt` and `Satisfy`."""

    def __init__(self, state: GraphState, matcher: Matcher) -> None:
        self._state = state
        self._matcher = matcher
        self._matchers: dict[str, Matcher] = {"": matcher, state.policy.name: matcher}
        self._molder = Molder()
        self._no_fit: WeakKeyDictionary[Jobspec, dict[tuple[object, ...], MatchResult]] = WeakKeyDictionary()
        self._no_fit_at = (-1, -1)

    def match(self, request: JobMatchRequest, *, with_allocation: bool) -> MatchResult:
        """Match one job of a batch."""
        state = self._state
        live = state.jobs.get(request.jobid) if request.jobid else None
        if live is not None and not live.reserved:
            return self._answer(MatchVerdict.GRANTED, live, with_allocation)
        try:
            matcher = self._matcher_of(request.policy)
            jobspec = self._read(request.jobspec, matcher)
            duration_s = (
                jobspec.duration_s if request.duration_s is None else self._override(request.duration_s)
            )
        except (InvalidJobspec, UnknownPolicy) as error:
            return MatchResult(MatchVerdict.INVALID, request.jobid, reason=str(error))
        asked = Asked(request, jobspec, duration_s, matcher, with_allocation)
        if live is not None and live.start > state.now:
            if not request.improve:
                return self._answer(MatchVerdict.RESERVED, live, with_allocation)
            return self._improve(live, asked)
        return self._match_new(asked) if live is None else self._start(live, asked)

    def _matcher_of(self, policy: str) -> Matcher:
        """Return the matcher of a policy; `UnknownPolicy` if there is none."""
        matcher = self._matchers.get(policy)
        if matcher is None:
            matcher = self._matchers[policy] = Matcher(self._state, policy=read_policy(policy))
        return matcher

    def _read(self, text: str, matcher: Matcher) -> Jobspec:
        jobspec = self._matcher.read(text)
        if not jobspec.takes_something and not matcher.policy.node_exclusive:
            raise InvalidJobspec("resources: nothing is exclusive: ask for a slot, or set exclusive: true")
        return jobspec

    def _override(self, duration_s: int) -> int:
        if duration_s < 0:
            raise InvalidJobspec(f"duration: {duration_s} is negative")
        return duration_s

    def _match_new(self, asked: Asked) -> MatchResult:
        state, request = self._state, asked.request
        end = state.end_of(state.now, asked.duration_s)
        key = (end - state.now, *asked.key(state.now))
        if self._no_fit_at != (state.releases, state.topology):
            self._no_fit.clear()
            self._no_fit_at = (state.releases, state.topology)
        refused = self._no_fit.setdefault(asked.jobspec, {})
        known = refused.get(key)
        if known is not None:
            return replace(known, jobid=request.jobid)
        placement, later = self._search(asked)
        if placement is not None:
            return self._grant(asked, placement, end)
        if (molded := self._mold(asked, later)) is not None:
            return self._book_molded(asked, molded)
        if later.placement is not None:
            blocked_by, reason = self._blocked(asked, end)
            return replace(self._book_later(asked, later), reason=reason, blocked_by=blocked_by)
        result = self._refuse(asked)
        if result.verdict is MatchVerdict.BUSY and result.reason and later.tried_until:
            ahead = f"its start was not searched further ahead than {utc(later.tried_until)}"
            result = replace(result, reason=f"{result.reason}; {ahead}")
        if len(refused) >= _MAX_REFUSALS:
            refused.clear()
        refused[key] = result
        return result

    def _search(
        self, asked: Asked, replaced: GraphJob | None = None
    ) -> tuple[GraphPlacement | None, LaterPlacement]:
        """Return a placement that begins now; else, if reservations are wanted, the earliest later one.
        Of flavors, the first counts that has it.
        """
        if not asked.jobspec.flavors:
            return self._search_nodes(asked, replaced)
        state, request, matcher = self._state, asked.request, asked.matcher
        room, end = Restriction(self._vertices(request.exclude)), state.end_of(state.now, asked.duration_s)
        for each in asked.in_open_flavors(state.now):
            if (placement := matcher.place(each.jobspec, state.now, end, room)) is not None:
                return placement, LaterPlacement()
        wanted = request.reserve or replaced is not None
        return None, self._earliest_of_flavors(asked, room, replaced) if wanted else LaterPlacement()

    def _earliest_of_flavors(
        self, asked: Asked, room: Restriction, replaced: GraphJob | None = None
    ) -> LaterPlacement:
        """Return the earliest later placement in any flavor, and of several the first.

        A flavor that the job may use later may be free then, so that time is tried too.
        """
        state, best = self._state, LaterPlacement()
        until = state.horizon if replaced is None else replaced.start
        for each in asked.in_flavors():
            at = each.request.not_before
            if at >= (best.start if best.placement is not None else until):
                continue
            later = LaterPlacement()
            if at > state.now:
                end = state.end_of(at, asked.duration_s)
                later = LaterPlacement(at, asked.matcher.place(each.jobspec, at, end, room))
            if later.placement is None:
                later = self._reserve(each, room, replaced)
            earlier = best.placement is None or later.start < best.start
            if later.placement is not None and earlier:
                best = LaterPlacement(later.start, later.placement)
            elif best.placement is None and later.tried_until:
                best = LaterPlacement(tried_until=later.tried_until)
        return best

    def _reserve(self, asked: Asked, room: Restriction, replaced: GraphJob | None) -> LaterPlacement:
        return asked.matcher.reserve(
            asked.jobspec,
            asked.duration_s,
            room,
            replaced,
            latest_nodes=asked.request.latest_nodes,
            not_before=asked.request.not_before,
        )

    def _search_nodes(
        self, asked: Asked, replaced: GraphJob | None
    ) -> tuple[GraphPlacement | None, LaterPlacement]:
        state, later, request, matcher = self._state, LaterPlacement(), asked.request, asked.matcher
        end = state.end_of(state.now, asked.duration_s)
        for room in rooms(state, asked.jobspec, self._vertices(request.exclude)):
            if (
                request.not_before <= state.now
                and (placement := matcher.place(asked.jobspec, state.now, end, room)) is not None
            ):
                return placement, later
            if request.reserve or replaced is not None:
                later = self._reserve(asked, room, replaced)
                if later.placement is not None or later.tried_until:
                    break
        return None, later

    def _mold(self, asked: Asked, later: LaterPlacement, start: int = 0) -> Molded | None:
        """Return a start with fewer slots that ends sooner than the job would if it waited for all; None if
        there is none.

        ``start`` is that of a reservation that the job has, unless ``later`` is earlier.
        """
        state, jobspec, duration_s = self._state, asked.jobspec, asked.duration_s
        request, matcher, least = asked.request, asked.matcher, asked.request.min_slots
        if not 0 < least < self._molder.size(jobspec) or not duration_s:
            return None
        choices = asked.in_open_flavors(state.now)
        for each, room in (
            (each, room)
            for each in choices
            for room in rooms(state, jobspec, self._vertices(request.exclude))
        ):

            def place(wanted: Jobspec, length: int, room: Restriction = room) -> GraphPlacement | None:
                return matcher.place(wanted, state.now, state.end_of(state.now, length), room)

            molded = self._molder.start(each.jobspec, least, duration_s, place)
            if molded is None:
                continue
            if later.placement is None and not start and not request.reserve:
                later = (
                    self._earliest_of_flavors(asked, room)
                    if jobspec.flavors
                    else matcher.reserve(jobspec, duration_s, room)
                )
            start = later.start if later.placement is not None else start
            if not start or state.now + molded.duration_s < start + duration_s:
                return molded
        return None

    def _book_molded(self, asked: Asked, molded: Molded) -> MatchResult:
        return self._grant(asked, molded.placement, self._state.end_of(self._state.now, molded.duration_s))

    def _grant(self, asked: Asked, placement: GraphPlacement, end: int) -> MatchResult:
        verdict, jobid = MatchVerdict.GRANTED, asked.request.jobid
        return self._book(verdict, jobid, self._state.now, end, placement, asked.with_allocation)

    def _blocked(self, asked: Asked, end: int) -> tuple[str, str]:
        """Return which advance reservation alone keeps a request from starting now, and that in a sentence;
        empty if none does.
        """
        request, jobspec = asked.request, asked.jobspec
        if not request.explain or not self._state.reserved_times:
            return "", ""
        if jobspec.flavors:
            found = (self._blocked(each, end) for each in asked.in_open_flavors(self._state.now))
            return next((each for each in found if each[0]), ("", ""))
        if jobspec.reservation and (waits := not_begun(self._state, jobspec.reservation)):
            return jobspec.reservation, waits
        for room in rooms(self._state, jobspec, self._vertices(request.exclude)):
            if (time := in_the_way(self._state, asked.matcher, jobspec, end, room)) is not None:
                return time.name, obstacle(self._state, time)
        return "", ""

    def _start(self, job: GraphJob, asked: Asked) -> MatchResult:
        """Turn a reservation whose start has come into an allocation."""
        state = self._state
        end = state.end_of(state.now, asked.duration_s)
        result: list[MatchResult] = []

        def restart() -> bool:
            state.free(job)
            # a flavor before the reserved one may be free now
            if not asked.jobspec.flavors and self._still_free(job, asked.jobspec, end):
                result.append(self._grant(asked, job.placement, end))
                return True
            result.append(self._match_new(asked))
            return result[-1].verdict in (MatchVerdict.GRANTED, MatchVerdict.RESERVED)

        state.atomically(restart)
        return result[-1]

    def _improve(self, job: GraphJob, asked: Asked) -> MatchResult:
        """Replace a reservation by an earlier start, if there is one."""
        state, request, jobspec, duration_s = self._state, asked.request, asked.jobspec, asked.duration_s
        alike = (
            state.end_of(job.start, duration_s) == job.end and not request.exclude and not jobspec.reservation
        )
        improvable = not alike or asked.matcher.may_improve(job, jobspec, duration_s)
        if improvable or request.min_slots:
            now: GraphPlacement | None = None
            molded: Molded | None = None
            later = LaterPlacement()
            # Out of the graph only: derived structures change only if the reservation is really replaced.
            job.release()
            try:
                if improvable:
                    now, later = self._search(asked, replaced=job)
                if now is None:
                    molded = self._mold(asked, later, job.start)
            finally:
                job.book()
            if now is not None:
                state.free(job)
                return self._grant(asked, now, state.end_of(state.now, duration_s))
            if molded is not None:
                state.free(job)
                return self._book_molded(asked, molded)
            if later.placement is not None:
                state.free(job)
                return self._book_later(asked, later)
            if alike and improvable:
                self._record_shortfall(job, request, later)
        return self._answer(MatchVerdict.RESERVED, job, asked.with_allocation)

    def _book_later(self, asked: Asked, later: LaterPlacement) -> MatchResult:
        """Make a reservation."""
        assert later.placement is not None
        verdict, jobid, start = MatchVerdict.RESERVED, asked.request.jobid, later.start
        end = self._state.end_of(start, asked.duration_s)
        answer = self._book(verdict, jobid, start, end, later.placement, asked.with_allocation)
        job = self._state.jobs[answer.jobid]
        job.jobspec, job.policy = asked.jobspec.in_flavor_of(_nodes_of(job)), asked.request.policy
        self._record_shortfall(job, asked.request, later)
        return answer

    def _record_shortfall(self, job: GraphJob, request: JobMatchRequest, later: LaterPlacement) -> None:
        """Record with a reservation what was available at earlier times."""
        if not request.exclude and later.shortfall is not None:
            job.shortfall = replace(later.shortfall, tick=self._state.table.changed.next_tick())

    def _still_free(self, job: GraphJob, jobspec: Jobspec, end: int) -> bool:
        if not jobspec.reservation:
            return self._is_free(job, end)
        for room in rooms(self._state, jobspec):
            if room.inside is not None and room.inside.covers(self._state.now, end):
                with room.inside.opened():
                    return self._is_free(job, end)
        return False

    def _is_free(self, job: GraphJob, end: int) -> bool:
        window = Window(self._state.now, end, self._state.now)
        for vertex, exclusive in job.placement.vertices.items():
            if not window.admits(vertex, exclusive):
                return False
        return all(not mask & ~window.free(run, exclusive=True) for run, mask in job.placement.leaves.items())

    def _book(
        self,
        verdict: MatchVerdict,
        jobid: int,
        start: int,
        end: int,
        placement: GraphPlacement,
        with_allocation: bool,
    ) -> MatchResult:
        state = self._state
        job = GraphJob(
            jobid or state.pick_jobid(), start, end, placement, reserved=verdict is MatchVerdict.RESERVED
        )
        job.shares = node_shares(placement)
        state.book(job)
        state.update_weights(placement)
        return self._answer(verdict, job, with_allocation)

    def _answer(self, verdict: MatchVerdict, job: GraphJob, with_allocation: bool) -> MatchResult:
        allocation = write_r(job.placement) if with_allocation else ""
        return MatchResult(verdict, job.jobid, job.start, job.end, job.shares, allocation=allocation)

    def _refuse(self, asked: Asked) -> MatchResult:
        request, jobspec, matcher, state = asked.request, asked.jobspec, asked.matcher, self._state
        jobid, everywhere = request.jobid, anywhere(state, jobspec)
        if not request.explain:
            return MatchResult(MatchVerdict.BUSY, jobid)
        if jobspec.flavors:
            return self._refuse_flavors(asked)
        if jobspec.reservation and (reason := refusal_inside(state, jobspec, asked.duration_s)):
            return MatchResult(MatchVerdict.UNSATISFIABLE, jobid, reason=reason)
        if not self._ever(asked, everywhere):
            reason, shortages = self._why_never(matcher, jobspec, everywhere)
            return MatchResult(MatchVerdict.UNSATISFIABLE, jobid, reason=reason, shortages=shortages)
        end = state.end_of(state.now, asked.duration_s)
        blocked_by, reason = self._blocked(asked, end)
        if blocked_by:
            return MatchResult(MatchVerdict.BUSY, jobid, reason=reason, blocked_by=blocked_by)
        if jobspec.reservation:
            when = "at any time" if request.reserve else "now on the nodes"
            return MatchResult(
                MatchVerdict.BUSY,
                jobid,
                reason=f"does not fit {when} of the reservation {jobspec.reservation!r}",
            )
        exclude = self._vertices(request.exclude)
        window = Window(state.now, end, state.now, constraint=jobspec.constraint, exclude=exclude)
        reason, shortages = matcher.explain(jobspec, window)
        return MatchResult(MatchVerdict.BUSY, jobid, reason=reason, shortages=shortages)

    def _refuse_flavors(self, asked: Asked) -> MatchResult:
        """Return why it does not fit in each flavor that it may use now; if it never fits in any, in each."""
        ever = any(self._ever(each, Restriction()) for each in asked.in_flavors())
        choices = asked.in_open_flavors(self._state.now) if ever else list(asked.in_flavors())
        answers = [self._refuse(each) for each in choices]
        flavors = zip(asked.jobspec.of_flavors, asked.jobspec.flavors, strict=True)
        names = {jobspec: flavor.name for jobspec, flavor in flavors}
        reasons = (
            f"flavor {names[each.jobspec]!r}: {answer.reason}"
            for each, answer in zip(choices, answers, strict=True)
        )
        return MatchResult(
            MatchVerdict.BUSY if ever else MatchVerdict.UNSATISFIABLE,
            asked.request.jobid,
            reason="; ".join(reasons),
            shortages=answers[0].shortages if answers else (),
            blocked_by=next((each.blocked_by for each in answers if each.blocked_by), "") if ever else "",
        )

    def _ever(self, asked: Asked, everywhere: Restriction) -> bool:
        """Return True if a request, or the smallest start that it allows, fits the graph without jobs."""
        jobspec, least = asked.jobspec, asked.request.min_slots
        if 0 < least < self._molder.size(jobspec):
            jobspec = self._molder.with_slots(jobspec, least, least)
        return asked.matcher.on_empty(jobspec, everywhere) is not None

    def _why_never(
        self, matcher: Matcher, jobspec: Jobspec, restriction: Restriction
    ) -> tuple[str, tuple[Shortage, ...]]:
        constraint = jobspec.constraint.lasting if jobspec.constraint is not None else None
        window = Window(
            0, 1, empty=True, constraint=constraint, exclude=restriction.exclude, only=restriction.only
        )
        return matcher.explain(jobspec, window)

    def reserve_at(
        self, jobid: int, text: str, start: int, nodes: Sequence[str], policy: str = ""
    ) -> MatchResult:
        """Reserve from a given time on."""
        state = self._state
        live = state.jobs.get(jobid) if jobid else None
        if live is not None:
            return self._answer(
                MatchVerdict.RESERVED if live.reserved else MatchVerdict.GRANTED, live, with_allocation=False
            )
        try:
            matcher = self._matcher_of(policy)
            jobspec = self._read(text, matcher)
        except (InvalidJobspec, UnknownPolicy) as error:
            return MatchResult(MatchVerdict.INVALID, jobid, reason=str(error))
        start = max(start, state.now)
        end = state.end_of(start, jobspec.duration_s)
        only = self._vertices(nodes) if nodes else None
        places = (
            matcher.place(each, start, end, room)
            for each in jobspec.of_flavors or (jobspec,)
            for room in rooms(state, jobspec, only=only)
        )
        placement = next((place for place in places if place is not None), None)
        restriction = Restriction(only=only)
        if placement is not None:
            answer = self._book(MatchVerdict.RESERVED, jobid, start, end, placement, with_allocation=False)
            job = state.jobs[answer.jobid]
            job.jobspec, job.policy = jobspec.in_flavor_of(_nodes_of(job)), policy
            return answer
        if matcher.on_empty(jobspec, restriction) is None:
            reason, shortages = self._why_never(matcher, jobspec, restriction)
            return MatchResult(MatchVerdict.UNSATISFIABLE, jobid, reason=reason, shortages=shortages)
        window = Window(start, end, state.now, constraint=jobspec.constraint, only=restriction.only)
        reason, shortages = matcher.explain(jobspec, window)
        return MatchResult(MatchVerdict.BUSY, jobid, reason=reason, shortages=shortages)

    def drop_unfit(self, names: Iterable[str]) -> tuple[int, ...]:
        """Drop reservations on changed nodes that could not be made there any more; return their ids."""
        state = self._state
        nodes = [node for name in names if (node := state.graph.by_name.get(name)) is not None]
        touched = {
            job.jobid: job for node in nodes for job in (*node.shared, *node.exclusive) if job.reserved
        }
        unfit = [jobid for jobid, job in sorted(touched.items()) if not self._still_fits(job)]
        for jobid in unfit:
            state.free(touched[jobid])
        return tuple(unfit)

    def _still_fits(self, job: GraphJob) -> bool:
        """Return True if the request accepts each node of its reservation,
        and together they have its resources at its time.
        """
        jobspec = job.jobspec
        if jobspec is None:
            return True
        nodes = _nodes_of(job)
        if jobspec.constraint is not None and not all(jobspec.constraint.accepts(node) for node in nodes):
            return False
        job.release()  # out of the graph only, as in `_improve`
        try:
            matcher, only = self._matcher_of(job.policy), rooms(self._state, jobspec, only=nodes)
            return any(matcher.place(jobspec, job.start, job.end, room) is not None for room in only)
        finally:
            job.book()

    def satisfy(self, text: str) -> MatchResult:
        """Return GRANTED if the request fits the empty graph, else the reason; nothing is booked."""
        try:
            jobspec = self._read(text, self._matcher)
        except InvalidJobspec as error:
            return MatchResult(MatchVerdict.INVALID, reason=str(error))
        everywhere = anywhere(self._state, jobspec)
        for each in jobspec.of_flavors or (jobspec,):
            if (placement := self._matcher.on_empty(each, everywhere)) is not None:
                return MatchResult(MatchVerdict.GRANTED, shares=node_shares(placement))
        if jobspec.flavors:
            asked = Asked(JobMatchRequest(text, explain=True), jobspec, 0, self._matcher, False)
            return self._refuse_flavors(asked)
        reason, shortages = self._why_never(self._matcher, jobspec, everywhere)
        return MatchResult(MatchVerdict.UNSATISFIABLE, reason=reason, shortages=shortages)

    def _vertices(self, names: Sequence[str]) -> frozenset[Vertex]:
        by_name = self._state.graph.by_name
        return frozenset(by_name[name] for name in names if name in by_name)


def _nodes_of(job: GraphJob) -> frozenset[Vertex]:
    return frozenset(vertex for vertex in job.placement.vertices if vertex.type in CONSTRAINED_TYPES)
