"""Leaves that a node gives once, however many slots of a request it has
(`fluxqueue.fluxion.match.domains.Once`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluxqueue.fluxion.graph.pools import LeafRun, lowest
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.windows import Window

__all__ = ["joined", "leaves_once"]


def leaves_once(
    node: Vertex, amounts: Sequence[tuple[str, int]], window: Window
) -> dict[LeafRun, int] | None:
    """Return the leaves by which a node gives amounts once; None if it does not have them free."""
    leaves: dict[LeafRun, int] = {}
    for kind, amount in amounts:
        run = node.runs.get(kind)
        free = window.free(run, exclusive=True) if run is not None else 0
        if run is None or free.bit_count() < amount:
            return None
        leaves[run] = lowest(free, amount)
    return leaves


def joined(leaves: Mapping[LeafRun, int], more: Mapping[LeafRun, int]) -> Mapping[LeafRun, int]:
    """Return the leaves of both."""
    return {run: leaves.get(run, 0) | more.get(run, 0) for run in {*leaves, *more}} if more else leaves
