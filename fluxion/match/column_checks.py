"""Which nodes may qualify for a plan: checked for all nodes at once, by the columns of the node table."""

from __future__ import annotations

import numpy as np

from fluxqueue.fluxion.graph.vertices import Graph
from fluxqueue.fluxion.match.node_table import Mask, NodeTable
from fluxqueue.fluxion.match.plans import NodePlan, Plan, SlotPlan
from fluxqueue.fluxion.match.policies import CandidateOrder, MatchPolicy
from fluxqueue.fluxion.match.windows import Window

__all__ = ["MAX_LEAVES", "ColumnChecks"]

MAX_LEAVES = (1 << 31) - 1


class ColumnChecks:
    """What the columns of a graph say of plans, by one policy."""

    def __init__(self, graph: Graph, policy: MatchPolicy, table: NodeTable) -> None:
        self._graph = graph
        self._policy = policy
        self._descending = policy.descending
        self._table = table

    def covers(self, plan: Plan) -> bool:
        """Return True if the shape of the graph and the policy allow this plan."""
        policy, table = self._policy, self._table
        if policy.order not in (CandidateOrder.LOW, CandidateOrder.HIGH) or not table.plain:
            return False
        needs = (
            plan.needs if isinstance(plan, SlotPlan) else plan.slots.needs if plan.slots is not None else ()
        )
        if any(kind in table.inner_types for kind, _ in needs):
            return False
        if isinstance(plan, SlotPlan):
            units = all(
                table.largest.get(kind, 1) == table.smallest.get(kind, 1) == 1 for kind, _ in plan.needs
            )
            return (units or not plan.plain) and not policy.stop_on_first and not policy.node_exclusive
        if plan.named_root and (self._graph.root.type != plan.named_root or not table.flat):
            return False
        if policy.stop_on_first:
            return policy.order is CandidateOrder.HIGH and table.monotone
        return table.ordered

    def eligible(self, plan: Plan, window: Window) -> Mask:
        """Return the nodes that may qualify; all others certainly do not."""
        table = self._table
        present = not window.empty and window.start <= window.now
        mask = self.allowed(window, table.usable if present else table.present)
        slots = plan if isinstance(plan, SlotPlan) else plan.slots
        if present and self.whole(plan):
            mask &= table.jobs == 0
        if slots is not None:
            times = slots.count.low if isinstance(plan, NodePlan) else 1
            counts, amounts = (table.free, table.amount) if present else (table.full, table.total)
            for kind, count in slots.needs:
                leaves = times * -(-count.low // max(1, table.largest.get(kind, 1)))
                if kind not in counts or leaves > MAX_LEAVES:
                    mask[:] = False
                    break
                mask &= counts[kind] >= leaves
                if kind in table.odd:
                    mask &= amounts[kind] >= times * count.low
        return mask

    def whole(self, plan: Plan) -> bool:
        """Return True if a plan takes nodes whole."""
        return plan.whole if isinstance(plan, SlotPlan) else plan.exclusive or self._policy.node_exclusive

    def allowed(self, window: Window, base: Mask) -> Mask:
        """Return those of these nodes that constraint and restrictions accept."""
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

    def most_slots(self, plan: SlotPlan, window: Window, mask: Mask) -> int:
        """Return an upper bound of the slots that can be found; it is cheap, and often low enough to stop."""
        table = self._table
        present = not window.empty and window.start <= window.now
        counts, amounts = (table.free, table.amount) if present else (table.full, table.total)
        rows = np.flatnonzero(mask)
        if not len(rows):
            return 0
        fewest = np.full(len(rows), MAX_LEAVES, dtype=np.int64)
        for kind, count in plan.needs:
            np.minimum(
                fewest, counts[kind][rows] // max(1, -(-count.low // max(1, table.largest[kind]))), out=fewest
            )
            np.minimum(fewest, amounts[kind][rows] // count.low, out=fewest)
        return int(np.minimum(fewest, plan.per_node or MAX_LEAVES).sum())
