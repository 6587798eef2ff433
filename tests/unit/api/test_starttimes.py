from datetime import UTC, datetime, timedelta

import pytest

from fluxqueue.api.starttimes import InvalidStartTime, parse_start_time, read_start_time

CREATED = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-12-24T18:00:00Z", datetime(2026, 12, 24, 18, 0, tzinfo=UTC)),
        ("2026-12-24T18:00:00.5+01:00", datetime(2026, 12, 24, 17, 0, 0, 500_000, tzinfo=UTC)),
        ("+2h", CREATED + timedelta(hours=2)),
        ("+00:30:00", CREATED + timedelta(minutes=30)),
    ],
)
def test_reads_a_time_with_its_zone_and_a_duration_after_the_creation(text: str, time: datetime) -> None:
    assert parse_start_time(text, CREATED) == time


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a time"),
        ("tomorrow", "is not a time"),
        ("2026-12-24", "is not a time"),
        ("2026-13-24T18:00:00Z", "is not a time"),
        ("2026-12-24T18:00:00", "has no time zone"),
        ("0001-01-01T00:00:00+14:00", "is not a time of this calendar"),
        ("+soon", "is not a duration"),
        ("+", "is not a duration"),
        ("+3651d", "longer than ten years"),
        ("T" * 5_000, "is not a time"),
    ],
)
def test_refuses_what_is_no_time_and_says_what_is(text: str, complaint: str) -> None:
    with pytest.raises(InvalidStartTime, match=complaint):
        read_start_time(text)


def test_refuses_a_time_that_is_more_than_ten_years_after_the_creation() -> None:
    with pytest.raises(InvalidStartTime, match="more than ten years ahead: correct the year"):
        parse_start_time("2126-12-24T18:00:00Z", CREATED)
