"""Placement of requests below levels of the topology (`fluxqueue.fluxion.match.levels`).

`fluxqueue.fluxion.match.domain_choice` divides the request by how much each node can hold, and each part is
placed among the nodes of its domain by the policy. What a node can hold may be an upper bound. Where a part
does not fit, the nodes of its domain are counted exactly and the request is divided again.

Requests of several parts, and those under domain rules, have no single amount for a node. For them each
vertex of the level is tried, the one with the fewest free nodes first. Such requests form no groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fluxqueue.fluxion.graph.jobs import GraphPlacement
from fluxqueue.fluxion.graph.vertices import NODE, Graph
from fluxqueue.fluxion.match.domain_choice import Amounts, DomainPart, Ladder, choose_domains
from fluxqueue.fluxion.match.jobspec import Count, Jobspec
from fluxqueue.fluxion.match.levels import LevelNeed
from fluxqueue.fluxion.match.node_table import Counts, Mask, NodeTable
from fluxqueue.fluxion.match.plans import Plan, SlotPlan, plan_for
from fluxqueue.fluxion.match.policies import MatchPolicy, read_policy
from fluxqueue.fluxion.match.row_capacity import row_units
from fluxqueue.fluxion.match.row_groups import RowGroups
from fluxqueue.fluxion.match.shortcuts import NeedsTraversal, Shortcut
from fluxqueue.fluxion.match.topology_columns import Ids, TopologyColumns
from fluxqueue.fluxion.match.windows import Window

__all__ = ["LevelNeeds", "LevelPlacer"]

_DIVISIONS = 1_000
_WITHIN = "lonode"
"""Orders the nodes of a domain where the policy has no order of its own."""

PlaceInner = Callable[[Jobspec, Window], GraphPlacement | None]


@dataclass(frozen=True, slots=True)
class LevelNeeds:
    """The labelled levels of a request.

    Attributes
    ----------
    required, preferred, cells
        The level below one vertex of which everything must be, should be, and of which each group must be;
        empty: none.
    groups
        Number of groups.
    """

    required: str
    preferred: str
    cells: str
    groups: int

    @classmethod
    def of(cls, needs: tuple[LevelNeed, ...]) -> LevelNeeds:
        """Read the levels of a request, from the top down."""
        required = [need.type for need in needs if need.groups == 1 and not need.preferred]
        preferred = [need.type for need in needs if need.preferred]
        groups = needs[-1].groups if needs else 1
        return cls(
            required[-1] if required else "",
            preferred[-1] if preferred else "",
            needs[-1].type if groups > 1 else "",
            groups,
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the types of the levels."""
        return tuple(kind for kind in (self.required, self.preferred, self.cells) if kind)


class LevelPlacer:
    """Places requests with labelled levels, by one policy.

    Parameters
    ----------
    place
        Places the request below the levels, in a window.
    """

    def __init__(self, graph: Graph, table: NodeTable, policy: MatchPolicy, place: PlaceInner) -> None:
        self._table = table
        self._shortcuts = (Shortcut(graph, policy, table), Shortcut(graph, read_policy(_WITHIN), table))
        self._columns = TopologyColumns(graph, table)
        self._place = place

    def plan(self, jobspec: Jobspec) -> tuple[Plan, Shortcut] | None:
        """Return how the request below the levels is placed without a traversal; None if it cannot be."""
        inner = jobspec.inner or jobspec
        plan = plan_for(inner.resources, inner.domains)
        if plan is None or not plan.count.fixed:
            return None
        shortcut = next((each for each in self._shortcuts if each.covers(plan)), None)
        return None if shortcut is None else (plan, shortcut)

    def row_groups(self, jobspec: Jobspec, plan: Plan) -> RowGroups:
        """Return how the slots of a request must lie below vertices."""
        needs = LevelNeeds.of(jobspec.level_needs)
        cells = self._columns.ids(needs.cells) if needs.cells else None
        wanted = needs.groups if needs.cells else plan.count.low
        return RowGroups(
            cells, plan.count.low, self._columns.ids(needs.required) if needs.required else None, wanted
        )

    def total(self, jobspec: Jobspec, plan: Plan) -> Plan:
        """Return the plan with all units of the request."""
        count = plan.count.low * LevelNeeds.of(jobspec.level_needs).groups
        return replace(plan, count=Count(count, count))

    def place(self, jobspec: Jobspec, window: Window, bound: Counts | None = None) -> GraphPlacement | None:
        """Return a placement in a window, or None.

        Parameters
        ----------
        bound
            The most that each row can hold, if that is known.
        """
        planned = self.plan(jobspec)
        if planned is not None:
            try:
                return self._divide(jobspec, *planned, window, bound)
            except NeedsTraversal:
                pass
        return self._try_each(jobspec, window)

    def ladder(self, needs: LevelNeeds, size: int) -> Ladder | None:
        """Return the levels of the graph with those of a request;
        None if the graph lacks one that is required.
        """
        kinds = self._kinds(needs)
        if self.missing(needs):
            return None
        highest = kinds.index(needs.required) if needs.required else None
        lowest = kinds.index(needs.preferred) if needs.preferred in kinds else (highest or 0)
        lowest = lowest if highest is None else min(lowest, highest)
        cells = kinds.index(needs.cells) if needs.cells else None
        return Ladder(
            [self._columns.ids(kind) for kind in kinds], lowest, highest, cells, size if needs.cells else 1
        )

    def missing(self, needs: LevelNeeds) -> str:
        """Return a level without which a request cannot be placed and that no vertex of the graph has;
        empty if there is none.
        """
        kinds = self._kinds(needs)
        return next((kind for kind in (needs.required, needs.cells) if kind and kind not in kinds), "")

    def units(self, jobspec: Jobspec, window: Window) -> Amounts | None:
        """Return the most slots (or nodes) of a request that each row holds;
        None if that is no single amount.
        """
        planned = self.plan(jobspec)
        return None if planned is None else row_units(self._table, planned[1], planned[0], window)

    def vertex_name(self, kind: str, number: int) -> str:
        """Return the name of a vertex of a level."""
        return self._columns.name(kind, number)

    def _kinds(self, needs: LevelNeeds) -> tuple[str, ...]:
        levels = self._columns.levels
        return (NODE, *levels) if NODE in needs.kinds else levels

    def _divide(
        self, jobspec: Jobspec, plan: Plan, shortcut: Shortcut, window: Window, bound: Counts | None
    ) -> GraphPlacement | None:
        """Divide a request among domains, and place each part."""
        needs = LevelNeeds.of(jobspec.level_needs)
        ladder = self.ladder(needs, plan.count.low)
        if ladder is None:
            return None
        units = row_units(self._table, shortcut, plan, window) if bound is None else bound.astype(np.int64)
        wanted = needs.groups if needs.cells else plan.count.low
        for _ in range(_DIVISIONS):
            parts = choose_domains(units, wanted, ladder)
            if parts is None:
                return None
            placement, failed = self._place_parts(parts, plan, shortcut, window)
            if failed is None:
                return placement
            exact = np.array(
                [shortcut.units_on(plan, window, row) for row in failed.rows.tolist()], dtype=np.int64
            )
            if (exact >= units[failed.rows]).all():
                return None
            units[failed.rows] = exact
        return None

    def _place_parts(
        self, parts: list[DomainPart], plan: Plan, shortcut: Shortcut, window: Window
    ) -> tuple[GraphPlacement, DomainPart | None]:
        """Place each part; return the first one that does not fit."""
        placement = GraphPlacement()
        for part, own in _joined(parts, plan):
            mask = np.zeros(len(self._table.nodes), dtype=np.bool_)
            mask[part.rows] = True
            placed = shortcut.place_among(own, window, mask)
            if placed is None:
                return placement, part
            placement.join(placed)
        return placement, None

    def _place_inner(self, jobspec: Jobspec, window: Window) -> GraphPlacement | None:
        assert jobspec.inner is not None
        return self._place(jobspec.inner, window)

    def _try_each(self, jobspec: Jobspec, window: Window) -> GraphPlacement | None:
        """Try the vertices of each level, the lowest level first."""
        needs = LevelNeeds.of(jobspec.level_needs)
        ladder = self.ladder(needs, 1)
        if needs.cells or ladder is None:
            return None
        nodes = self._table.nodes
        for rows in self._domains(ladder, jobspec, window):
            only = frozenset(nodes[row] for row in rows.tolist())
            if (placement := self._place_inner(jobspec, replace(window, only=only))) is not None:
                return placement
        return None if needs.required else self._place_inner(jobspec, window)

    def _domains(self, ladder: Ladder, jobspec: Jobspec, window: Window) -> Iterator[Ids]:
        """Yield the rows of each vertex that may hold the request, those with the fewest nodes first."""
        usable = self._shortcuts[1].allowed(window, self._table.present if window.empty else self._table.open)
        for column in ladder.columns[ladder.lowest : None if ladder.highest is None else ladder.highest + 1]:
            may_hold = self._enough(column, jobspec, window)
            rows = np.flatnonzero(usable & (column >= 0))
            counts = np.bincount(column[rows])
            for vertex in sorted(
                np.flatnonzero(counts).tolist(), key=lambda number: (int(counts[number]), number)
            ):
                if may_hold is None or (vertex < len(may_hold) and may_hold[vertex]):
                    yield rows[column[rows] == vertex]

    def _enough(self, column: Ids, jobspec: Jobspec, window: Window) -> Mask | None:
        """Return whether each vertex may hold each part of a request on its own;
        None if that is not known.
        """
        assert jobspec.inner is not None
        enough: Mask | None = None
        for part in jobspec.inner.resources:
            plan = plan_for((part,))
            if plan is None or not self._shortcuts[1].covers(plan):
                continue
            units = row_units(self._table, self._shortcuts[1], plan, window)
            inside = column >= 0
            held: Mask = np.bincount(column[inside], weights=units[inside]) >= plan.count.low
            enough = held if enough is None else enough & held
        return enough


def _joined(parts: list[DomainPart], plan: Plan) -> Iterator[tuple[DomainPart, Plan]]:
    """Yield each part with its plan.
    Parts of one node that get the same amount are joined: there may be thousands of them.
    """
    alike: dict[int, list[Ids]] = {}
    for part in parts:
        if len(part.rows) == 1:
            alike.setdefault(part.units, []).append(part.rows)
        else:
            yield part, replace(plan, count=Count(part.units, part.units))
    for units, rows in alike.items():
        count = Count(units * len(rows), units * len(rows))
        own = (
            replace(plan, count=count, per_node=units)
            if isinstance(plan, SlotPlan)
            else replace(plan, count=count)
        )
        yield DomainPart(np.concatenate(rows), count.low), own
