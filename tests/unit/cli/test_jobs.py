from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli.jobs import headers, info, order, row, times
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def fluxjob(
    name: str = "lammps",
    *,
    queue: str = "default",
    pods: int = 4,
    hold: bool = False,
    duration: int = 0,
    **status: object,
) -> FluxJob:
    return FluxJob(
        metadata=ObjectMeta(
            name=f"job-{name}-1a2b3", namespace="default", uid=name, creation_timestamp="2026-03-02T11:50:00Z"
        ),
        spec=FluxJobSpec(
            object_ref=ObjectRef(kind="Job", name=name),
            queue=queue,
            pods=pods,
            hold=hold,
            duration_seconds=duration,
        ),
        status=msgspec.convert(status, FluxJobStatus),
    )


@pytest.mark.parametrize(
    ("job", "narrow", "wide"),
    [
        pytest.param(fluxjob(), "", "", id="not looked at yet"),
        pytest.param(
            fluxjob(
                state="Pending",
                reason="WaitingForNodes",
                message="needs 24 cpu, 8 free",
                position=2,
                eta="2026-03-02T12:05:00Z",
            ),
            "WaitingForNodes, position 2, eta in 5m",
            "WaitingForNodes: needs 24 cpu, 8 free, position 2, eta in 5m",
            id="waiting with an estimate",
        ),
        pytest.param(
            fluxjob(
                state="Pending",
                reason="WaitingForNodes",
                eta="2026-03-02T12:05:00Z",
                reservedAt="2026-03-02T12:01:00Z",
            ),
            "WaitingForNodes, reserved in 60s",
            "WaitingForNodes, reserved in 60s",
            id="a reservation says more than an estimate",
        ),
        pytest.param(
            fluxjob(state="Pending", reason="BlockedByReservation", eta="2026-03-02T11:59:00Z"),
            "BlockedByReservation, due now",
            "BlockedByReservation, due now",
            id="an estimate that has passed is not shown as a start",
        ),
        pytest.param(
            fluxjob(state="Pending", reason="Unsatisfiable", message="64 cpu, largest node 8", position=3),
            "Unsatisfiable",
            "Unsatisfiable: 64 cpu, largest node 8",
            id="what can never start has no place in the line",
        ),
        pytest.param(fluxjob(hold=True, state="Pending"), "Held", "Held", id="held by hand"),
        pytest.param(fluxjob(state="Running", nodes="node-[0-3]"), "node-[0-3]", "node-[0-3]", id="running"),
        pytest.param(
            fluxjob(state="Running", nodes="node-[4,4]"),
            "node-4 (2)",
            "node-4 (2)",
            id="two pods on one node",
        ),
        pytest.param(
            fluxjob(state="Running", nodes=",".join(f"a{i}x" for i in range(20))),
            "a0x,a1x,a2x,a3x,a4x,a5x,a6x,a7x,a8x,a9x,+ (20 nodes)",
            ",".join(f"a{i}x" for i in range(20)),
            id="many nodes",
        ),
        pytest.param(
            fluxjob(state="Running", nodes="n1", reason="BindFailed"),
            "n1 (BindFailed)",
            "n1 (BindFailed)",
            id="trouble while it runs",
        ),
        pytest.param(
            fluxjob(state="Completed", outcome="Succeeded", message="x"),
            "Succeeded",
            "Succeeded: x",
            id="done",
        ),
        pytest.param(
            fluxjob(state="Failed", outcome="Failed", message="exit 3"),
            "Failed: exit 3",
            "Failed: exit 3",
            id="failed",
        ),
        pytest.param(fluxjob(state="Cancelled"), "Cancelled", "Cancelled", id="cancelled without an outcome"),
    ],
)
def test_the_last_column_tells_what_matters_now(job: FluxJob, narrow: str, wide: str) -> None:
    assert info(job, NOW) == narrow
    assert info(job, NOW, wide=True) == wide


@pytest.mark.parametrize(
    ("job", "cells"),
    [
        pytest.param(
            fluxjob(state="Pending", reason="WaitingForNodes", position=2, eta="2026-03-02T12:05:00Z"),
            ["2", "in 5m", "WaitingForNodes"],
            id="waiting",
        ),
        pytest.param(
            fluxjob(state="Pending", reason="WaitingForNodes", position=1, reservedAt="2026-03-02T11:59:00Z"),
            ["1", "due now", "WaitingForNodes, reserved"],
            id="reserved",
        ),
        pytest.param(
            fluxjob(state="Pending", reason="Unsatisfiable", position=3),
            ["", "", "Unsatisfiable"],
            id="never",
        ),
        pytest.param(
            fluxjob(duration=600, state="Running", nodes="n1", startedAt="2026-03-02T11:55:00Z"),
            ["", "5m left", "n1"],
            id="running",
        ),
        pytest.param(
            fluxjob(duration=60, state="Running", nodes="n1", startedAt="2026-03-02T11:55:00Z"),
            ["", "4m over", "n1"],
            id="too long",
        ),
        pytest.param(
            fluxjob(state="Running", nodes="n1", startedAt="2026-03-02T11:55:00Z"),
            ["", "", "n1"],
            id="without a duration",
        ),
    ],
)
def test_place_and_start_have_columns_of_their_own(job: FluxJob, cells: list[str]) -> None:
    assert row(job, NOW)[-3:] == cells
    assert headers()[-3:] == ["POS", "START", "INFO"]


def test_work_that_goes_on_with_fewer_pods_has_more_time_left() -> None:
    jobspec = jobspec_of("default/lammps", [SizedPods({"cpu": Decimal(1)}, 4)], duration_s=600, min_pods=1)
    smaller = fluxjob(duration=600, state="Running", nodes="n[1-2]", startedAt="2026-03-02T11:55:00Z")
    smaller = msgspec.structs.replace(smaller, spec=msgspec.structs.replace(smaller.spec, jobspec=jobspec))
    assert row(smaller, NOW)[-2:] == ["15m left", "n[1-2]"]


@pytest.mark.parametrize(
    ("status", "waited", "ran"),
    [
        pytest.param({}, "10m", "", id="since the FluxJob exists"),
        pytest.param({"submittedAt": "2026-03-02T11:59:00Z"}, "60s", "", id="still waiting"),
        pytest.param(
            {"submittedAt": "2026-03-02T11:50:00Z", "startedAt": "2026-03-02T11:59:30Z"},
            "9m30s",
            "30s",
            id="running",
        ),
        pytest.param(
            {
                "submittedAt": "2026-03-02T11:50:00Z",
                "startedAt": "2026-03-02T11:52:00Z",
                "finishedAt": "2026-03-02T11:55:00Z",
            },
            "2m",
            "3m",
            id="finished",
        ),
        pytest.param(
            {"submittedAt": "2026-03-02T11:50:00Z", "finishedAt": "2026-03-02T11:51:00Z"},
            "60s",
            "",
            id="cancelled before it ran",
        ),
    ],
)
def test_waiting_and_running_stop_when_they_are_over(status: dict[str, Any], waited: str, ran: str) -> None:
    assert times(fluxjob(**status), NOW) == (waited, ran)


def test_what_runs_stands_before_what_waits_before_what_ended() -> None:
    jobs = [
        fluxjob("old", state="Completed", finishedAt="2026-03-02T11:00:00Z"),
        fluxjob("new", state="Failed", finishedAt="2026-03-02T11:30:00Z"),
        fluxjob("second", state="Pending", position=2),
        fluxjob("unplaced", state="Pending", submittedAt="2026-03-02T10:00:00Z"),
        fluxjob("first", state="Pending", position=1),
        fluxjob("later", state="Running", submittedAt="2026-03-02T11:40:00Z"),
        fluxjob("earlier", state="Running", submittedAt="2026-03-02T11:20:00Z"),
        fluxjob("matched", state="Allocated"),
        fluxjob("odd", state="Hibernating"),
    ]
    ordered = [job.spec.object_ref.name for job in sorted(jobs, key=order)]
    assert ordered == ["earlier", "later", "matched", "first", "second", "unplaced", "new", "old", "odd"]


def test_rows_have_as_many_cells_as_there_are_titles() -> None:
    job = fluxjob(state="Running", nodes="n1", jobid=7)
    for wide in (False, True):
        for namespaces in (False, True):
            assert len(headers(wide=wide, namespaces=namespaces)) == len(
                row(job, NOW, wide=wide, namespaces=namespaces)
            )
