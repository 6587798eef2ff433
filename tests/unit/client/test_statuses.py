from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.jobs import Job
from fluxqueue.client import State
from fluxqueue.client.statuses import status_of, status_of_job


def fluxjob(**status: object) -> FluxJob:
    return msgspec.convert(
        {"metadata": {"creationTimestamp": "2026-01-02T03:00:00Z"}, "spec": {"queue": "q"}, "status": status},
        FluxJob,
    )


def test_a_reserved_start_comes_before_an_estimate() -> None:
    status = status_of(
        fluxjob(state="Pending", eta="2026-01-02T05:00:00Z", reservedAt="2026-01-02T04:00:00Z")
    )
    assert (status.eta, status.reserved) == (datetime(2026, 1, 2, 4, tzinfo=UTC), True)
    assert not status_of(fluxjob(eta="2026-01-02T05:00:00Z")).reserved


def test_a_fluxjob_without_a_status_is_pending_since_its_creation() -> None:
    status = status_of(fluxjob())
    assert (status.state, status.submitted_at, status.queue) == (
        State.PENDING,
        datetime(2026, 1, 2, 3, tzinfo=UTC),
        "q",
    )
    assert not status.ended


def test_what_cannot_be_read_is_left_out() -> None:
    status = status_of(fluxjob(state="Resting", nodes="node-[", eta="soon"))
    assert (status.state, status.nodes, status.eta) == (State.PENDING, (), None)


def test_nodes_are_names_in_the_order_of_ranks() -> None:
    assert status_of(fluxjob(state="Running", nodes="node-[1-2],node-1")).nodes == (
        "node-1",
        "node-2",
        "node-1",
    )


def test_started_is_true_from_the_start_on_and_for_what_ran() -> None:
    assert [
        status_of(fluxjob(state=state)).started
        for state in ("Pending", "Allocated", "Running", "Draining", "Completed")
    ] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert status_of(fluxjob(state="Failed", startedAt="2026-01-02T03:00:00Z")).started
    assert not status_of(fluxjob(state="Cancelled")).started


def test_a_job_without_a_fluxjob_tells_only_its_end() -> None:
    def of(*conditions: str) -> State:
        listed = [{"type": each, "status": "True"} for each in conditions]
        return status_of_job(msgspec.convert({"status": {"conditions": listed}}, Job)).state

    assert (of(), of("Suspended"), of("Complete"), of("Failed")) == (
        State.PENDING,
        State.PENDING,
        State.COMPLETED,
        State.FAILED,
    )
