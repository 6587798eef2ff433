"""Predicted durations, and the planned ends that follow from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.records import FluxionJobId, WorkloadId
from fluxqueue.queue.scheduling.policies.passes import HeldReservation
from fluxqueue.queue.scheduling.policies.predictions import (
    DurationHistory,
    end_beyond_prediction,
    lengthened_end,
)

ANN, BOB = ("ann", "", "default"), ("bob", "", "default")
START = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)


def test_the_mean_of_the_last_two_run_times_is_predicted() -> None:
    history = DurationHistory()
    for ran_s in (9_000, 300, 500):
        history.add(ANN, ran_s)
    assert history.predicted(ANN, 3_600) == 400
    history.add(ANN, 1_500)
    assert history.predicted(ANN, 3_600) == 1_000


@pytest.mark.parametrize(
    ("ran", "stated_s"),
    [((), 3_600), ((300,), 3_600), ((300, 500), 400), ((300, 500), None), ((1, 1), 60)],
    ids=str,
)
def test_there_is_no_prediction_without_history_or_beyond_what_was_stated(
    ran: tuple[int, ...], stated_s: int | None
) -> None:
    history = DurationHistory()
    for ran_s in ran:
        history.add(ANN, ran_s)
    assert history.predicted(ANN, stated_s) is None


def test_nobody_is_predicted_by_the_work_of_others() -> None:
    history = DurationHistory()
    history.add(ANN, 300)
    history.add(BOB, 300)
    assert history.predicted(ANN, 3_600) is None


def test_a_prediction_is_at_least_a_minute() -> None:
    history = DurationHistory()
    history.add(ANN, 1)
    history.add(ANN, 1)
    assert history.predicted(ANN, 3_600) == 60


@pytest.mark.parametrize(
    ("end_min", "now_min", "expected_min"),
    [(10, 10, 20), (20, 20, 40), (40, 40, 60), (10, 30, 31), (60, 60, 66)],
    ids=["twice as long", "again", "as stated", "noticed late", "overrun"],
)
def test_work_beyond_its_prediction_is_planned_for_twice_as_long(
    end_min: int, now_min: int, expected_min: int
) -> None:
    end, now = START + timedelta(minutes=end_min), START + timedelta(minutes=now_min)
    assert end_beyond_prediction(START, end, now, 3_600) == START + timedelta(minutes=expected_min)


def reservation(start: int, *nodes: str) -> HeldReservation:
    return HeldReservation(
        WorkloadId(1), FluxionJobId(1), start, start + 100, tuple(NodeShare(node) for node in nodes)
    )


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ((), 500),
        ((reservation(300, "a"),), 300),
        ((reservation(300, "c"),), 500),
        ((reservation(600, "a"),), 500),
        ((reservation(50, "b"),), 100),
    ],
    ids=["no reservation", "before its start", "elsewhere", "after the stated end", "never sooner"],
)
def test_a_predicted_end_becomes_the_stated_one_where_no_reservation_is_in_the_way(
    held: tuple[HeldReservation, ...], expected: int
) -> None:
    assert lengthened_end(100, 500, ["a", "b"], held) == expected
