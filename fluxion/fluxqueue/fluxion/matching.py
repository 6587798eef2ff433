"""Placing requests in a graph with jobs: now, at a given time, as early as possible, or on the emptied graph.

A request whose top levels are several slots, each with a label of its own, is a group of unlike pods. The original matches no such
request; here each slot is placed in turn, the largest first, on what the others have left, and the request fits if all of them do. That
is not a search: a group that would fit only with its slots tried in another order counts as one that does not fit now.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from fluxqueue.fluxion.earliest import Outlook
from fluxqueue.fluxion.graph import NODE, Vertex
from fluxqueue.fluxion.jobs import Job, Placement
from fluxqueue.fluxion.jobspecs import SLOT, InvalidJobspec, Jobspec, Resource, read_jobspec
from fluxqueue.fluxion.openings import Shortfall
from fluxqueue.fluxion.plans import Plan, plan_for
from fluxqueue.fluxion.policies import Policy
from fluxqueue.fluxion.shortcuts import Shortcut, Unfit
from fluxqueue.fluxion.state import State
from fluxqueue.fluxion.walk import Walk
from fluxqueue.fluxion.windows import Window

__all__ = ["Later", "Matcher", "Restriction"]

BUILT_IN_TYPES = frozenset({"cluster", "core", "socket", "gpu", "node", "rack", SLOT, "xor_slot", "ssd", "storage_node", "", "*"})
_MAX_CACHED = 4_096
_MAX_CACHED_TEXT = 65_536


@dataclass(frozen=True, slots=True)
class Restriction:
    """Nodes a single request must not or may only use."""

    exclude: Collection[Vertex] = frozenset()
    only: Collection[Vertex] | None = None


NO_RESTRICTION = Restriction()


@dataclass(frozen=True, slots=True)
class Later:
    """The earliest later moment for a request.

    Attributes
    ----------
    start, placement
        When and where; no placement if there is no such moment.
    shortfall
        What there was at earlier moments, where that was found out.
    """

    start: int = 0
    placement: Placement | None = None
    shortfall: Shortfall | None = None


class Matcher:
    """Finds places; books nothing.

    Parameters
    ----------
    astray
        Whether slots one level too deep count, as in the original.
    policy
        Which of the candidates are taken; the state's if None.
    """

    def __init__(self, state: State, *, astray: bool = False, policy: Policy | None = None) -> None:
        self._state = state
        self.policy = policy or state.policy
        self.astray = astray
        self._jobspecs: dict[str, Jobspec] = {}
        self._known: dict[tuple[object, ...], Jobspec] = {}
        self._shortcut = Shortcut(state.graph, self.policy, state.table)
        self._plans: dict[Jobspec, tuple[int, Plan | None]] = {}
        self._satisfiable: dict[tuple[object, ...], Placement | None] = {}
        self._satisfiable_topology = -1

    def read(self, text: str) -> Jobspec:
        """Read a jobspec; `InvalidJobspec` if that cannot be done."""
        jobspec = self._jobspecs.get(text) if len(text) <= _MAX_CACHED_TEXT else None
        if jobspec is None:
            jobspec = read_jobspec(text)
            if len(text) <= _MAX_CACHED_TEXT:
                jobspec = self._known.setdefault((jobspec.resources, jobspec.constraint, jobspec.duration_s), jobspec)
                if len(self._jobspecs) >= _MAX_CACHED:
                    self._jobspecs.clear()
                    self._known.clear()
                self._jobspecs[text] = jobspec
        return jobspec

    def check_types(self, jobspec: Jobspec) -> None:
        """Refuse types that are neither built in nor in the graph, as the original does."""
        known = self._state.graph.types
        for level in jobspec.walk():
            if level.type not in BUILT_IN_TYPES and level.type not in known:
                raise InvalidJobspec(f"resources: type {level.type!r:.60} does not occur in this graph")

    def place(self, jobspec: Jobspec, start: int, end: int, restriction: Restriction = NO_RESTRICTION) -> Placement | None:
        """A place for the request in [start, end), or None."""
        return self._try(jobspec, self._window(jobspec, start, end, restriction))

    def _try(self, jobspec: Jobspec, window: Window) -> Placement | None:
        """Place a request in a window, by the shortcut where one holds."""
        if jobspec.asks_for_none:
            return None
        if not self.astray and _unlike_slots(jobspec):
            return self._each_part(jobspec, window)
        plan = self._plan(jobspec)
        if plan is not None:
            try:
                return self._shortcut.place(plan, window)
            except Unfit:
                pass
        return Walk(self._state.graph, self.policy, window, self.astray).place(jobspec.resources)

    def _each_part(self, jobspec: Jobspec, window: Window) -> Placement | None:
        """Place slots of several labels one after the other; of those that ask for nodes, no two are on the same."""
        together = Placement()
        asked_for: set[Vertex] = set()
        for part in sorted(jobspec.resources, key=_size, reverse=True):
            rest = replace(window, besides=together.leaves)
            if part.type == NODE:
                rest = replace(rest, exclude={*window.exclude, *asked_for})
            found = Walk(self._state.graph, self._state.policy, rest).place((part,))
            if found is None:
                return None
            if part.type == NODE:
                asked_for.update(vertex for vertex in found.vertices if vertex.type == NODE)
            together.join(found)
        return together

    def _plan(self, jobspec: Jobspec) -> Plan | None:
        """The plan of a request, if this graph and policy allow one; remembered until the graph changes."""
        topology = self._state.topology
        known = self._plans.get(jobspec)
        if known is not None and known[0] == topology:
            return known[1]
        if len(self._plans) >= _MAX_CACHED:
            self._plans.clear()
        plan = plan_for(jobspec.resources)
        if plan is not None and not self._shortcut.covers(plan):
            plan = None
        self._plans[jobspec] = topology, plan
        return plan

    def reserve(self, jobspec: Jobspec, duration_s: int, restriction: Restriction = NO_RESTRICTION, instead: Job | None = None) -> Later:
        """The earliest later moment at which the request fits, and its place.

        Parameters
        ----------
        instead
            A reservation that the caller has taken out of the graph: only what is earlier than its start counts.
        """
        state = self._state
        plan = self._plan(jobspec)
        if plan is not None:
            outlook = self._outlook(jobspec, plan, duration_s, restriction, instead)
            try:
                for start, mask in outlook.moments():
                    window = self._window(jobspec, start, state.end_of(start, duration_s), restriction)
                    if (placement := self._shortcut.place_among(plan, window, mask)) is not None:
                        return Later(start, placement, outlook.shortfall(start))
            except Unfit:
                pass
            else:
                return Later(shortfall=outlook.shortfall(instead.start if instead is not None else state.horizon))
        for start, ending, _ in state.points.after(state.now):
            if start >= state.horizon or (instead is not None and start >= instead.start):
                break
            if ending and (placement := self.place(jobspec, start, state.end_of(start, duration_s), restriction)) is not None:
                return Later(start, placement)
        return Later()

    def may_be_bettered(self, reservation: Job, jobspec: Jobspec, duration_s: int) -> bool:
        """Whether anything has become free since that an earlier start could use; in doubt, it may.

        What is free from some moment on has been free since an end before it, so only what was opened counts; but what holds on beyond
        its end counts as free later and not now, and then any new end may be the first to be tried.
        """
        state, plan, shortfall = self._state, self._plan(jobspec), reservation.shortfall
        if plan is None or shortfall is None or shortfall.before < reservation.start or state.timetable.overdue(state.now):
            return True
        opened = state.table.openings.since(shortfall.tick)
        if opened is None:
            return True
        outlook = self._outlook(jobspec, plan, duration_s, NO_RESTRICTION, reservation)
        return outlook.may_do_with(opened, shortfall)

    def _outlook(self, jobspec: Jobspec, plan: Plan, duration_s: int, restriction: Restriction, instead: Job | None) -> Outlook:
        state = self._state
        probe = self._window(jobspec, state.now, state.now + 1, restriction)
        static = self._shortcut.allowed(probe, state.table.present)
        return Outlook(state, plan, static, whole=self._shortcut.whole(plan), duration_s=duration_s, instead=instead)

    def _window(self, jobspec: Jobspec, start: int, end: int, restriction: Restriction) -> Window:
        now = self._state.now
        return Window(start, end, now, constraint=jobspec.constraint, exclude=restriction.exclude, only=restriction.only)

    def on_empty(self, jobspec: Jobspec, restriction: Restriction = NO_RESTRICTION) -> Placement | None:
        """A place in the same graph emptied, with everything up."""
        state = self._state
        if self._satisfiable_topology != state.topology:
            self._satisfiable.clear()
            self._satisfiable_topology = state.topology
        key = (jobspec, frozenset(restriction.exclude), None if restriction.only is None else frozenset(restriction.only))
        if key not in self._satisfiable:
            window = Window(0, 1, empty=True, constraint=jobspec.constraint, exclude=restriction.exclude, only=restriction.only)
            if len(self._satisfiable) >= _MAX_CACHED:
                self._satisfiable.clear()
            self._satisfiable[key] = self._try(jobspec, window)
        return self._satisfiable[key]


def _unlike_slots(jobspec: Jobspec) -> bool:
    """Whether the request is several slots side by side, told apart by their labels; each may be one of a node of its own."""
    parts = jobspec.resources
    if len(parts) < 2:
        return False
    slots = [slot for part in parts if (slot := _slot_of(part)) is not None]
    return len(slots) == len({slot.label for slot in slots}) == len(parts)


def _slot_of(part: Resource) -> Resource | None:
    """The slot that a part of a request is made of: itself, or the only one it wants of each of its nodes."""
    if part.type == NODE and len(part.children) == 1:
        part = part.children[0]
    return part if part.type == SLOT else None


def _size(part: Resource) -> tuple[int, ...]:
    """What parts are ordered by: nodes of their own before all else, more kinds of resources before fewer, larger before smaller."""
    slot = _slot_of(part) or part
    return part.type == NODE, len(slot.children), *(level.count.low for level in slot.children)


def minimum_nodes(levels: tuple[Resource, ...], times: int = 1) -> int:
    """How many nodes a request names at the least: products of the minimum counts above."""
    total = 0
    for level in levels:
        if level.type == "node":
            total += times * level.count.low
        else:
            total += minimum_nodes(level.children, times * level.count.low)
    return total
