"""Builds the `ClusterContext` of each namespace, and builds it again when something in it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.topology import DEFAULT_LEVELS, TopologyLevel
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.cluster.accounts import ClusterAccounts
from fluxqueue.queue.cluster.context import ClusterContext, of_namespace, site_context
from fluxqueue.queue.cluster.reservations import ClusterReservations, spec_changed
from fluxqueue.queue.cluster.watched_objects import WatchedObjects
from fluxqueue.queue.model.sources.native_groups import GroupClaims

__all__ = ["ContextBuilder"]


class ContextBuilder:
    """Keeps what must be known of the cluster to read an object.

    Parameters
    ----------
    objects
        What the queue watches.
    group_claims
        Returns the claims of a PodGroup, by its namespace and name.
    levels
        The levels of the topology, from the top down.
    """

    def __init__(
        self,
        objects: WatchedObjects,
        group_claims: Callable[[str, str], GroupClaims],
        levels: tuple[TopologyLevel, ...] = DEFAULT_LEVELS,
    ) -> None:
        self._levels = levels
        self._group_claims = group_claims
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
            labels, limit_ranges = (
                obj.metadata.labels if obj else None,
                self._objects.limit_ranges.list(namespace),
            )
            context = of_namespace(
                self._context, labels, limit_ranges, self.accounts.tree.account_of(namespace)
            )
            self._of_namespaces[namespace] = context
        return context

    def _read(self) -> ClusterContext:
        """Return what is the same for all namespaces."""
        objects = self._objects
        return replace(
            site_context(
                objects.fluxqueues.list(), objects.priority_classes.list(), objects.runtime_classes.list()
            ),
            storage=objects.storage,
            devices=objects.devices,
            levels=self._levels,
            reservations=self.reservations.plans,
            group_claims=self._group_claims,
        )

    def _reservation_changed(self, change: Change[FluxReservation]) -> None:
        if spec_changed(change):
            self._forget(change)

    def _forget(self, _change: Change[Any]) -> None:
        self._context = None
        self._of_namespaces.clear()
