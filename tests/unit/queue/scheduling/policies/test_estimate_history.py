from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fluxqueue.queue.scheduling.policies.demands import demand_of
from fluxqueue.queue.scheduling.policies.estimate_history import EstimateHistory
from fluxqueue.queue.scheduling.policies.overruns import extended_end

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def test_without_history_the_range_begins_now() -> None:
    assert EstimateHistory().soonest(100, 1100) == 100


def test_the_range_begins_before_nearly_all_former_starts() -> None:
    estimate_history = EstimateHistory()
    for took in range(20, 41):
        estimate_history.add(100, took)
    assert estimate_history.soonest(1000, 2000) == pytest.approx(1000 + 210, abs=2)


def test_an_estimate_in_the_past_stays() -> None:
    assert EstimateHistory().soonest(100, 90) == 90


@pytest.mark.parametrize(
    ("said_s", "late_s", "pushed_s"),
    [
        (5, 0, 5),
        (5, 7, 10),
        (30, 1, 15),
        (100, 1, 50),
        (100, 51, 100),
        (200, 1, 60),
        (3600, 0, 360),
        (3600, 360, 720),
        (86_400, 5, 8640),
    ],
)
def test_an_overrun_moves_the_end_by_half_of_short_work_and_a_tenth_of_long_work(
    said_s: int, late_s: int, pushed_s: int
) -> None:
    end = START + timedelta(seconds=said_s)
    assert extended_end(START, end, end + timedelta(seconds=late_s)) == end + timedelta(seconds=pushed_s)


def test_requests_of_one_family_differ_in_count_and_duration_only() -> None:
    text = (
        '{"resources": [{"type": "slot", "count": %d, "with": [{"type": "cpu", "count": %d}]}], '
        '"attributes": {"system": {"duration": %d}}}'
    )
    assert demand_of(text % (4, 10, 60)).family == demand_of(text % (8, 10, 600)).family
    assert demand_of(text % (4, 10, 60)).family != demand_of(text % (4, 20, 60)).family
    assert [demand_of(text % (count, 1, 1)).count for count in (4, 8)] == [4, 8]


def test_text_that_is_no_jobspec_is_a_family_of_its_own() -> None:
    assert demand_of("nonsense").family not in (demand_of("other").family, demand_of("{}").family)
