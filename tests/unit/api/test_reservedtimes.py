from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest

from fluxqueue.api.fluxreservations import FluxReservationSpec
from fluxqueue.api.reservedtimes import InvalidTimes, ReservedTimes, read_times

BERLIN = ZoneInfo("Europe/Berlin")


def spec(**fields: str) -> FluxReservationSpec:
    return msgspec.convert(
        {"start": "2026-12-01T08:00:00", "timeZone": "Europe/Berlin", **fields}, FluxReservationSpec
    )


def test_a_time_without_an_offset_is_of_the_time_zone() -> None:
    times = read_times(spec(duration="4h"))
    assert times == ReservedTimes(datetime(2026, 12, 1, 8, tzinfo=BERLIN), 4 * 3_600, BERLIN)


def test_a_time_with_an_offset_is_converted_to_the_time_zone() -> None:
    times = read_times(spec(start="2026-12-01T07:00:00Z", end="2026-12-01T12:00:00", repeat="FREQ=WEEKLY"))
    assert (times.start.replace(tzinfo=None), times.length_s) == (
        datetime.fromisoformat("2026-12-01T08:00"),
        4 * 3_600,
    )
    assert times.rule is not None


def test_an_end_over_a_change_of_the_clock_is_what_it_says() -> None:
    assert read_times(spec(start="2026-10-25T00:00:00", end="2026-10-26T00:00:00")).length_s == 25 * 3_600


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"duration": "1h", "timeZone": "Mars/Olympus"}, "spec.timeZone: 'Mars/Olympus' is no time zone"),
        ({"duration": "1h", "timeZone": "../../etc/passwd"}, "spec.timeZone"),
        ({"duration": "1h", "timeZone": ""}, "spec.timeZone"),
        ({"duration": "1h", "timeZone": "Europe"}, "spec.timeZone"),
        ({"duration": "1h", "start": "tomorrow"}, "spec.start: 'tomorrow' is not a time"),
        ({"duration": "1h", "start": "2026-12-01"}, "spec.start"),
        ({"duration": "1h", "start": "1026-12-01T08:00:00"}, "is not a time from 2000 to 2200"),
        ({}, "either end or duration"),
        ({"duration": "1h", "end": "2026-12-01T09:00:00"}, "either end or duration"),
        ({"duration": "soon"}, "spec.duration: 'soon' is not a duration"),
        ({"end": "2026-12-01T08:00:00"}, "spec.end: .* is not after spec.start"),
        ({"end": "2126-12-01T08:00:00"}, "more than ten years"),
        ({"duration": "1h", "repeat": "FREQ=HOURLY"}, "spec.repeat: .*FREQ is one of"),
    ],
)
def test_refuses_what_says_no_time_naming_the_field(fields: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidTimes, match=complaint):
        read_times(spec(**fields))
