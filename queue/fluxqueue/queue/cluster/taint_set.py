"""The taints that requests must name: those that keep pods from some node of the cluster.

A request says for each such taint if its pods tolerate it, so all pending work is described again when the set changes. That is expensive
with a long queue, and must not happen each time that one of many nodes comes under pressure. Therefore the set covers all nodes, and a
taint for pressure stays in it once it was seen. Whether a node has the taint now is a property of the node in the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fluxqueue.api.nodes import Node, Taint
from fluxqueue.api.taints import HARD_EFFECTS, PRESSURES, effective_taints
from fluxqueue.kube.object_cache import Change

__all__ = ["TaintSet"]

_PRESSURES = frozenset(PRESSURES.values())


class TaintSet:
    """The distinct taints of all nodes.

    Parameters
    ----------
    coming
        Of nodes that the cluster may grow by: requests name these taints before any such node exists.

    Attributes
    ----------
    version
        Increases whenever the set changes.
    """

    def __init__(self, coming: Iterable[Taint] = ()) -> None:
        self.version = 0
        self._kept = frozenset(coming)
        self._nodes: Counter[Taint] = Counter()

    def follow(self, change: Change[Node]) -> None:
        """Apply a change of a node's taints."""
        before, now = _hard(change.old), _hard(change.new)
        if before == now:
            return
        known = self.taints
        self._nodes.update(now - before)
        self._nodes.subtract(before - now)
        self._nodes += Counter()
        self._kept |= now & _PRESSURES
        if self.taints != known:
            self.version += 1

    @property
    def taints(self) -> frozenset[Taint]:
        """All of them."""
        return self._kept.union(self._nodes)


def _hard(node: Node | None) -> frozenset[Taint]:
    return frozenset(taint for taint in effective_taints(node) if taint.effect in HARD_EFFECTS) if node is not None else frozenset()
