"""Statuses wait longer while many workloads start and end, and ends never do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.controller_bench import managed_caches
from support.memory_api import MemoryApi
from support.queue_builders import a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.status.fluxjob_pace import FluxJobPace

WAITING = a_workload("lammps", uid="job-uid", reason=Reason.WAITING_FOR_NODES)


@pytest.fixture
def pace(ledger: RecordingLedger) -> FluxJobPace:
    return FluxJobPace(managed_caches(MemoryApi()), ledger, lambda: 0)


def a_running(ledger: RecordingLedger, number: int = 1) -> Workload:
    return replace(
        WAITING, id=WorkloadId(number), state=State.RUNNING, reason=Reason.NONE, started_at=ledger.clock()
    )


def start_and_end(pace: FluxJobPace, ledger: RecordingLedger, numbers: range) -> None:
    for number in numbers:
        pace.count(WorkloadId(number), a_running(ledger, number))
        pace.count(WorkloadId(number), None)


def test_many_starts_and_ends_make_statuses_wait_and_a_quiet_time_ends_that(
    pace: FluxJobPace, ledger: RecordingLedger
) -> None:
    running = a_running(ledger)
    before = pace.delay_s(running, exists=True), pace.too_early_to_write_s(running), pace.estimates_at_once
    start_and_end(pace, ledger, range(2, 32))
    assert pace.hurried
    assert pace.delay_s(running, exists=True) > before[0]
    assert pace.too_early_to_write_s(running) > before[1] == 0.0
    assert pace.estimates_at_once < before[2]
    ledger.now += timedelta(seconds=2)
    assert not pace.hurried, "half as many count, and fewer are not many"
    assert (
        pace.delay_s(running, exists=True),
        pace.too_early_to_write_s(running),
        pace.estimates_at_once,
    ) == before


def test_an_end_never_waits(pace: FluxJobPace, ledger: RecordingLedger) -> None:
    ended = replace(a_running(ledger), state=State.COMPLETED, outcome=Outcome.SUCCEEDED)
    quiet = pace.delay_s(ended, exists=True)
    start_and_end(pace, ledger, range(2, 102))
    assert pace.delay_s(ended, exists=True) == pace.delay_s(None, exists=True) == quiet
    assert pace.too_early_to_write_s(ended) == 0.0


def test_work_that_lasts_is_shown_in_the_end(pace: FluxJobPace, ledger: RecordingLedger) -> None:
    running = a_running(ledger)
    ledger.now += timedelta(seconds=11)
    start_and_end(pace, ledger, range(2, 102))
    assert pace.hurried
    assert pace.too_early_to_write_s(running) == 0.0


def test_other_changes_of_running_work_are_no_starts(pace: FluxJobPace, ledger: RecordingLedger) -> None:
    for number in range(200):
        pace.count(WorkloadId(1), replace(a_running(ledger), message=str(number)))
    assert not pace.hurried


@pytest.mark.parametrize("pods", [1, 64])
def test_the_pods_of_a_gang_that_starts_count(pace: FluxJobPace, ledger: RecordingLedger, pods: int) -> None:
    started = replace(a_running(ledger), submitted_at=ledger.clock())
    pace.count(
        WorkloadId(2),
        replace(WAITING, id=WorkloadId(2), state=State.ALLOCATED, pods=pods, allocated_at=ledger.clock()),
    )
    assert (pace.too_early_to_create_s(started) > 0) is (pods > 20)
    ledger.now += timedelta(seconds=20)
    started = replace(started, submitted_at=ledger.clock())
    assert pace.too_early_to_create_s(started) == 0.0, "a gang that does not start for long delays nothing"


def test_the_burst_of_a_namespace_keeps_no_fluxjobs_of_others_waiting(
    pace: FluxJobPace, ledger: RecordingLedger
) -> None:
    burst = replace(WAITING, id=WorkloadId(2), state=State.ALLOCATED, pods=64, allocated_at=ledger.clock())
    pace.count(burst.id, burst)
    own = replace(a_running(ledger), submitted_at=ledger.clock())
    others = replace(own, namespace="another")
    assert pace.delay_s(own, exists=False) > pace.delay_s(others, exists=False)
    assert pace.too_early_to_create_s(own) > pace.too_early_to_create_s(others) == 0.0
    pace.count(burst.id, None)
    assert pace.too_early_to_create_s(own) == 0.0


def test_in_a_long_burst_started_work_asks_ever_less_often_and_a_minute_at_most(
    pace: FluxJobPace, ledger: RecordingLedger
) -> None:
    started = replace(a_running(ledger), submitted_at=ledger.clock())
    waits = []
    for number in range(2, 100):
        burst = replace(WAITING, id=WorkloadId(number), state=State.ALLOCATED, pods=64)
        pace.count(burst.id, replace(burst, allocated_at=ledger.clock()))
        if not (wait_s := pace.too_early_to_create_s(started)):
            break
        waits.append(wait_s)
        ledger.now += timedelta(seconds=wait_s)
    assert (waits[0], max(waits), round(sum(waits))) == (1.0, 5.0, 60)
    assert len(waits) <= 20


def test_early_estimates_are_written_at_once_and_then_one_a_second(
    pace: FluxJobPace, ledger: RecordingLedger
) -> None:
    assert pace.early_estimates(2) == 20
    pace.count_early_estimates(20)
    assert [pace.early_estimates(2), pace.early_estimates(2), pace.early_estimates(60)] == [2, 4, 20]
    start_and_end(pace, ledger, range(2, 32))
    assert pace.early_estimates(2) == 0, "while many workloads start and end"
