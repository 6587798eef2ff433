from datetime import timedelta
from typing import Any

import pytest
from support.dashboard_site import NOW, at, job, node

from fluxqueue.dashboard.access import EVERYTHING, Visible
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.node_map import node_map
from fluxqueue.dashboard.overview import BIN_S, BINS, Curve, overview_of, use_curve

BLUE = Visible(frozenset({"blue"}))


def curve(*rows: JobRow, visible: Visible = EVERYTHING) -> Curve:
    return use_curve(rows, visible, ("cpu",), NOW)


def ran(name: str, begin: float, end: float | None, *, namespace: str = "blue", cpu: int = 2) -> JobRow:
    state: dict[str, Any] = (
        {"state": "Running"} if end is None else {"state": "Completed", "finishedAt": at(end)}
    )
    return JobRow(job(name, namespace, cpu=cpu, allocatedAt=at(begin), nodes="node-1", **state))


def test_waiting_work_is_counted_by_queue_account_and_reason() -> None:
    rows = [
        JobRow(job("a", account="physics", reason="WaitingForNodes")),
        JobRow(job("b", account="physics", reason="Held", spec={"queue": "night"})),
        JobRow(job("c", account="climate", reason="WaitingForNodes")),
        JobRow(job("runs", account="climate", state="Running", cpu=4)),
    ]
    shown = overview_of(rows, None, NOW)
    assert [(line.name, line.jobs, line.percent) for line in shown.queues] == [
        ("default", 2, 100.0),
        ("night", 1, 50.0),
    ]
    assert [(line.name, line.jobs) for line in shown.accounts] == [("physics", 2), ("climate", 1)]
    assert [(line.name, line.jobs) for line in shown.reasons] == [("WaitingForNodes", 2), ("Held", 1)]
    assert [(line.name, line.jobs, line.cores) for line in shown.runners] == [("climate", 1, 4.0)]
    assert (shown.waiting, shown.live, shown.by_namespace) == (3, 1, False)


def test_without_accounts_work_is_counted_by_namespace() -> None:
    shown = overview_of([JobRow(job("a")), JobRow(job("b", "red", state="Running"))], None, NOW)
    assert shown.by_namespace
    assert [line.name for line in (*shown.accounts, *shown.runners)] == ["blue", "red"]


def test_the_next_starts_are_the_soonest_of_those_that_are_planned() -> None:
    rows = [
        JobRow(job("later", eta=at(900))),
        JobRow(job("soon", reservedAt=at(60))),
        JobRow(job("late", eta=at(-60))),
        JobRow(job("none")),
    ]
    shown = overview_of(rows, None, NOW)
    assert [(start, row.title) for start, row in shown.starts] == [
        (NOW - timedelta(seconds=60), "job/late"),
        (NOW + timedelta(seconds=60), "job/soon"),
        (NOW + timedelta(seconds=900), "job/later"),
    ]
    assert shown.unplanned == 1


def test_failures_are_those_of_the_last_day() -> None:
    rows = [
        JobRow(job("broken", state="Failed", finishedAt=at(-60))),
        JobRow(job("old", state="Failed", finishedAt=at(-90_000))),
        JobRow(job("fine", state="Completed", finishedAt=at(-60))),
        JobRow(job("odd", state="Failed", finishedAt="never")),
    ]
    shown = overview_of(rows, None, NOW)
    assert [row.title for row in shown.failures] == ["job/broken"]
    assert (shown.failed, shown.ended) == (1, 2)


def test_a_free_node_is_ready_and_has_no_work_of_anybody() -> None:
    rows = [
        JobRow(job("mine", state="Running", nodes="node-1")),
        JobRow(job("secret", "red", state="Running", nodes="node-2")),
    ]
    nodes = [node("node-1"), node("node-2"), node("node-3"), node("node-4", cordoned=True)]
    shown = overview_of(rows[:1], node_map(nodes, rows, BLUE, ()), NOW)
    assert (shown.free, shown.whole) == (1, 4)


def test_a_curve_has_the_means_of_five_minutes() -> None:
    found = curve(
        ran("whole", -100_000, None), ran("short", -BIN_S - 150, -BIN_S), ran("over", -100_000, -90_000)
    )
    assert len(found.times) == BINS
    assert found.times[-1] == NOW.timestamp() - BIN_S
    assert found.values["cpu"] == (*(2_000.0,) * (BINS - 2), 3_000.0, 2_000.0)


def test_the_part_that_has_not_ended_is_the_mean_up_to_now() -> None:
    later = NOW + timedelta(seconds=100)
    found = use_curve([ran("runs", -3_600, None)], EVERYTHING, ("cpu",), later)
    assert found.values["cpu"][-1] == pytest.approx(2_000.0)
    assert found.hours("cpu") == pytest.approx(2_000.0 * (3_600 + BIN_S) / 3_600)


def test_who_may_not_list_nodes_has_the_curve_of_his_own_work() -> None:
    rows = [ran("mine", -3_600, -600), ran("secret", -3_600, -600, namespace="red", cpu=8)]
    assert max(curve(*rows, visible=BLUE).values["cpu"]) == 2_000.0
    assert max(curve(*rows, visible=Visible(frozenset({"blue"}), nodes=True)).values["cpu"]) == 10_000.0


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"allocatedAt": "never"},
        {"state": "Completed", "allocatedAt": at(-60)},
        {"spec": {"jobspec": "{"}},
    ],
)
def test_work_of_which_the_times_or_amounts_are_not_known_is_not_in_the_curve(parts: dict[str, Any]) -> None:
    assert set(curve(JobRow(job("odd", **parts))).values["cpu"]) == {0.0}
