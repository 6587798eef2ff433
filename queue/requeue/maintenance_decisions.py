"""What a maintenance does to nodes and to the work on them: pure decisions from nodes, reservations and the
time.

A node is cordoned and marked in one write, so the mark says for sure that the queue cordoned it. A node
without the mark was cordoned by a person, and stays so. A node with the mark that takes pods was uncordoned
by a person, and stays so. Whatever was done before, the same nodes and the same time give the same decisions,
so a process that dies between two writes loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxreservations import AtStart
from fluxqueue.api.nodes import Node
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.given_back import staying_slots
from fluxqueue.queue.model.preemption_notices import given_back_left_s, grace_left_s
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.model.reservation_plans import BookedReservation
from fluxqueue.queue.model.time_limits import is_over_time_limit

__all__ = ["NodeWrite", "evictions_for", "nodes_in_maintenance", "useless_graces", "writes_for"]


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """A node to cordon for a reservation, or to uncordon.

    Attributes
    ----------
    node
        As it was read.
    reservation
        Name of the reservation; None: uncordon.
    """

    node: Node
    reservation: str | None

    @property
    def patch(self) -> Mapping[str, object]:
        """The merge patch. It fails if the node has changed."""
        unschedulable = True if self.reservation is not None else None
        meta = self.node.metadata
        return {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "annotations": {names.MAINTENANCE_ANNOTATION: self.reservation},
            },
            "spec": {"unschedulable": unschedulable},
        }


def nodes_in_maintenance(
    booked: Iterable[BookedReservation], now: int, at_start: Collection[AtStart]
) -> dict[str, str]:
    """Return the nodes of maintenances that have begun, with the name of the reservation.

    Parameters
    ----------
    booked
        What is set aside.
    now
        Unix seconds.
    at_start
        Only maintenances that begin in one of these ways.
    """
    active = (
        each
        for each in booked
        if each.plan.maintenance and each.plan.at_start in at_start and each.active(now)
    )
    return {node: each.plan.name for each in active for node in each.nodes}


def writes_for(nodes: Iterable[Node], wanted: Mapping[str, str]) -> list[NodeWrite]:
    """Return the nodes to cordon and to uncordon.

    Parameters
    ----------
    nodes
        Nodes of the cluster.
    wanted
        Nodes to be cordoned, with the name of the reservation.
    """
    writes = []
    for node in nodes:
        marked = node.metadata.annotation(names.MAINTENANCE_ANNOTATION) is not None
        reservation = wanted.get(node.metadata.name)
        if (reservation is None and marked) or (
            reservation is not None and not marked and not node.spec.unschedulable
        ):
            writes.append(NodeWrite(node, reservation))
    return writes


def evictions_for(
    live: Iterable[tuple[Workload, Allocation]], evicted: Mapping[str, str], now: datetime
) -> list[Eviction]:
    """Return the evictions of work on nodes whose maintenance has begun. Work that is being ended at its time
    limit just ends.

    So do pods that a Job gives back, unless they take too long.

    Parameters
    ----------
    live
        Workloads that hold nodes, with their allocations.
    evicted
        The nodes, with the name of the reservation.
    now
        Of the queue's clock.
    """
    evictions = []
    for workload, allocation in live:
        slots = (
            staying_slots(workload, allocation)
            if given_back_left_s(workload, allocation, now)
            else allocation.open_slots
        )
        node = next((slot.node for slot in slots if slot.node in evicted), None)
        if node is None or allocation.remnant or not workload.state.placed:
            continue
        if is_over_time_limit(workload):
            continue
        message = (
            f"{workload.ref} was requeued: the maintenance {evicted[node]} of node {node} began; "
            "it keeps its submit time"
        )
        evictions.append(Eviction(workload=workload.id, reason=Reason.RESERVATION, message=message))
    return evictions


def useless_graces(
    evicting: Iterable[tuple[Workload, Allocation]], evicted: Mapping[str, str], now: datetime
) -> dict[WorkloadId, str]:
    """Return the preempted work in its grace on nodes whose maintenance has begun, each with that."""
    on_nodes = (
        (workload, next((slot.node for slot in allocation.open_slots if slot.node in evicted), None))
        for workload, allocation in evicting
        if grace_left_s(workload, now)
    )
    return {
        workload.id: f"the maintenance {evicted[node]} of node {node} began"
        for workload, node in on_nodes
        if node is not None
    }
