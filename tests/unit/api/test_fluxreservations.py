"""FluxReservations are read with the defaults of the CRD, and with what somebody else left out."""

from __future__ import annotations

import msgspec
from support.builders import make_reservation

from fluxqueue.api.fluxreservations import AtStart, FluxReservation, FluxReservationStatus, ReservedNodes


def test_what_is_left_out_has_the_defaults_of_the_schema() -> None:
    read = msgspec.convert(
        {"metadata": {"name": "course"}, "spec": {"start": "2026-12-01T09:00:00Z"}}, FluxReservation
    )
    assert (read.spec.time_zone, read.spec.maintenance, read.spec.at_start) == ("UTC", False, AtStart.LEAVE)
    assert read.spec.nodes == ReservedNodes()
    assert read.status == FluxReservationStatus()


def test_nodes_are_named_selected_or_counted() -> None:
    for nodes in ({"count": 2}, {"selector": {"pool": "gpu"}}, {"names": ["n1"]}):
        read = msgspec.convert(
            make_reservation("course", start="2026-12-01T09:00:00Z", nodes=nodes, maintenance=True),
            FluxReservation,
        )
        assert msgspec.to_builtins(read.spec.nodes) == nodes
