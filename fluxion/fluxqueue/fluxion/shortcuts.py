"""Placing the common shapes without walking the graph.

Equal to the walk, by argument: where the score of a node depends on its id alone and all ids differ, the best k of all nodes that
qualify are the first k that do, in order of id. So nodes are asked in that order, after a vector look has put aside those that cannot
qualify, and asking stops at k. For slots wherever there is room the same holds for node-centric policies as soon as no later node can
offer a better slot. Policies that stop at the first match ask nodes in order of their exploration weights. What does not meet these
conditions is `None` here: not "does not fit", but "walk".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from heapq import merge
from itertools import islice

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.bundles import bundles, shares, take
from fluxqueue.fluxion.graph import NODE, Graph, Vertex
from fluxqueue.fluxion.introsort import introsort
from fluxqueue.fluxion.jobs import Placement, Slot
from fluxqueue.fluxion.jobspecs import Count
from fluxqueue.fluxion.nodetable import Mask, NodeTable
from fluxqueue.fluxion.plans import NodePlan, Plan, SlotPlan
from fluxqueue.fluxion.policies import Order, Policy
from fluxqueue.fluxion.runs import LeafRun, bits
from fluxqueue.fluxion.windows import Window

__all__ = ["Shortcut", "Unfit"]

Option = tuple[LeafRun, int, int]
"""A run, the leaves of it that may be taken, and the amount each slot needs."""

Held = tuple[Vertex, int, list[Option]]
"""A node that qualifies, its slots, and what they can be taken from."""

_PIECE = 64
_MAX_LEAVES = (1 << 31) - 1


class Unfit(Exception):
    """The shortcut cannot vouch for this request here: walk."""


class Shortcut:
    """Places requests that have a plan."""

    def __init__(self, graph: Graph, policy: Policy, table: NodeTable) -> None:
        self._graph = graph
        self._policy = policy
        self._descending = policy.descending
        self._table = table

    def covers(self, plan: Plan) -> bool:
        """Whether the shape of the graph and the policy allow this plan."""
        policy, table = self._policy, self._table
        if policy.order not in (Order.LOW, Order.HIGH) or not table.plain:
            return False
        needs = plan.needs if isinstance(plan, SlotPlan) else plan.slots.needs if plan.slots is not None else ()
        if any(kind in table.inner_types for kind, _ in needs):
            return False
        if isinstance(plan, SlotPlan):
            units = all(table.largest.get(kind, 1) == table.smallest.get(kind, 1) == 1 for kind, _ in plan.needs)
            return (units or not plan.plain) and not policy.stop_on_first and not policy.node_exclusive
        if plan.named_root and (self._graph.root.type != plan.named_root or not table.flat):
            return False
        if policy.stop_on_first:
            return policy.order is Order.HIGH and table.monotone
        return table.ordered

    def place(self, plan: Plan, window: Window) -> Placement | None:
        """A place in a window, or None if there is none; `Unfit` if only a walk can tell."""
        return self.place_among(plan, window, self.eligible(plan, window))

    def place_among(self, plan: Plan, window: Window, mask: Mask) -> Placement | None:
        """As `place`, with nodes already chosen by vector."""
        if isinstance(plan, NodePlan):
            return self._place_nodes(plan, window, mask)
        return self._place_slots(plan, window, mask)

    # ---- the vector look -------------------------------------------------------------------------------------------------------

    def eligible(self, plan: Plan, window: Window) -> Mask:
        """Nodes that might do; all others certainly do not."""
        table = self._table
        present = not window.empty and window.start <= window.now
        mask = self.allowed(window, table.usable if present else table.present)
        slots = plan if isinstance(plan, SlotPlan) else plan.slots
        if isinstance(plan, NodePlan) and present and (plan.exclusive or self._policy.node_exclusive):
            mask &= table.jobs == 0
        if slots is not None:
            times = slots.count.low if isinstance(plan, NodePlan) else 1
            counts, amounts = (table.free, table.amount) if present else (table.full, table.total)
            for kind, count in slots.needs:
                leaves = times * -(-count.low // max(1, table.largest.get(kind, 1)))
                if kind not in counts or leaves > _MAX_LEAVES:
                    mask[:] = False
                    break
                mask &= counts[kind] >= leaves
                if kind in table.odd:
                    mask &= amounts[kind] >= times * count.low
        return mask

    def whole(self, plan: Plan) -> bool:
        """Whether a plan takes nodes whole."""
        return isinstance(plan, NodePlan) and (plan.exclusive or self._policy.node_exclusive)

    def allowed(self, window: Window, base: Mask) -> Mask:
        """Of these nodes, those that constraint and restrictions let through."""
        table = self._table
        mask = base.copy()
        if window.constraint is not None:
            mask &= table.accepted(window.constraint)
        if window.exclude:
            mask[table.rows(node for node in window.exclude if node.row >= 0)] = False
        if window.only is not None:
            only = np.zeros(len(mask), dtype=np.bool_)
            only[table.rows(node for node in window.only if node.row >= 0)] = True
            mask &= only
        return mask

    def _in_order(self, mask: Mask) -> Iterator[Vertex]:
        nodes = self._table.nodes
        rows = np.flatnonzero(mask)
        if self._descending:
            rows = rows[::-1]
        # In pieces: mostly the first few rows are enough, and turning all of them into Python integers costs more than looking at them.
        for start in range(0, len(rows), _PIECE):
            for row in rows[start : start + _PIECE].tolist():
                yield nodes[row]

    # ---- nodes -----------------------------------------------------------------------------------------------------------------

    def _place_nodes(self, plan: NodePlan, window: Window, mask: Mask) -> Placement | None:
        available = int(np.count_nonzero(mask))
        if available < plan.count.low:
            return None
        whole = plan.exclusive or self._policy.node_exclusive
        found: list[Held] = []
        if self._policy.stop_on_first:
            if not window.admits(self._graph.root, exclusive=False):
                return None
            found = self._explore(self._graph.root, plan, window, mask)
        else:
            most = plan.count.most
            for node in self._in_order(mask):
                if (held := self._hold(node, plan, window, whole=whole)) is not None:
                    found.append(held)
                    if len(found) >= most:
                        break
        wanted = plan.count.qualify(len(found))
        if wanted == 0:
            return None
        if self._policy.stop_on_first and wanted < len(found):
            if not self._table.ordered:
                raise Unfit
            found.sort(key=lambda item: -item[0].id)
        placement = Placement()
        placement.pass_through(self._graph.root)
        for node, slots, options in found[:wanted]:
            placement.take_vertex(node, exclusive=whole, whole=whole)
            taken = self._take_all(options, slots)
            for run, leaves in taken:
                placement.take_leaves(run, leaves)
            if slots and plan.slots is not None:
                placement.slots.append(Slot(plan.slots.label, node, tuple(taken), slots))
        return placement

    def _explore(self, vertex: Vertex, plan: NodePlan, window: Window, mask: Mask) -> list[Held]:
        """Nodes found below a vertex by a policy that stops early, at each level as soon as there are enough there."""
        most = plan.count.most
        whole = plan.exclusive or self._policy.node_exclusive
        found: list[Held] = []
        for child in vertex.explored():
            if child.type == NODE:
                if mask[child.row] and (held := self._hold(child, plan, window, whole=whole)) is not None:
                    found.append(held)
            elif window.admits(child, exclusive=False):
                found.extend(self._explore(child, plan, window, mask))
            if len(found) >= most:
                break
        return found

    def _hold(self, node: Vertex, plan: NodePlan, window: Window, *, whole: bool) -> Held | None:
        """What a node can hold of the request."""
        if not self._admits(node, window, whole=whole):
            return None
        if plan.slots is None:
            return node, 0, []
        fit = self._fit(node, plan.slots, window, plan.slots.count)
        return None if fit is None else (node, *fit)

    def _admits(self, node: Vertex, window: Window, *, whole: bool) -> bool:
        """Whether a node and its ancestors may be used."""
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

    def _fit(self, node: Vertex, plan: SlotPlan, window: Window, count: Count) -> tuple[int, list[Option]] | None:
        """How many slots to take on a node and what they can be taken from; None if it holds too few."""
        options: list[Option] = []
        possible = 1 << 40
        for kind, need in plan.needs:
            run = node.runs.get(kind)
            if run is None:
                return None
            if not run.regular or run.size == 0:
                raise Unfit
            free = window.free(run, exclusive=True)
            amount = run.amount(free) if run.odd_sizes else free.bit_count() * run.size
            each = need.low if need.low == need.high else need.qualify(amount)
            if each == 0 or amount < each:
                return None
            options.append((run, free, each))
            possible = min(possible, shares(run, free, each, descending=self._descending))
        slots = count.qualify(possible)
        if slots == 0:
            return None
        return slots, options

    def _take_all(self, options: list[Option], slots: int) -> list[tuple[LeafRun, int]]:
        return [(run, take(run, free, each, slots, descending=self._descending)) for run, free, each in options]

    # ---- slots wherever there is room ------------------------------------------------------------------------------------------

    def _place_slots(self, plan: SlotPlan, window: Window, mask: Mask) -> Placement | None:
        """The best slots of all nodes."""
        if int(np.count_nonzero(mask)) < plan.count.low and self._most_slots(plan, window, mask) < plan.count.low:
            return None
        options: dict[Vertex, list[Option]] = {}
        order: list[Vertex] | None = None
        if self._policy.node_centric and self._table.ordered:
            with contextlib.suppress(Unfit):
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
        placement = Placement()
        placement.pass_through(self._graph.root)
        for node, slots in chosen.items():
            taken = self._take_all(options[node], slots)
            placement.pass_through(node)
            for run, leaves in taken:
                placement.take_leaves(run, leaves)
            if not plan.plain:
                placement.slots.append(Slot(plan.label, node, tuple(taken), slots))
        return placement

    def _first_slots(self, plan: SlotPlan, window: Window, mask: Mask, options: dict[Vertex, list[Option]]) -> list[Vertex]:
        """Nodes of the best slots, no more of them than can be taken."""
        most = plan.count.most
        order: list[Vertex] = []
        for node, fit in self._slots_in_order(plan, window, mask):
            options[node] = fit
            order.append(node)
            if len(order) >= most:
                break
        return order

    def _ranked_slots(self, plan: SlotPlan, window: Window, mask: Mask, options: dict[Vertex, list[Option]]) -> list[Vertex]:
        """Nodes of all slots there are, sorted by score as std::sort would: where slots of many nodes score the same."""
        order: list[Vertex] = []
        scores: list[int] = []
        known: dict[tuple[tuple[int, int, int], ...], list[tuple[int, int]]] = {}
        sign = -1 if self._descending else 1
        every = Count(1, _MAX_LEAVES)
        for node in self._graph.nodes:
            if not mask[node.row] or not self._admits(node, window, whole=False):
                continue
            fit = self._fit(node, plan, window, every)
            if fit is None:
                continue
            slots, options[node] = fit
            if any(not isinstance(run.ids, range) or run.ids.start for run, _, _ in options[node]):
                raise Unfit
            key = tuple((free, each, run.size) for run, free, each in options[node])
            if key not in known or any(run.odd_sizes for run, _, _ in options[node]):
                # Slots are formed from the best leaf on; leaves without a slot stand as they were found, by which equals are told apart.
                known[key] = self._measure(options[node], slots)[:: -1 if plan.plain and self._descending else 1]
            factor = 2 + (node.factor if self._policy.node_centric else 0)
            scores.extend(sign * (1 + members * factor + ids) for members, ids in known[key])
            order.extend([node] * slots)
        return [order[index] for index in introsort(list(range(len(order))), key=scores.__getitem__)]

    def _measure(self, options: list[Option], slots: int) -> list[tuple[int, int]]:
        """Members and sum of ids of each slot."""
        streams = [bundles(run, free, each, descending=self._descending) for run, free, each in options]
        return [
            (sum(mask.bit_count() for mask in masks), sum(index for mask in masks for index in bits(mask)))
            for masks in islice(zip(*streams, strict=False), slots)
        ]

    def _most_slots(self, plan: SlotPlan, window: Window, mask: Mask) -> int:
        """No more slots than this can be found; cheap to say, and often enough to stop."""
        table = self._table
        present = not window.empty and window.start <= window.now
        counts, amounts = (table.free, table.amount) if present else (table.full, table.total)
        rows = np.flatnonzero(mask)
        if not len(rows):
            return 0
        fewest = np.full(len(rows), _MAX_LEAVES, dtype=np.int64)
        for kind, count in plan.needs:
            np.minimum(fewest, counts[kind][rows] // max(1, -(-count.low // max(1, table.largest[kind]))), out=fewest)
            np.minimum(fewest, amounts[kind][rows] // count.low, out=fewest)
        return int(fewest.sum())

    def _slots_in_order(self, plan: SlotPlan, window: Window, mask: Mask) -> Iterator[tuple[Vertex, list[Option]]]:
        """Slots by score, each as the node it lies in.

        With as many members in every slot, all slots of a node come before those of the next one. Where nodes have leaves of different
        size, a slot with fewer members scores lower, so nodes are put in classes by members and the classes merged by score.
        """
        table = self._table
        rows = np.flatnonzero(mask)
        if not len(rows):
            return
        if self._descending:
            if any(not count.fixed for _, count in plan.needs) or table.odd.intersection(kind for kind, _ in plan.needs):
                raise Unfit
            rows = rows[::-1]
        kinds = [kind for kind, _ in plan.needs]
        least = sum(-(-count.low // max(1, table.greatest[kind])) for kind, count in plan.needs)
        ids = sum(-(-count.low // max(1, table.smallest[kind])) * table.top_id[kind] for kind, count in plan.needs)
        if ids >= least * table.least_step or not all(count.fixed for _, count in plan.needs):
            raise Unfit
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
                raise Unfit
            before = score
            yield node, fit

    def _fits(self, plan: SlotPlan, window: Window, rows: npt.NDArray[np.intp]) -> Iterator[tuple[Vertex, list[Option], int]]:
        most = Count(1, plan.count.most)
        nodes = self._table.nodes
        for start in range(0, len(rows), _PIECE):
            for row in rows[start : start + _PIECE].tolist():
                node = nodes[row]
                if self._admits(node, window, whole=False) and (fit := self._fit(node, plan, window, most)) is not None:
                    yield node, fit[1], fit[0]

    def _scored(self, plan: SlotPlan, window: Window, rows: npt.NDArray[np.intp]) -> Iterator[tuple[int, Vertex, list[Option]]]:
        sign = -1 if self._descending else 1
        for node, fit, slots in self._fits(plan, window, rows):
            streams = [bundles(run, free, each, descending=self._descending) for run, free, each in fit]
            for _ in range(slots):
                score = 1
                for (run, _, _), stream in zip(fit, streams, strict=True):
                    bundle = next(stream)
                    score += bundle.bit_count() * (2 + node.factor) + sum(run.ids[index] for index in bits(bundle))
                yield sign * score, node, fit
