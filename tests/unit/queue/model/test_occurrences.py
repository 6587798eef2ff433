from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxqueue.api.fluxreservations import FluxReservationSpec
from fluxqueue.api.reservedtimes import read_times
from fluxqueue.queue.model.occurrences import Occurrence, merged, occurrences


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def starts(
    start: str, repeat: str | None, now: str, limit: int = 3, duration: str = "2h", zone: str = "UTC"
) -> list[str]:
    times = read_times(FluxReservationSpec(start=start, duration=duration, repeat=repeat, time_zone=zone))
    found = occurrences(times, at(now), limit)
    return [f"{datetime.fromtimestamp(each.start, UTC):%Y-%m-%dT%H:%M}" for each in found]


def test_a_single_time_is_there_until_it_is_over() -> None:
    assert starts("2026-12-01T08:00:00", None, "2026-11-01T00:00") == ["2026-12-01T08:00"]
    assert starts("2026-12-01T08:00:00", None, "2026-12-01T09:59") == ["2026-12-01T08:00"]
    assert starts("2026-12-01T08:00:00", None, "2026-12-01T10:00") == []


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        ("FREQ=DAILY", ["2026-12-03T08:00", "2026-12-04T08:00", "2026-12-05T08:00"]),
        ("FREQ=DAILY;INTERVAL=2", ["2026-12-03T08:00", "2026-12-05T08:00", "2026-12-07T08:00"]),
        ("FREQ=WEEKLY;BYDAY=TU", ["2026-12-08T08:00", "2026-12-15T08:00", "2026-12-22T08:00"]),
        ("FREQ=MONTHLY;BYDAY=1TU", ["2027-01-05T08:00", "2027-02-02T08:00", "2027-03-02T08:00"]),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", ["2026-12-31T08:00", "2027-01-31T08:00", "2027-02-28T08:00"]),
        ("FREQ=DAILY;COUNT=4", ["2026-12-03T08:00", "2026-12-04T08:00"]),
        ("FREQ=DAILY;UNTIL=20261203T080000Z", ["2026-12-03T08:00"]),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", []),
    ],
)
def test_a_rule_gives_the_present_time_and_those_to_come(repeat: str, expected: list[str]) -> None:
    assert starts("2026-12-01T08:00:00", repeat, "2026-12-03T09:00") == expected


@pytest.mark.parametrize("until", ["99991231", "99991231T235959", "99991231T235959Z"])
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_rule_until_the_last_year_there_is_goes_on(until: str, zone: str) -> None:
    found = starts("2026-12-01T00:00:00", f"FREQ=DAILY;UNTIL={until}", "2026-12-03T15:00", limit=2, zone=zone)
    assert len(found) == 2


def test_a_reservation_keeps_its_hour_when_the_clock_is_changed() -> None:
    found = starts("2026-03-28T08:00:00", "FREQ=DAILY", "2026-03-28T00:00", 2, zone="Europe/Berlin")
    assert found == ["2026-03-28T07:00", "2026-03-29T06:00"]


def test_a_beginning_that_the_clock_skips_is_an_hour_later() -> None:
    assert starts("2026-03-29T02:30:00", None, "2026-03-01T00:00", zone="Europe/Berlin") == [
        "2026-03-29T01:30"
    ]


def test_a_time_that_lasts_longer_than_the_rule_repeats_is_found_from_inside() -> None:
    assert starts("2026-12-01T00:00:00", "FREQ=DAILY", "2026-12-04T00:00", 9, "2d")[0] == "2026-12-03T00:00"


def test_times_that_overlap_or_touch_become_one() -> None:
    assert merged([Occurrence(5, 9), Occurrence(1, 3), Occurrence(3, 4), Occurrence(6, 7)]) == (
        Occurrence(1, 4),
        Occurrence(5, 9),
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 9)).map(
            lambda each: Occurrence(each[0], each[0] + each[1])
        )
    )
)
def test_merged_times_cover_the_same_seconds_and_are_apart(times: list[Occurrence]) -> None:
    joined = merged(times)
    assert {s for each in joined for s in range(each.start, each.end)} == {
        s for each in times for s in range(each.start, each.end)
    }
    assert all(later.start > earlier.end for earlier, later in pairwise(joined))
