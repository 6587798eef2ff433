from typing import Any

import msgspec
import pytest

from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.webhook.decisions import AdmissionSettings
from fluxqueue.webhook.fluxreservations import validate_fluxreservation
from fluxqueue.webhook.problems import ObjectProblems

WEEKLY = {
    "start": "2026-12-01T08:00:00",
    "duration": "4h",
    "repeat": "FREQ=WEEKLY;BYDAY=TU",
    "timeZone": "Europe/Berlin",
}


def problems(**spec: Any) -> ObjectProblems:
    body = {
        "metadata": {"name": "course"},
        "spec": {**WEEKLY, "nodes": {"count": 2}, "namespaces": ["course"], **spec},
    }
    return validate_fluxreservation(msgspec.convert(body, FluxReservation), AdmissionSettings())


def test_a_reservation_that_makes_sense_is_accepted() -> None:
    assert problems() == ObjectProblems()


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"start": "on Tuesday"}, "spec.start: 'on Tuesday' is not a time"),
        ({"repeat": "FREQ=MINUTELY"}, "spec.repeat: 'FREQ=MINUTELY': FREQ is one of"),
        ({"timeZone": "Mars"}, "spec.timeZone: 'Mars' is no time zone"),
        ({"duration": "0s"}, "spec.duration: '0s' is no time at all"),
        (
            {"nodes": {"selector": {"a b": "c"}}},
            "spec.nodes.selector: 'a b' is no key of a label, no node can have it",
        ),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_field(spec: dict[str, Any], error: str) -> None:
    (found,) = problems(**spec).errors
    assert found.startswith(error)


@pytest.mark.parametrize("field", ["namespaces", "queues"])
def test_a_reservation_for_nobody_is_accepted_with_a_warning(field: str) -> None:
    assert problems(**{field: []}).warnings == (f"spec.{field} is empty: nobody may use this reservation",)
