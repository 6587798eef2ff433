"""How many slots of a request each node can hold, by column.

For windows that begin now this is exact where all leaves of a type have one size; elsewhere it is an upper
bound.
"""

from __future__ import annotations

import numpy as np

from fluxqueue.fluxion.match.domain_choice import Amounts
from fluxqueue.fluxion.match.node_table import Counts, NodeTable
from fluxqueue.fluxion.match.plans import NodePlan, Plan
from fluxqueue.fluxion.match.shortcuts import Shortcut
from fluxqueue.fluxion.match.windows import Window

__all__ = ["row_units"]

_MANY = 1 << 30


def row_units(table: NodeTable, shortcut: Shortcut, plan: Plan, window: Window) -> Amounts:
    """Return how many slots of a plan (or nodes, 0 or 1) each row can hold in a window."""
    units = np.zeros(len(table.nodes), dtype=np.int64)
    rows = np.flatnonzero(shortcut.eligible(plan, window))
    if not len(rows):
        return units
    slots = plan.slots if isinstance(plan, NodePlan) else plan
    fewest = np.full(len(rows), _MANY, dtype=np.int64)
    for kind, count in slots.needs if slots is not None else ():
        leaves = max(1, -(-count.low // max(1, table.largest[kind])))
        np.minimum(fewest, _leaves(table, kind, window)[rows] // leaves, out=fewest)
        if kind in table.odd:
            amounts = table.amount if _present(window) else table.total
            np.minimum(fewest, amounts[kind][rows] // count.low, out=fewest)
    if isinstance(plan, NodePlan):
        fewest = (fewest >= (plan.slots.count.low if plan.slots is not None else 1)).astype(np.int64)
    elif plan.per_node:
        np.minimum(fewest, plan.per_node, out=fewest)
    units[rows] = fewest
    return units


def _present(window: Window) -> bool:
    return not window.empty and window.start <= window.now


def _leaves(table: NodeTable, kind: str, window: Window) -> Counts:
    if not _present(window):
        return table.full[kind]
    return (
        table.present_leaves.free(kind, window.end, window.now)
        if table.reservations.any()
        else table.free[kind]
    )
