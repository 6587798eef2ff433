from datetime import UTC, datetime, timedelta

import pytest

from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.pinwindows import MARGIN, format_pin_until, pin_until, pin_window

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("pods", "seconds"), [(1, 30.05), (100, 35), (10_000, 530), (1_000_000, 1800)])
def test_a_window_grows_with_the_pods_up_to_half_an_hour(pods: int, seconds: float) -> None:
    assert pin_window(pods) == timedelta(seconds=seconds)


def test_the_window_is_longer_while_the_job_controller_is_behind() -> None:
    assert pin_window(1, 30, jobs_ahead=600) == timedelta(seconds=90, milliseconds=50)
    assert pin_window(1, 30, jobs_ahead=10**6) == timedelta(minutes=30)


def test_what_is_written_is_read_again() -> None:
    written = format_pin_until(NOON.astimezone() + timedelta(milliseconds=900))
    assert written == "2026-01-01T12:00:00Z"
    assert pin_until(ObjectMeta(annotations={"fluxqueue/pin-until": written})) == NOON


@pytest.mark.parametrize("text", [None, "", "soon", "2026-01-01T12:00:00", "12"])
def test_without_a_time_the_window_is_closed(text: str | None) -> None:
    meta = ObjectMeta(annotations={"fluxqueue/pin-until": text} if text is not None else None)
    assert pin_until(meta) < datetime(1900, 1, 1, tzinfo=UTC)


def test_a_template_that_holds_its_node_pins_for_ever() -> None:
    meta = ObjectMeta(
        labels={"fluxqueue/pinned": "yes"}, annotations={"fluxqueue/pin-until": format_pin_until(NOON)}
    )
    assert pin_until(meta) > datetime(9000, 1, 1, tzinfo=UTC)
    assert pin_until(meta) + MARGIN > pin_until(meta), "what is added to it does not overflow"
