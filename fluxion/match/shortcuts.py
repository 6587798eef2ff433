"""Placement of requests that have a plan, without a traversal of the graph.

The result equals that of the traverser. Where the score of a node depends on its id alone and all ids differ,
the best k nodes are the first k that qualify, in order of id. So nodes are checked in that order, after the
node table has excluded those that cannot qualify, and the check stops at k. For slots on any nodes the same
holds for node-centric policies as soon as no later node can have a better slot. Policies that stop at the
first match check nodes in order of their exploration weights. `NeedsTraversal` is raised where these
conditions are not met.

Its tests are `test_properties.py` of the engine, which compares the two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from heapq import merge
from itertools import islice

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph.jobs import GraphPlacement, PlacedSlots
from fluxqueue.fluxion.graph.pools import LeafRun, bits
from fluxqueue.fluxion.graph.vertices import NODE, Vertex
from fluxqueue.fluxion.match.column_checks import MAX_LEAVES, ColumnChecks
from fluxqueue.fluxion.match.introsort import introsort
from fluxqueue.fluxion.match.jobspec import Count
from fluxqueue.fluxion.match.leaf_sets import count_leaf_sets, leaf_sets, take_leaf_sets
from fluxqueue.fluxion.match.node_table import Mask
from fluxqueue.fluxion.match.plans import NodePlan, Plan, SlotPlan
from fluxqueue.fluxion.match.windows import Window

__all__ = ["NeedsTraversal", "Shortcut"]

Option = tuple[LeafRun, int, int]
"""A run, the leaves of it that may be taken, and the amount each slot needs."""

Held = tuple[Vertex, int, list[Option]]
"""A node that qualifies, its slots, and what they can be taken from."""

_PIECE = 64


class NeedsTraversal(Exception):
    """Only the traverser can place this request here."""


class Shortcut(ColumnChecks):
    """Places requests that have a plan, by one policy."""

    def place(self, plan: Plan, window: Window) -> GraphPlacement | None:
        """Return a placement in a window, or None if there is none;
        `NeedsTraversal` if only the traverser can decide.
        """
        return self.place_among(plan, window, self.eligible(plan, window))

    def place_among(self, plan: Plan, window: Window, mask: Mask) -> GraphPlacement | None:
        """Return a placement as `place` does, on nodes of this mask only."""
        if isinstance(plan, NodePlan):
            return self._place_nodes(plan, window, mask)
        return self._place_slots(plan, window, mask)

    def _in_order(self, mask: Mask) -> Iterator[Vertex]:
        nodes = self._table.nodes
        rows = np.flatnonzero(mask)
        if self._descending:
            rows = rows[::-1]
        # In pieces: usually the first few rows are enough, and converting all of them to Python integers
        # costs more than checking them.
        for start in range(0, len(rows), _PIECE):
            for row in rows[start : start + _PIECE].tolist():
                yield nodes[row]

    # ---- nodes ---------------------------------------------------------------------------------------------

    def _place_nodes(self, plan: NodePlan, window: Window, mask: Mask) -> GraphPlacement | None:
        available = int(np.count_nonzero(mask))
        if available < plan.count.low:
            return None
        whole = plan.exclusive or self._policy.node_exclusive
        held_nodes: list[Held] = []
        if self._policy.stop_on_first:
            if not window.admits(self._graph.root, exclusive=False):
                return None
            held_nodes = self._explore(self._graph.root, plan, window, mask)
        else:
            most = plan.count.most
            for node in self._in_order(mask):
                if (held := self._hold(node, plan, window, whole=whole)) is not None:
                    held_nodes.append(held)
                    if len(held_nodes) >= most:
                        break
        wanted = plan.count.qualify(len(held_nodes))
        if wanted == 0:
            return None
        if self._policy.stop_on_first and wanted < len(held_nodes):
            if not self._table.ordered:
                raise NeedsTraversal
            held_nodes.sort(key=lambda item: -item[0].id)
        placement = GraphPlacement()
        placement.pass_through(self._graph.root)
        for node, slots, options in held_nodes[:wanted]:
            placement.take_vertex(node, exclusive=whole, whole=whole)
            taken = self._take_all(options, slots)
            for run, leaves in taken:
                placement.take_leaves(run, leaves)
            if slots and plan.slots is not None:
                placement.slots.append(PlacedSlots(plan.slots.label, node, tuple(taken), slots))
        return placement

    def _explore(self, vertex: Vertex, plan: NodePlan, window: Window, mask: Mask) -> list[Held]:
        """Return the nodes found below a vertex by a policy that stops early,
        at each level as soon as there are enough.
        """
        most = plan.count.most
        whole = plan.exclusive or self._policy.node_exclusive
        held_nodes: list[Held] = []
        for child in vertex.explored():
            if child.type == NODE:
                if mask[child.row] and (held := self._hold(child, plan, window, whole=whole)) is not None:
                    held_nodes.append(held)
            elif window.admits(child, exclusive=False):
                held_nodes.extend(self._explore(child, plan, window, mask))
            if len(held_nodes) >= most:
                break
        return held_nodes

    def _hold(self, node: Vertex, plan: NodePlan, window: Window, *, whole: bool) -> Held | None:
        """Return what a node can hold of the request."""
        if not self._admits(node, window, whole=whole):
            return None
        if plan.slots is None:
            return node, 0, []
        fit = self._fit(node, plan.slots, window, plan.slots.count)
        return None if fit is None else (node, *fit)

    def _admits(self, node: Vertex, window: Window, *, whole: bool) -> bool:
        """Return True if a node and its ancestors may be used."""
        if window.empty:
            return True
        if window.start <= window.now and not self._table.reservations[node.row]:
            at = node.parent
            while at is not None:
                if at.exclusive and at.held(window.start, window.end, window.now):
                    return False
                at = at.parent
            return True
        if not window.admits(node, exclusive=whole):
            return False
        at = node.parent
        while at is not None:
            if not at.up or at.closed or (at.exclusive and at.held(window.start, window.end, window.now)):
                return False
            at = at.parent
        return True

    def _fit(
        self, node: Vertex, plan: SlotPlan, window: Window, count: Count
    ) -> tuple[int, list[Option]] | None:
        """Return how many slots to take on a node and the leaves for them; None if it has too few."""
        options: list[Option] = []
        possible = 1 << 40
        for kind, need in plan.needs:
            run = node.runs.get(kind)
            if run is None:
                return None
            if not run.regular or run.size == 0:
                raise NeedsTraversal
            free = window.free(run, exclusive=True)
            amount = run.amount(free) if run.odd_sizes else free.bit_count() * run.size
            each = need.low if need.low == need.high else need.qualify(amount)
            if each == 0 or amount < each:
                return None
            options.append((run, free, each))
            possible = min(possible, count_leaf_sets(run, free, each, descending=self._descending))
        slots = count.qualify(possible)
        if slots == 0:
            return None
        return slots, options

    def _take_all(self, options: list[Option], slots: int) -> list[tuple[LeafRun, int]]:
        return [
            (run, take_leaf_sets(run, free, each, slots, descending=self._descending))
            for run, free, each in options
        ]

    def units_on(self, plan: Plan, window: Window, row: int) -> int:
        """Return exactly how many slots of a plan (or nodes, 0 or 1) a node can hold."""
        node = self._table.nodes[row]
        if isinstance(plan, NodePlan):
            return 0 if self._hold(node, plan, window, whole=self.whole(plan)) is None else 1
        if not self._admits(node, window, whole=plan.whole):
            return 0
        fit = self._fit(node, plan, window, Count(1, plan.per_node or MAX_LEAVES))
        return 0 if fit is None else fit[0]

    # ---- slots on any nodes --------------------------------------------------------------------------------

    def _place_slots(self, plan: SlotPlan, window: Window, mask: Mask) -> GraphPlacement | None:
        """Place the best slots of all nodes."""
        if (
            int(np.count_nonzero(mask)) < plan.count.low
            and self.most_slots(plan, window, mask) < plan.count.low
        ):
            return None
        options: dict[Vertex, list[Option]] = {}
        order: list[Vertex] | None = None
        if self._policy.node_centric and self._table.ordered:
            with contextlib.suppress(NeedsTraversal):
                order = self._first_slots(plan, window, mask, options)
        if order is None:
            options.clear()
            order = self._ranked_slots(plan, window, mask, options)
        wanted = plan.count.qualify(len(order))
        if wanted == 0:
            return None
        chosen: dict[Vertex, int] = {}
        for node in order[:wanted]:
            chosen[node] = chosen.get(node, 0) + 1
        placement = GraphPlacement()
        placement.pass_through(self._graph.root)
        for node, slots in chosen.items():
            taken = self._take_all(options[node], slots)
            placement.take_vertex(node, exclusive=plan.whole, whole=plan.whole)
            for run, leaves in taken:
                placement.take_leaves(run, leaves)
            if not plan.plain:
                placement.slots.append(PlacedSlots(plan.label, node, tuple(taken), slots))
        return placement

    def _first_slots(
        self, plan: SlotPlan, window: Window, mask: Mask, options: dict[Vertex, list[Option]]
    ) -> list[Vertex]:
        """Return the nodes of the best slots, at most as many as can be taken."""
        most = plan.count.most
        order: list[Vertex] = []
        for node, fit in self._slots_in_order(plan, window, mask):
            options[node] = fit
            order.append(node)
            if len(order) >= most:
                break
        return order

    def _ranked_slots(
        self, plan: SlotPlan, window: Window, mask: Mask, options: dict[Vertex, list[Option]]
    ) -> list[Vertex]:
        """Return the nodes of all possible slots, sorted by score as std::sort does;
        needed where slots of several nodes score the same.
        """
        order: list[Vertex] = []
        scores: list[int] = []
        known: dict[tuple[tuple[int, int, int], ...], list[tuple[int, int]]] = {}
        sign = -1 if self._descending else 1
        every = Count(1, plan.per_node or MAX_LEAVES)
        for node in self._graph.nodes:
            if not mask[node.row] or not self._admits(node, window, whole=plan.whole):
                continue
            fit = self._fit(node, plan, window, every)
            if fit is None:
                continue
            slots, options[node] = fit
            if any(not isinstance(run.ids, range) or run.ids.start for run, _, _ in options[node]):
                raise NeedsTraversal
            key = tuple((free, each, run.size) for run, free, each in options[node])
            if key not in known or any(run.odd_sizes for run, _, _ in options[node]):
                # Slots are formed from the best leaf on. Leaves without a slot keep the order of discovery,
                # which decides ties.
                known[key] = self._measure(options[node], slots)[
                    :: -1 if plan.plain and self._descending else 1
                ]
            factor = 2 + (node.factor if self._policy.node_centric else 0)
            scores.extend(sign * (1 + members * factor + ids) for members, ids in known[key])
            order.extend([node] * slots)
        return [order[index] for index in introsort(list(range(len(order))), key=scores.__getitem__)]

    def _measure(self, options: list[Option], slots: int) -> list[tuple[int, int]]:
        """Return number of leaves and sum of ids of each slot."""
        streams = [leaf_sets(run, free, each, descending=self._descending) for run, free, each in options]
        return [
            (sum(mask.bit_count() for mask in masks), sum(index for mask in masks for index in bits(mask)))
            for masks in islice(zip(*streams, strict=False), slots)
        ]

    def _slots_in_order(
        self, plan: SlotPlan, window: Window, mask: Mask
    ) -> Iterator[tuple[Vertex, list[Option]]]:
        """Yield slots by score, each as its node.

        If all slots have the same number of members, all slots of a node come before those of the next node.
        Where nodes have leaves of different sizes, a slot with fewer members scores lower. Then nodes are
        classed by members, and the classes are merged by score.
        """
        table = self._table
        rows = np.flatnonzero(mask)
        if not len(rows):
            return
        if self._descending:
            if any(not count.fixed for _, count in plan.needs) or table.odd.intersection(
                kind for kind, _ in plan.needs
            ):
                raise NeedsTraversal
            rows = rows[::-1]
        kinds = [kind for kind, _ in plan.needs]
        least = sum(-(-count.low // max(1, table.greatest[kind])) for kind, count in plan.needs)
        ids = sum(
            -(-count.low // max(1, table.smallest[kind])) * table.top_id[kind] for kind, count in plan.needs
        )
        if ids >= least * table.least_step or not all(count.fixed for _, count in plan.needs):
            raise NeedsTraversal
        uniform = all(table.smallest[kind] == table.greatest[kind] for kind in kinds)
        members = np.zeros(len(rows), dtype=np.int64)
        if not uniform:
            for kind, count in plan.needs:
                members += -(-count.low // np.maximum(table.sizes[kind][rows], 1))
            uniform = int(members.min()) == int(members.max())
        if uniform:
            for node, fit, slots in self._fits(plan, window, rows):
                for _ in range(slots):
                    yield node, fit
            return
        streams = [self._scored(plan, window, rows[members == each]) for each in np.unique(members).tolist()]
        before: int | None = None
        for score, node, fit in merge(*streams, key=lambda item: item[0]):
            if score == before:
                raise NeedsTraversal
            before = score
            yield node, fit

    def _fits(
        self, plan: SlotPlan, window: Window, rows: npt.NDArray[np.intp]
    ) -> Iterator[tuple[Vertex, list[Option], int]]:
        most = Count(1, plan.most_in_one)
        nodes = self._table.nodes
        for start in range(0, len(rows), _PIECE):
            for row in rows[start : start + _PIECE].tolist():
                node = nodes[row]
                if (
                    self._admits(node, window, whole=plan.whole)
                    and (fit := self._fit(node, plan, window, most)) is not None
                ):
                    yield node, fit[1], fit[0]

    def _scored(
        self, plan: SlotPlan, window: Window, rows: npt.NDArray[np.intp]
    ) -> Iterator[tuple[int, Vertex, list[Option]]]:
        sign = -1 if self._descending else 1
        for node, fit, slots in self._fits(plan, window, rows):
            streams = [leaf_sets(run, free, each, descending=self._descending) for run, free, each in fit]
            for _ in range(slots):
                score = 1
                for (run, _, _), stream in zip(fit, streams, strict=True):
                    leaves = next(stream)
                    score += leaves.bit_count() * (2 + node.factor) + sum(
                        run.ids[index] for index in bits(leaves)
                    )
                yield sign * score, node, fit
