"""Keeps the FluxReservations as the queue reads them, and reads one again when its spec changes."""

from __future__ import annotations

from collections.abc import Mapping

from fluxqueue.api import names
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.nodes import Node
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.queue.model.reservation_plans import NodeView, ReservationPlan, plan_of

__all__ = ["ClusterReservations", "node_view", "spec_changed", "view_changed"]


class ClusterReservations:
    """The reservations of a cluster.

    Attributes
    ----------
    plans
        By name; another mapping after every change of a spec.
    """

    def __init__(self, fluxreservations: ObjectCache[FluxReservation]) -> None:
        self.plans: Mapping[str, ReservationPlan] = {}
        fluxreservations.add_handler(self._changed)

    def _changed(self, change: Change[FluxReservation]) -> None:
        if not spec_changed(change):
            return
        name = change.obj.metadata.name
        others = {known: plan for known, plan in self.plans.items() if known != name}
        self.plans = {**others, name: plan_of(change.new)} if change.new is not None else others


def node_view(node: Node) -> NodeView:
    """Return what the choice of nodes depends on.
    A node that the queue itself cordoned for a maintenance is up.
    """
    meta = node.metadata
    up = node.status.ready and (
        not node.spec.unschedulable or meta.annotation(names.MAINTENANCE_ANNOTATION) is not None
    )
    return NodeView(meta.name, meta.labels or {}, up)


def view_changed(change: Change[Node]) -> bool:
    """True if the choice of nodes may change with a node: not at each of its heartbeats."""
    return change.old is None or change.new is None or node_view(change.old) != node_view(change.new)


def spec_changed(change: Change[FluxReservation]) -> bool:
    """True unless only the status was written."""
    old, new = change.old, change.new
    return old is None or new is None or (old.spec, old.metadata.uid) != (new.spec, new.metadata.uid)
