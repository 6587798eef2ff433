"""The FluxReservation: nodes that an administrator sets aside, at certain times, for some people or for
maintenance.

FluxReservations are cluster-scoped. Slurm's reservations (``scontrol create reservation``) are what they are
modelled on.
"""

from __future__ import annotations

from enum import StrEnum

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.workstatus import WorkStatus

__all__ = [
    "AtStart",
    "FluxReservation",
    "FluxReservationSpec",
    "FluxReservationStatus",
    "ReservationState",
    "ReservedNodes",
]


class AtStart(StrEnum):
    """What happens to the nodes of a maintenance when it begins."""

    LEAVE = "leave"
    """Nothing: what runs there may run over."""
    DRAIN = "drain"
    """They are cordoned; what runs there may run over."""
    EVICT = "evict"
    """They are cordoned, and the queue's work there is requeued."""


class ReservationState(StrEnum):
    """Where a reservation is in its times."""

    PLANNED = "Planned"
    ACTIVE = "Active"
    OVER = "Over"
    INVALID = "Invalid"


class ReservedNodes(PartialObject, frozen=True):
    """Which nodes: ``names``; or all with the labels of ``selector``;
    or ``count`` of those, of any nodes without a selector.
    """

    count: int | None = None
    selector: dict[str, str] | None = None
    names: list[str] | None = None


class FluxReservationSpec(PartialObject, frozen=True):
    """When, which nodes, and for whom.

    ``start`` and ``end`` are RFC 3339; without an offset they are times of ``time_zone``. ``repeat`` is an
    RRULE (RFC 5545).
    """

    start: str = ""
    end: str | None = None
    duration: str | None = None
    repeat: str | None = None
    time_zone: str = "UTC"
    nodes: ReservedNodes = ReservedNodes()
    namespaces: list[str] | None = None
    queues: list[str] | None = None
    maintenance: bool = False
    at_start: AtStart = AtStart.LEAVE


class FluxReservationStatus(WorkStatus, frozen=True):
    """Its nodes as an RFC 29 hostlist, its present or next time, what it conflicts with,
    and the work that names it.
    """

    state: ReservationState | None = None
    nodes: str = ""
    node_count: int = 0
    start: str | None = None
    end: str | None = None
    conflicts: list[str] | None = None


class FluxReservation(PartialObject, frozen=True):
    """A FluxReservation."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FluxReservationSpec = FluxReservationSpec()
    status: FluxReservationStatus = FluxReservationStatus()
