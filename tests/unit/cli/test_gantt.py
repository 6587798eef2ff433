from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from support.plugin_server import fluxjob

from fluxqueue.api.fluxreservations import FluxReservation, FluxReservationSpec, FluxReservationStatus
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli.gantt import Chart, chart, job_bars, reservation_bars

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
VIEW = Chart(NOON, timedelta(hours=10), width=60, ascii_only=True)


def reservation(
    name: str, start: str, duration: str, *, maintenance: bool = False, repeat: str | None = None
) -> FluxReservation:
    spec = FluxReservationSpec(start=start, duration=duration, maintenance=maintenance, repeat=repeat)
    return FluxReservation(
        metadata=ObjectMeta(name=name), spec=spec, status=FluxReservationStatus(node_count=4)
    )


RESERVATIONS = [
    reservation("later", "2026-03-02T20:00:00Z", "1h", maintenance=True),
    reservation("course", "2026-03-01T14:00:00Z", "2h", repeat="FREQ=DAILY"),
    reservation("over", "2026-03-01T14:00:00Z", "2h"),
    reservation("wrong", "tomorrow", "2h"),
]
JOBS = [
    fluxjob("guess", state="Pending", eta="2026-03-02T15:00:00Z"),
    fluxjob("next", state="Pending", reservedAt="2026-03-02T13:00:00Z"),
    fluxjob("long", state="Running", nodes="n[1,1,2]", startedAt="2026-03-02T10:00:00Z"),
    fluxjob("unknown", state="Pending"),
    fluxjob("done", state="Completed", startedAt="2026-03-02T10:00:00Z"),
]


def test_what_is_set_aside_comes_first_and_what_is_over_does_not_come() -> None:
    bars = reservation_bars(RESERVATIONS, VIEW)
    assert [(bar.label, bar.kind) for bar in bars] == [
        ("course (4 nodes)", "aside"),
        ("later (4 nodes)", "maintenance"),
    ]
    assert bars[0].times[0] == (NOON + timedelta(hours=2), NOON + timedelta(hours=4))


def test_work_comes_in_the_order_running_reserved_estimated() -> None:
    bars = job_bars(JOBS, VIEW)
    assert [(bar.label, bar.kind) for bar in bars] == [
        ("job/long (2 nodes)", "runs"),
        ("job/next", "reserved"),
        ("job/guess", "planned"),
    ]
    assert job_bars(JOBS, VIEW, namespaces=True)[0].label == "default/job/long (2 nodes)"


def test_the_picture_has_a_scale_and_a_legend_and_fits() -> None:
    text = chart([*reservation_bars(RESERVATIONS, VIEW), *job_bars(JOBS, VIEW)], VIEW)
    lines = text.splitlines()
    assert lines[0].split() == ["|12:00", "|14:00", "|16:00", "|18:00", "|20:00"]
    assert lines[1] == "course (4 nodes)            RRRRRRRR"
    assert lines[2] == "later (4 nodes)                                     MMMM"
    assert lines[3] == "job/long (2 nodes)  #"
    assert lines[4] == "job/next                ="
    assert lines[-1] == "R set aside for people, M maintenance, # runs, = nodes are reserved, . estimated"
    assert max(map(len, lines[:-1])) <= 60


def test_work_without_an_end_lasts() -> None:
    job = fluxjob("service", state="Running", nodes="n1", startedAt="2026-03-02T10:00:00Z")
    endless = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, duration_seconds=0))
    ((start, end),) = job_bars([endless], VIEW)[0].times
    assert (start, end) == (NOON - timedelta(hours=2), NOON + timedelta(hours=10))


@pytest.mark.parametrize(
    ("length", "form"), [(10, "12:00"), (24 * 7, "03-02 12:00"), (24 * 60, "2026-03-02")]
)
def test_a_long_picture_has_dates(length: int, form: str) -> None:
    view = Chart(NOON, timedelta(hours=length), width=100)
    assert f"|{form}" in chart(job_bars(JOBS, view), view).splitlines()[0]
