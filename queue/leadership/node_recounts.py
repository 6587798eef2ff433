"""Has nodes counted again when DaemonSets or devices change what they have for work."""

from __future__ import annotations

from collections.abc import Callable

from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.tasks.rests import Turns

__all__ = ["NodeRecounts"]

_REST_OF_NODE_S = 1e-3
"""A few times what it takes to count one."""


class NodeRecounts:
    """Has nodes counted again.

    Parameters
    ----------
    caches, foreign_pods
        Which nodes there are, and who counts them.
    soon
        Requests a cycle.
    """

    def __init__(self, caches: Caches, foreign_pods: ForeignPods, soon: Callable[[], None]) -> None:
        self._caches = caches
        self._foreign_pods = foreign_pods
        self._soon = soon
        self._turns: Turns[None] = Turns(self._count_all, _REST_OF_NODE_S)

    def devices_changed(self, nodes: frozenset[str] | None) -> None:
        """Count the devices of nodes again, of all nodes for None: some came, went, were allocated or given
        back.

        Devices that all nodes reach count on each of them, and each claim that gets one or gives it back
        changes them.
        """
        if nodes is None:
            self._turns.due(None)
            return
        self._foreign_pods.recount(nodes)
        self._soon()

    def daemonset_changed(self, change: Change[DaemonSet]) -> None:
        """Count what DaemonSets take of every node again: one was added, deleted or has another spec."""
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._foreign_pods.recount_daemonsets(self._nodes())
            self._soon()

    def _count_all(self, _all: None) -> int:
        names = self._nodes()
        self._foreign_pods.recount(names)
        self._soon()
        return len(names)

    def _nodes(self) -> list[str]:
        return [node.metadata.name for node in self._caches.nodes.list()]
