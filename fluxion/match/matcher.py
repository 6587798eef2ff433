"""The matcher: it places requests now, at a given time, as early as possible, or on the emptied graph.

A request of several slots is placed by `fluxqueue.fluxion.match.part_placement`, one with domain rules by
`fluxqueue.fluxion.match.domain_placement`, whatever its shape, and one below levels of the topology by
`fluxqueue.fluxion.match.level_placement`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from fluxqueue.fluxion.graph.jobs import GraphJob, GraphPlacement, ReservedTime
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.changed_rows import Shortfall
from fluxqueue.fluxion.match.earliest import EarliestStart
from fluxqueue.fluxion.match.explain import explain
from fluxqueue.fluxion.match.jobspec import SLOT, InvalidJobspec, Jobspec
from fluxqueue.fluxion.match.level_explain import explain_levels
from fluxqueue.fluxion.match.level_placement import LevelPlacer
from fluxqueue.fluxion.match.part_placement import PartPlacer, size_of_part, slot_of, unlike_slots
from fluxqueue.fluxion.match.plans import Plan, plan_for
from fluxqueue.fluxion.match.policies import MatchPolicy
from fluxqueue.fluxion.match.possible_starts import PossibleStarts, bounding_plans
from fluxqueue.fluxion.match.row_groups import RowGroups
from fluxqueue.fluxion.match.shortcuts import NeedsTraversal, Shortcut
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.match.windows import Window
from fluxqueue.fluxion.match.work_time import work_time
from fluxqueue.fluxion.messages import Shortage

__all__ = ["LaterPlacement", "Matcher", "Restriction"]

BUILT_IN_TYPES = frozenset(
    {"cluster", "core", "socket", "gpu", "node", "rack", SLOT, "xor_slot", "ssd", "storage_node", "", "*"}
)
_MAX_RESTRICTIONS = 64
_LONGEST_SEARCH_S = 0.25
"""CPU after which no further start of a request is tried.
Nothing can interrupt a search, and all other requests wait for it."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """Nodes that a single request must not use, the only nodes that it may use,
    or the reserved time that it must be within.
    """

    exclude: Collection[Vertex] = frozenset()
    only: Collection[Vertex] | None = None
    inside: ReservedTime | None = None


NO_RESTRICTION = Restriction()


@dataclass(frozen=True, slots=True)
class LaterPlacement:
    """The earliest later start of a request.

    Attributes
    ----------
    start, placement
        When and where; no placement if there is no such start.
    shortfall
        What was available at earlier times, where that was computed.
    tried_until
        The last start that was tried, where the search was ended because it took long; 0: all were tried.
    """

    start: int = 0
    placement: GraphPlacement | None = None
    shortfall: Shortfall | None = None
    tried_until: int = 0


class Matcher:
    """Finds placements; books nothing.

    Parameters
    ----------
    deep_slots
        True to count slots that are one level too deep, as flux-sched does.
    policy
        Match policy; the state's if None.
    """

    def __init__(
        self, state: GraphState, *, deep_slots: bool = False, policy: MatchPolicy | None = None
    ) -> None:
        self._state = state
        self.policy = policy or state.policy
        self.deep_slots = deep_slots
        self._shortcut = Shortcut(state.graph, self.policy, state.table)
        self._parts = PartPlacer(state.graph, self.policy, self._shortcut, deep_slots=deep_slots)
        self._levels = LevelPlacer(state.graph, state.table, self.policy, self._try)
        self._plans: WeakKeyDictionary[Jobspec, tuple[int, Plan | None]] = WeakKeyDictionary()
        self._satisfiable: WeakKeyDictionary[Jobspec, dict[tuple[object, ...], GraphPlacement | None]] = (
            WeakKeyDictionary()
        )
        self._satisfiable_topology = -1

    def read(self, text: str) -> Jobspec:
        """Read a jobspec, or take it from the cache; `InvalidJobspec` if it cannot be read."""
        return self._state.requests.read(text, self._state.now)

    def check_types(self, jobspec: Jobspec) -> None:
        """Refuse types that are neither built in nor in the graph, as flux-sched does."""
        known = self._state.graph.types
        for level in jobspec.walk():
            if level.type not in BUILT_IN_TYPES and level.type not in known:
                raise InvalidJobspec(f"resources: type {level.type!r:.60} does not occur in this graph")

    def place(
        self, jobspec: Jobspec, start: int, end: int, restriction: Restriction = NO_RESTRICTION
    ) -> GraphPlacement | None:
        """Return a placement of the request in [start, end), or None."""
        window, inside = self._window(jobspec, start, end, restriction), restriction.inside
        if inside is None:
            return self._try(jobspec, window)
        if not inside.covers(start, end):
            return None
        with inside.opened():
            return self._try(jobspec, window)

    def _try(self, jobspec: Jobspec, window: Window) -> GraphPlacement | None:
        """Place a request in a window, without a traversal where possible."""
        if jobspec.asks_for_none:
            return None
        window = self._with_accepted(window)
        if jobspec.level_needs and not self.deep_slots:
            return self._levels.place(jobspec, window)
        if jobspec.domains:
            return self._under_rules(jobspec, window)
        if not self.deep_slots and unlike_slots(jobspec):
            return self._parts.each_by_itself(jobspec, window)
        return self._parts.place(jobspec.resources, self._plan(jobspec), window)

    def _with_accepted(self, window: Window) -> Window:
        """Return the window with what its constraint says of all nodes:
        it costs a node a microsecond for each of its terms otherwise.
        """
        if window.constraint is None or window.accepted is not None:
            return window
        return replace(window, accepted=self._state.table.accepted(window.constraint))

    def _under_rules(self, jobspec: Jobspec, window: Window) -> GraphPlacement | None:
        """Place a request under domain rules, by its plan if they are part of one."""
        plan = self._plan(jobspec)
        if plan is not None:
            try:
                return self._shortcut.place(plan, window)
            except NeedsTraversal:
                pass
        return self._parts.by_domains(jobspec, window)

    def _plan(self, jobspec: Jobspec) -> Plan | None:
        """Return the plan of a request, if this graph and policy allow one;
        cached until the graph changes.
        """
        topology = self._state.topology
        known = self._plans.get(jobspec)
        if known is not None and known[0] == topology:
            return known[1]
        plan = plan_for(jobspec.resources, jobspec.domains)
        if plan is not None and not self._shortcut.covers(plan):
            plan = None
        self._plans[jobspec] = topology, plan
        return plan

    def reserve(
        self,
        jobspec: Jobspec,
        duration_s: int,
        restriction: Restriction = NO_RESTRICTION,
        replaced: GraphJob | None = None,
        *,
        latest_nodes: bool = False,
        not_before: int = 0,
    ) -> LaterPlacement:
        """Return the earliest later time at which the request fits, and its placement.

        A search that takes long is ended, but for requests as in flux-sched.

        Parameters
        ----------
        replaced
            A reservation that the caller has taken out of the graph. Only earlier starts than its own count.
        latest_nodes
            Take the nodes that become free last where the request has a plan, and the policy's choice where
            they do not suffice.
        not_before
            Earlier times are left out.
        """
        state = self._state
        until_s = self._search_until()
        if jobspec.level_needs and restriction.inside is None:
            planned = self._levels.plan(jobspec)
            if planned is not None:
                return self._reserve_below(
                    jobspec, planned[0], duration_s, restriction, replaced, not_before, until_s
                )
        elif restriction.inside is None and (plan := self._plan(jobspec)) is not None:
            earliest = self._earliest_start(jobspec, plan, duration_s, restriction, replaced)
            try:
                for start, slots in earliest.start_times():
                    if start < not_before:
                        continue
                    window = self._window(jobspec, start, state.end_of(start, duration_s), restriction)
                    latest = (
                        earliest.latest(start, slots, descending=self.policy.descending)
                        if latest_nodes
                        else None
                    )
                    placement = (
                        self._shortcut.place_among(plan, window, latest) if latest is not None else None
                    )
                    if placement is None:
                        placement = self._shortcut.place_among(plan, window, slots > 0)
                    if placement is not None:
                        return LaterPlacement(start, placement, earliest.shortfall(start))
                    if work_time() > until_s:
                        return LaterPlacement(tried_until=start)
            except NeedsTraversal:
                pass
            else:
                return LaterPlacement(
                    shortfall=earliest.shortfall(replaced.start if replaced is not None else state.horizon)
                )
        return self._first_fitting(jobspec, duration_s, restriction, replaced, not_before)

    def _search_until(self) -> float:
        """Return the `work_time` at which a search that begins now ends."""
        return math.inf if self.deep_slots else work_time() + _LONGEST_SEARCH_S

    def _first_fitting(
        self,
        jobspec: Jobspec,
        duration_s: int,
        restriction: Restriction,
        replaced: GraphJob | None,
        not_before: int,
    ) -> LaterPlacement:
        """Try each time at which something ends or begins, but for those at which there is too little."""
        state = self._state
        possible = (
            self._possible_starts(jobspec, duration_s, restriction, replaced)
            if restriction.inside is None
            else None
        )
        until_s = self._search_until()
        for start, ending, _ in state.points.after(state.now):
            if start >= state.horizon or (replaced is not None and start >= replaced.start):
                break
            if start < not_before:
                continue
            if restriction.inside is not None and not _may_begin(restriction.inside, start, ending):
                continue
            if not ending and restriction.inside is None:
                continue
            if possible is None or possible.include(start):
                placement = self.place(jobspec, start, state.end_of(start, duration_s), restriction)
                if placement is not None:
                    return LaterPlacement(start, placement)
            if work_time() > until_s:
                return LaterPlacement(tried_until=start)
        return LaterPlacement()

    def _possible_starts(
        self, jobspec: Jobspec, duration_s: int, restriction: Restriction, replaced: GraphJob | None
    ) -> PossibleStarts | None:
        """Return the times at which a request without a plan may fit; None: that is not known."""
        if self.deep_slots or jobspec.level_needs or self._plan(jobspec) is not None:
            return None
        parts = sorted(jobspec.resources, key=size_of_part, reverse=True)
        plans = [plan for part in parts if (plan := plan_for((part,))) is not None]
        if len(plans) < len(parts) or not all(slot_of(part) for part in parts):
            return None
        table = self._state.table
        bounds = bounding_plans(plans, jobspec.domains, table.largest)
        if not bounds or not all(self._shortcut.covers(plan) for plan in (*plans, *bounds)):
            return None
        earliest = [self._earliest_start(jobspec, plan, duration_s, restriction, replaced) for plan in bounds]
        wanted = sum(part.count.low for part in parts)
        return PossibleStarts(earliest, jobspec.domains, wanted, table.nodes)

    def _reserve_below(
        self,
        jobspec: Jobspec,
        plan: Plan,
        duration_s: int,
        restriction: Restriction,
        replaced: GraphJob | None,
        not_before: int,
        until_s: float,
    ) -> LaterPlacement:
        """Return the earliest later placement of a request below levels of the topology."""
        groups = self._levels.row_groups(jobspec, plan)
        total = self._levels.total(jobspec, plan)
        earliest = self._earliest_start(jobspec, total, duration_s, restriction, replaced, groups)
        for start, slots in earliest.start_times():
            if start < not_before:
                continue
            window = self._window(jobspec, start, self._state.end_of(start, duration_s), restriction)
            if (placement := self._levels.place(jobspec, window, slots)) is not None:
                return LaterPlacement(start, placement)
            if work_time() > until_s:
                return LaterPlacement(tried_until=start)
        return LaterPlacement()

    def may_improve(self, reservation: GraphJob, jobspec: Jobspec, duration_s: int) -> bool:
        """Return True if what changed since may allow an earlier start, or if that is not known.

        What is free from some time on has been free since an end before it. An exception is a job that is
        held beyond its end: it counts as free later and not now, so any new end may be the first to try.
        """
        state, shortfall = self._state, reservation.shortfall
        plan = self._plan(jobspec) if not jobspec.level_needs else None
        if (
            plan is None
            or shortfall is None
            or shortfall.before < reservation.start
            or state.timetable.overdue(state.now)
        ):
            return True
        changed = state.table.changed.since(shortfall.tick)
        earliest = self._earliest_start(jobspec, plan, duration_s, NO_RESTRICTION, reservation)
        latest = earliest.shortfall_after(changed, shortfall) if changed is not None else None
        if latest is not None:
            reservation.shortfall = replace(latest, tick=state.table.changed.next_tick())
        return latest is None

    def _earliest_start(
        self,
        jobspec: Jobspec,
        plan: Plan,
        duration_s: int,
        restriction: Restriction,
        replaced: GraphJob | None,
        groups: RowGroups | None = None,
    ) -> EarliestStart:
        state = self._state
        probe = self._window(jobspec, state.now, state.now + 1, restriction)
        static = self._shortcut.allowed(probe, state.table.present)
        whole = self._shortcut.whole(plan)
        return EarliestStart(
            state, plan, static, whole=whole, duration_s=duration_s, replaced=replaced, groups=groups
        )

    def _window(self, jobspec: Jobspec, start: int, end: int, restriction: Restriction) -> Window:
        now = self._state.now
        return Window(
            start, end, now, constraint=jobspec.constraint, exclude=restriction.exclude, only=restriction.only
        )

    def explain(self, jobspec: Jobspec, window: Window) -> tuple[str, tuple[Shortage, ...]]:
        """Explain why a request does not fit a window: one sentence, and the shortages,
        the smallest relative one first.
        """
        window = self._with_accepted(window)
        below_levels = (
            explain_levels(self._levels, jobspec, window) if jobspec.level_needs or jobspec.domains else None
        )
        return below_levels or explain(self._state.graph, self._state.table, jobspec.inner or jobspec, window)

    def on_empty(self, jobspec: Jobspec, restriction: Restriction = NO_RESTRICTION) -> GraphPlacement | None:
        """Return a placement in the same graph without jobs and with everything up;
        cached until the graph changes.
        """
        state = self._state
        if self._satisfiable_topology != state.topology:
            self._satisfiable.clear()
            self._satisfiable_topology = state.topology
        known = self._satisfiable.setdefault(jobspec, {})
        key = (
            frozenset(restriction.exclude),
            None if restriction.only is None else frozenset(restriction.only),
        )
        if key not in known:
            constraint = jobspec.constraint.lasting if jobspec.constraint is not None else None
            window = Window(
                0, 1, empty=True, constraint=constraint, exclude=restriction.exclude, only=restriction.only
            )
            if len(known) >= _MAX_RESTRICTIONS:
                known.clear()
            known[key] = self._try(jobspec, window)
        return known[key]


def _may_begin(inside: ReservedTime, start: int, ending: Sequence[GraphJob]) -> bool:
    """Return True if a job within a reserved time may fit first at this time:
    the time begins, or something ends on its nodes.
    """
    if not inside.job.start <= start < inside.job.end:
        return False
    return start == inside.job.start or any(
        not inside.nodes.isdisjoint(job.placement.vertices) for job in ending
    )
