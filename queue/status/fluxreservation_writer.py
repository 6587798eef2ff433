"""Writes the status of FluxReservations: at most every few seconds, only if it differs,
and from what the last cycle set aside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fluxqueue.api.fluxreservations import FluxReservation, FluxReservationStatus
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.kinds import FLUXRESERVATIONS
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.model.reservation_plans import BookedReservation
from fluxqueue.queue.status.fluxreservation_status import (
    conflicts_of,
    reservation_status,
    usage_by_reservation,
)
from fluxqueue.queue.status.usage import WorkUsage
from fluxqueue.queue.status.work_status_writer import WorkStatusWriter
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["FluxReservationWriter"]


class FluxReservationWriter(WorkStatusWriter[FluxReservation]):
    """Keeps the status of FluxReservations current. Without FluxReservations it does nothing.

    Parameters
    ----------
    api, caches, ledger
        Where the status is written, which FluxReservations exist, and the queue.
    booked
        Returns what is set aside, by name. Call `resync` when that changed.
    recorder
        For Events on reservations whose status cannot be written.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        booked: Callable[[], Mapping[str, BookedReservation]],
        recorder: EventRecorder | None = None,
    ) -> None:
        super().__init__(FLUXRESERVATIONS, caches.fluxreservations, api, ledger, recorder)
        self._caches = caches
        self._booked = booked

    def reservation_changed(self, _change: Change[FluxReservation]) -> None:
        """Compare every reservation: one may be new."""
        self.resync()

    def book_changed(self) -> None:
        """Compare every reservation: nodes or present times changed."""
        self.resync()

    async def _write(self, names: list[str]) -> None:
        live = list(self._ledger.live())
        usage = usage_by_reservation(self._ledger.all(), live)
        nodes = {node.metadata.name for node in self._caches.nodes.list()}
        all_booked = self._booked()
        by_node = _by_node(live)
        for name in names:
            # a thousand reservations are compared with each other: the leader has more to do meanwhile
            await asyncio.sleep(0)
            reservation, booked = self._objects.get("", name), all_booked.get(name)
            if (
                reservation is None
                or booked is None
                or booked.plan is not self._caches.reservations.plans.get(name)
            ):
                continue  # the next cycle knows it, and calls for the comparison
            try:
                here = sorted({number for node in booked.nodes for number in by_node.get(node, ())})
                conflicts = conflicts_of(booked, all_booked, [live[number] for number in here], nodes)
                status = reservation_status(
                    reservation, booked, usage.get(name, WorkUsage()), conflicts, self._ledger.wall()
                )
                if status != reservation.status:
                    await self._patch(name, status, _own_fields(status))
            except Exception as error:
                self._names.fail(name, error)


def _by_node(live: Sequence[tuple[Workload, Allocation]]) -> dict[str, list[int]]:
    """Return the places in the list of the work that holds each node."""
    by_node: dict[str, list[int]] = {}
    for number, (_, allocation) in enumerate(live):
        for node in {slot.node for slot in allocation.open_slots}:
            by_node.setdefault(node, []).append(number)
    return by_node


def _own_fields(status: FluxReservationStatus) -> dict[str, Any]:
    """Return what only reservations show; nothing is null, so that it is removed."""
    return {
        "state": status.state.value if status.state is not None else None,
        "nodes": status.nodes,
        "nodeCount": status.node_count,
        "start": status.start,
        "end": status.end,
        "conflicts": status.conflicts,
    }
