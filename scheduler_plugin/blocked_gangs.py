"""Gangs that cannot be bound now, by the change that may remove the obstacle.

A gang is checked again when something changes on a node that refused one of its pods, or when a volume
changes.
"""

from __future__ import annotations

from collections.abc import Callable

from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import Change
from fluxqueue.scheduler_plugin.gangs import GangKey

__all__ = ["BlockedGangs"]


class BlockedGangs:
    """Enqueues a gang when the object that blocked it changes.

    Parameters
    ----------
    enqueue
        Called with each gang to be checked again.
    """

    def __init__(self, enqueue: Callable[[GangKey], None]) -> None:
        self._enqueue = enqueue
        self._by_node: dict[str, set[GangKey]] = {}
        self._by_volume: set[GangKey] = set()

    def on_node(self, key: GangKey, node: str) -> None:
        """Remember that a node refuses a pod of a gang."""
        self._by_node.setdefault(node, set()).add(key)

    def on_volume(self, key: GangKey) -> None:
        """Remember that a gang waits for a claim or a volume."""
        self._by_volume.add(key)

    def node_changed(self, node: str) -> None:
        """Enqueue the gangs that a node refused: its state, its pods or its assumed pods have changed."""
        for key in self._by_node.pop(node, ()):
            self._enqueue(key)

    def volume_changed(self) -> None:
        """Enqueue the gangs that wait for a claim or a volume."""
        while self._by_volume:
            self._enqueue(self._by_volume.pop())

    def pod_changed(self, change: Change[Pod]) -> None:
        """Enqueue the gangs for which a pod may have made room:
        it ended, was deleted or lost its nomination.
        """
        old, new = change.old, change.new
        if not self._by_node or old is None:
            return
        if (
            new is not None
            and new.terminal == old.terminal
            and new.status.nominated_node_name == old.status.nominated_node_name
        ):
            return
        for node in {old.spec.node_name, old.status.nominated_node_name}:
            if node:
                self.node_changed(node)
