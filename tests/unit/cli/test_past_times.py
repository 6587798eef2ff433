"""Times on the command line: a date, a time, or how long ago."""

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.past_times import read_since, read_until, require_past


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("2025-11-01", "2025-11-01T00:00:00+01:00"),
        ("2025-11-01T08:30", "2025-11-01T08:30:00+01:00"),
        ("2025-07-01", "2025-07-01T00:00:00+02:00"),
        ("2025-11-01T08:30:00Z", "2025-11-01T08:30:00Z"),
    ],
)
def test_a_time_without_a_zone_is_in_that_of_the_reader(given: str, read: str) -> None:
    assert read_since(given) == read_until(given) == datetime.fromisoformat(read)


def test_how_long_ago() -> None:
    assert timedelta(minutes=59) < datetime.now(UTC) - read_since("1h") < timedelta(minutes=61)


@pytest.mark.parametrize("text", ["soon", "0001-01-01", "0001-01-01T00:00:00+20:00", "x" * 1_000])
def test_what_is_no_time_is_refused_with_one_sentence(text: str) -> None:
    for flag, read in (("--since", read_since), ("--until", read_until)):
        with pytest.raises(
            argparse.ArgumentTypeError,
            match=rf"^{flag} is a time such as .* ago, such as 12h: '.{{4,60}}' is none$",
        ):
            read(text)


def test_since_a_time_to_come_is_refused() -> None:
    require_past(None)
    require_past(read_since("1h"))
    with pytest.raises(
        ClusterError,
        match="^error: since lies in the future: name a time that has passed, or how long ago: 12h, 7d$",
    ):
        require_past(datetime.now(UTC) + timedelta(days=1))
