import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fluxqueue.cli.throughput import StatsView, default_step, steps_of, write_steps

SINCE = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def job(
    state: str = "Completed", cores: float | None = 2, wait_s: float | None = 600, **times: str
) -> dict[str, Any]:
    return {
        "state": state,
        "hosts": "n1",
        "cores": cores,
        "wait_s": wait_s,
        **{f"{name}_at": f"2026-03-02T{time}:00Z" for name, time in times.items()},
    }


JOBS = [
    job(submitted="08:10", allocated="08:20", started="08:20", finished="09:20"),
    job("Failed", cores=1, submitted="07:10", started="08:30", finished="08:45", wait_s=4_800),
    job("Cancelled", cores=None, wait_s=None, submitted="09:10", finished="09:30"),
    job("Running", cores=1, submitted="09:30", allocated="09:30", started="09:30", wait_s=0),
]


def test_each_event_counts_in_its_step() -> None:
    first, second = steps_of(JOBS, SINCE, SINCE + 2 * HOUR, HOUR)
    assert (first.submitted, first.started, first.completed, first.failed, first.cancelled) == (1, 2, 0, 1, 0)
    assert (second.submitted, second.started, second.completed, second.failed, second.cancelled) == (
        2,
        1,
        1,
        0,
        1,
    )
    assert (first.wait(0.5), first.wait(0.95), second.wait(0.5)) == (4_800, 4_800, 0)


def test_cores_count_while_they_are_allocated_also_on_a_shared_node() -> None:
    first, second = steps_of(JOBS, SINCE, SINCE + 2 * HOUR, HOUR)
    assert first.cpu_s == 2 * 2_400 + 900
    assert second.cpu_s == 2 * 1_200 + 1_800


def test_as_a_table_with_a_line_for_all() -> None:
    out = io.StringIO()
    write_steps(
        steps_of(JOBS, SINCE, SINCE + 2 * HOUR, HOUR), StatsView(HOUR, cores=4, ascii_only=True), "", out
    )
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert [line[0] for line in lines] == ["TIME", "08:00", "09:00", "all"]
    assert lines[3] == ["all", "3", "3", "1", "1", "1", "10m", "80m", "2.8", "###.......", "34%"]
    out = io.StringIO()
    write_steps(steps_of([], SINCE, SINCE + HOUR, HOUR), StatsView(HOUR, titles=False), "", out)
    assert out.getvalue().split()[:3] == ["08:00", "0", "0"]


@pytest.mark.parametrize("cores", [None, 4])
def test_a_terminal_of_eighty_columns_is_not_exceeded(
    cores: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    write_steps(
        steps_of(JOBS, SINCE, SINCE + 2 * HOUR, HOUR), StatsView(HOUR, cores=cores, ascii_only=True), "", out
    )
    titles, *lines = out.getvalue().splitlines()
    assert all(len(line) <= 80 for line in (titles, *lines))
    assert ("USE" in titles.split()) is (cores is not None)
    assert "WAIT-P50" in titles.split()


def test_as_json_nothing_is_rounded() -> None:
    out = io.StringIO()
    write_steps(steps_of(JOBS, SINCE, SINCE + HOUR, HOUR), StatsView(HOUR, cores=4), "json", out)
    (first,) = json.loads(out.getvalue())
    assert (first["start"], first["seconds"], first["cpu_s"], first["wait_p50_s"]) == (
        "2026-03-02T08:00:00+00:00",
        3600,
        5700,
        4800,
    )
    assert first["use"] == pytest.approx(5700 / 14400)


@pytest.mark.parametrize(
    ("hours", "step"), [(1, 300), (24, 3_600), (24 * 7, 86_400), (24 * 365, 30 * 86_400)]
)
def test_a_step_divides_the_time_into_some_parts(hours: int, step: int) -> None:
    assert default_step(timedelta(hours=hours)).total_seconds() == step


def test_too_many_steps_and_rows_that_cannot_be_read_are_no_trouble() -> None:
    steps = steps_of([job(started="soon")], SINCE, SINCE + timedelta(days=3_650), timedelta(minutes=1))
    assert len(steps) == 1_000
    assert sum(step.started for step in steps) == 0
