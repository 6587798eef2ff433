"""Writes the status of FluxReservations: at most every few seconds, only if it differs, and from what the last cycle set aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fluxqueue.api.fluxreservations import FluxReservation, FluxReservationStatus
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.kinds import FLUXRESERVATIONS
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.reservation_plans import BookedReservation
from fluxqueue.queue.status.fluxreservation_status import conflicts_of, reservation_status, usage_by_reservation
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

    async def _write(self, names: list[str]) -> None:
        live = list(self._ledger.live())
        usage = usage_by_reservation(self._ledger.all(), live)
        nodes = {node.metadata.name for node in self._caches.nodes.list()}
        all_booked = self._booked()
        for name in names:
            reservation, booked = self._objects.get("", name), all_booked.get(name)
            if reservation is None or booked is None or booked.plan is not self._caches.reservations.plans.get(name):
                continue  # the next cycle knows it, and calls for the comparison
            try:
                conflicts = conflicts_of(booked, all_booked, live, nodes)
                status = reservation_status(reservation, booked, usage.get(name, WorkUsage()), conflicts, self._ledger.clock())
                if status != reservation.status:
                    await self._patch(name, status, _own_fields(status))
            except Exception as error:
                self._names.fail(name, error)


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
