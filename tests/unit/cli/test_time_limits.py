import argparse

import pytest

from fluxqueue.cli.time_limits import read_time_limit, time_limit_seconds


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        pytest.param("30", 1_800, id="a number is minutes"),
        pytest.param("1.5", 90, id="also with a fraction"),
        pytest.param("90s", 90, id="a unit"),
        pytest.param("1.5h", 5_400, id="hours"),
        pytest.param("2:30", 150, id="minutes and seconds"),
        pytest.param("1:30:00", 5_400, id="a clock"),
        pytest.param("1-0", 86_400, id="days and hours"),
        pytest.param("1-12:30", 131_400, id="days, hours and minutes"),
        pytest.param("1-00:00:00", 86_400, id="days and a clock"),
    ],
)
def test_forms_of_slurm_and_of_flux_are_read(typed: str, seconds: int) -> None:
    assert time_limit_seconds(typed) == seconds


def test_no_manifest_has_a_number_without_a_unit() -> None:
    assert [read_time_limit(each) for each in ("30", "30m", "1-00:00:00", "01:30:00")] == [
        "30m",
        "30m",
        "86400s",
        "01:30:00",
    ]


@pytest.mark.parametrize("typed", ["soon", "1:99", "1-", "-1", "1:2:3:4", "1h30", "", "9" * 40])
def test_what_is_no_time_is_refused_with_the_forms(typed: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError,
        match=r"is not a duration: write 30 \(minutes\), 90s, 1.5h, 1:30:00 or 1-12:00:00",
    ):
        read_time_limit(typed)


@pytest.mark.parametrize("typed", ["0", "0-0", "9999999d"])
def test_no_time_and_ten_years_are_refused(typed: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"no time at all|longer than ten years"):
        read_time_limit(typed)
