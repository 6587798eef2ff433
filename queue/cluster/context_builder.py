"""Builds the `ClusterContext` of each namespace, and builds it again when something in it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.metadata import PriorityClass
from fluxqueue.api.topology import DEFAULT_LEVELS, TopologyLevel
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.accounts import ClusterAccounts
from fluxqueue.queue.cluster.context import ClusterContext, QueueDefaults, queue_defaults
from fluxqueue.queue.cluster.reservations import ClusterReservations, spec_changed
from fluxqueue.queue.cluster.watched_objects import WatchedObjects

__all__ = ["ContextBuilder"]

_SYSTEM_CLASSES = "system-"
"""The API server refuses names that begin so for the classes of others."""


class ContextBuilder:
    """Keeps what must be known of the cluster to read an object.

    Parameters
    ----------
    objects
        What the queue watches.
    levels
        The levels of the topology, from the top down.
    """

    def __init__(self, objects: WatchedObjects, levels: tuple[TopologyLevel, ...] = DEFAULT_LEVELS) -> None:
        self._levels = levels
        self.accounts = ClusterAccounts(objects.fluxaccounts)
        self.reservations = ClusterReservations(objects.fluxreservations)
        self._objects = objects
        self._context: ClusterContext | None = None
        self._of_namespaces: dict[str, ClusterContext] = {}
        for cache in (objects.fluxqueues, objects.priority_classes, objects.runtime_classes):
            cache.add_handler(self._forget)
        objects.namespaces.add_handler(lambda _change: self._of_namespaces.clear())
        objects.limit_ranges.add_handler(lambda _change: self._of_namespaces.clear())
        objects.fluxaccounts.add_handler(lambda _change: self._of_namespaces.clear())
        objects.fluxreservations.add_handler(self._reservation_changed)

    def of(self, namespace: str) -> ClusterContext:
        """Return the context of the objects in a namespace."""
        context = self._of_namespaces.get(namespace)
        if context is None:
            if self._context is None:
                self._context = self._read()
            obj = self._objects.namespaces.get("", namespace)
            context = self._of_namespaces[namespace] = replace(
                self._context,
                namespace_labels=(obj.metadata.labels or {}) if obj else {},
                limit_ranges=tuple(sorted(self._objects.limit_ranges.list(namespace), key=lambda item: item.metadata.name)),
                account=self.accounts.tree.account_of(namespace),
            )
        return context

    def _read(self) -> ClusterContext:
        """Return what is the same for all namespaces."""
        classes = self._objects.priority_classes.list()
        usual = next((item.value for item in classes if item.global_default), 0)
        queues = {queue.metadata.name: queue_defaults(queue.spec) for queue in self._objects.fluxqueues.list()}
        return ClusterContext(
            queues={names.DEFAULT_QUEUE: QueueDefaults(), **queues},
            priority_classes={item.metadata.name: item.value if _counts(item) else usual for item in classes},
            default_priority=usual,
            runtime_classes={item.metadata.name: item for item in self._objects.runtime_classes.list()},
            storage=self._objects.storage,
            devices=self._objects.devices,
            levels=self._levels,
            reservations=self.reservations.plans,
        )

    def _reservation_changed(self, change: Change[FluxReservation]) -> None:
        if spec_changed(change):
            self._forget(change)

    def _forget(self, _change: Change[Any]) -> None:
        self._context = None
        self._of_namespaces.clear()


def _counts(priority_class: PriorityClass) -> bool:
    """True if work of a class goes ahead by it. Everybody may name the classes of programs, which are not about the order of work."""
    meta = priority_class.metadata
    return not meta.name.startswith(_SYSTEM_CLASSES) and (meta.labels or {}).get(names.PRIORITY_COUNTS_LABEL) != "false"
