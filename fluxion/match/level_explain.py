"""Why a request does not fit below levels of the topology, in one sentence.

Only what the levels cause is explained here. A request of which no node could hold a single slot is explained
without its levels.
"""

from __future__ import annotations

import numpy as np

from fluxqueue.fluxion.graph.vertices import NODE
from fluxqueue.fluxion.match.domains import AtMost, WholeNodes
from fluxqueue.fluxion.match.jobspec import SLOT, Jobspec
from fluxqueue.fluxion.match.level_placement import LevelNeeds, LevelPlacer
from fluxqueue.fluxion.match.windows import Window
from fluxqueue.fluxion.messages import Shortage

__all__ = ["explain_levels"]

Explanation = tuple[str, tuple[Shortage, ...]]


def explain_levels(placer: LevelPlacer, jobspec: Jobspec, window: Window) -> Explanation | None:
    """Explain a shortage below levels; None if the request lacks something else."""
    needs = LevelNeeds.of(jobspec.level_needs)
    if kind := placer.missing(needs):
        text = (
            f"wants to be below one {kind}, and no node is below any: label the nodes, "
            "or ask for another level"
        )
        return text, (Shortage(kind, 1, 0, "cluster"),)
    inner = jobspec.inner or jobspec
    units = placer.units(jobspec, window)
    if units is None:
        if not needs.required:
            return None
        return f"its parts do not fit below one {needs.required} together", (
            Shortage(needs.required, 1, 0, "cluster"),
        )
    whole = any(isinstance(rule, WholeNodes) for rule in inner.domains)
    if not units.any() and (window.empty or not whole):
        return None
    part = inner.resources[0]
    size = part.count.low
    ladder = placer.ladder(needs, size)
    assert ladder is not None
    held, columns, _ = ladder.amounts(units)
    total, wanted = int(held.sum()), needs.groups if needs.cells else size
    whole_parts = f"{wanted} groups of {part.counted(size)}, each below one {needs.cells}"
    what = whole_parts if needs.cells else f"{part.counted(wanted)}{_shared(inner)}"
    shortage = NODE if part.type == NODE else SLOT
    if total < wanted:
        where = "the empty cluster holds" if window.empty else "free now:"
        return f"wants {what}{',' if not needs.cells else ':'} {where} {total}", (
            Shortage(shortage, wanted, total, "cluster"),
        )
    if ladder.highest is None:
        return None
    column = columns[ladder.highest - (ladder.cells or 0)]
    inside = column >= 0
    sums = np.bincount(column[inside], weights=held[inside]).astype(np.int64)
    most = int(sums.max(initial=0))
    if most >= wanted:
        return None
    level = needs.required
    where = f"{placer.vertex_name(level, int(np.argmax(sums)))} has the most" if most else "none has any"
    held_by = (
        f"the largest holds {most}" if window.empty and most else f"{where}{': ' + str(most) if most else ''}"
    )
    text = f"no {level} {'holds' if window.empty else 'has free'} {what}: {held_by}"
    return text, (Shortage(shortage, wanted, most, level),)


def _shared(inner: Jobspec) -> str:
    """Return how its slots may share nodes, in words."""
    most = min((rule.most for rule in inner.domains if isinstance(rule, AtMost) and not rule.key), default=0)
    whole = any(isinstance(rule, WholeNodes) for rule in inner.domains)
    return " on whole nodes" * whole + (f", at most {most} of them on one node" if most else "")
