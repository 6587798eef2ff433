import pytest
from support.dashboard_site import at, job

from fluxqueue.dashboard.job_rows import SORTS, JobRow, reason_of


def test_a_row_shows_why_work_waits_and_until_when() -> None:
    row = JobRow(job("lammps", reason="WaitingForNodes", message="needs 24 cpu", position=3, eta=at(600)))
    assert row.eta == at(600)
    for text in (
        "WaitingForNodes",
        'title="needs 24 cpu"',
        ">3<",
        "job/lammps",
        'data-kind="until"',
        'href="/jobs/blue/',
    ):
        assert text in row.html


def test_a_reservation_is_told_from_an_estimate() -> None:
    row = JobRow(job("a", eta=at(600), reservedAt=at(300)))
    assert row.eta == at(300)
    assert "nodes are reserved" in row.html


def test_running_work_has_its_nodes_and_no_estimate() -> None:
    row = JobRow(job("a", state="Running", nodes="node-[4,4]", eta=at(600), position=2, spec={"pods": 2}))
    assert row.eta == ""
    assert "node-4 (2)" in row.html
    assert row.shares["node-4"].pods == 2


def test_running_work_shows_how_much_of_its_time_has_passed_and_its_end() -> None:
    row = JobRow(job("a", state="Running", startedAt=at(-60)))
    assert f'data-begin="{at(-60)}" data-end="{at(240)}"' in row.html
    assert 'data-kind="end"' in row.html
    endless = JobRow(job("b", state="Running", startedAt=at(-60), spec={"durationSeconds": 0}))
    assert "<progress" not in endless.html
    assert 'data-kind="since"' in endless.html


def test_ended_work_shows_how_long_it_ran() -> None:
    row = JobRow(job("a", state="Completed", startedAt=at(-300), finishedAt=at(-60)))
    assert (row.ran, row.began, row.ends) == ("4m", None, None)
    assert 'data-kind="ago"' in row.html
    assert JobRow(job("b", state="Cancelled", finishedAt=at(-60))).ran == ""


def test_a_row_has_the_version_by_which_the_page_knows_it() -> None:
    assert 'data-version="7"' in JobRow(job("a", version=7)).html


def test_ended_work_has_its_outcome() -> None:
    assert "OutOfMemory" in JobRow(job("a", state="Failed", outcome="OutOfMemory", nodes="node-1")).html


def test_long_lists_of_nodes_are_shortened() -> None:
    assert (
        len(JobRow(job("a", state="Running", nodes=",".join(f"a{number}x" for number in range(300)))).nodes)
        <= 48
    )


def test_hostile_texts_are_escaped() -> None:
    html = JobRow(
        job("<script>", reason="WaitingForNodes", message='"><img src=x>', spec={"queue": "<b>"})
    ).html
    assert "<script>" not in html
    assert "<img" not in html
    assert "<b>" not in html


def test_work_held_by_hand_says_so_before_the_queue_does() -> None:
    assert reason_of(job("a", spec={"hold": True})) == "Held"
    assert reason_of(job("a", spec={"hold": True}, state="Running")) == ""


def test_running_work_comes_first_then_what_waits_by_position_then_what_ended_last() -> None:
    rows = [
        JobRow(job("ended-first", state="Completed", finishedAt=at(-900))),
        JobRow(job("ended-last", state="Failed", finishedAt=at(-10))),
        JobRow(job("second", position=2)),
        JobRow(job("no-place", reason="Unsatisfiable")),
        JobRow(job("first", position=1)),
        JobRow(job("runs", state="Running")),
        JobRow(job("odd", state="SomethingNew")),
    ]
    rows.sort(key=lambda row: row.key("order"))
    names = [row.title.partition("/")[2] for row in rows]
    assert names == ["runs", "first", "second", "no-place", "ended-last", "ended-first", "odd"]


@pytest.mark.parametrize("sort", SORTS)
def test_every_sort_has_a_key_that_compares(sort: str) -> None:
    rows = [
        JobRow(job("a")),
        JobRow(job("b", position=1, eta=at(5), state="Running")),
        JobRow(job("a", "red", submittedAt="never")),
    ]
    assert len(sorted(rows, key=lambda row: row.key(sort))) == 3
    assert rows[0].key(sort) is rows[0].key(sort)


def test_a_search_looks_at_names_reasons_and_nodes() -> None:
    row = JobRow(job("LAMMPS", state="Running", nodes="node-7"))
    for text in ("lammps", "blue", "default", "running", "node-7"):
        assert text in row.search
