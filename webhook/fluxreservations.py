"""Validation of FluxReservations beyond their schema:
their times, their rule, and a selector that no node can match.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluxqueue.api.fluxreservations import FluxReservation, FluxReservationSpec
from fluxqueue.api.reservedtimes import InvalidTimes, read_times
from fluxqueue.webhook.decisions import AdmissionSettings
from fluxqueue.webhook.labels import bad_labels
from fluxqueue.webhook.problems import ObjectProblems

__all__ = ["validate_fluxreservation"]


def validate_fluxreservation(reservation: FluxReservation, settings: AdmissionSettings) -> ObjectProblems:
    """Return what is wrong with a reservation as it would be stored; it depends on no setting."""
    spec = reservation.spec
    errors = list(_errors(spec))
    warnings = [] if errors else list(_warnings(spec))
    return ObjectProblems(errors=tuple(errors), warnings=tuple(warnings))


def _errors(spec: FluxReservationSpec) -> Iterator[str]:
    try:
        read_times(spec)
    except InvalidTimes as error:
        yield str(error)
    yield from bad_labels("spec.nodes.selector", spec.nodes.selector or {}, "no node can have it")


def _warnings(spec: FluxReservationSpec) -> Iterator[str]:
    if spec.namespaces == [] or spec.queues == []:
        field = "spec.namespaces" if spec.namespaces == [] else "spec.queues"
        yield f"{field} is empty: nobody may use this reservation"
