import random
from typing import Any

import pytest
from support.dashboard_site import NOW, at, job

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.dashboard.access import EVERYTHING, Visible
from fluxqueue.dashboard.cluster import ClusterState
from fluxqueue.dashboard.job_table import PAGE, JobTable, TableQuery, read_query

BLUE = Visible(frozenset({"blue"}))


def table(*jobs: FluxJob) -> JobTable:
    state = ClusterState()
    for each in jobs:
        state.jobs.apply(each)
    return state.table


def titles(found: JobTable, query: TableQuery, visible: Visible = EVERYTHING) -> list[str]:
    return [row.title.partition("/")[2] for row in found.page(query, visible).rows]


WORK = (
    job("wrf", reason="WaitingForNodes", position=1, spec={"queue": "night"}),
    job("namd", reason="Held", position=2),
    job("lammps", state="Running", nodes="node-1"),
    job("old", state="Completed"),
    job("secret", "red", state="Running"),
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (TableQuery(), ["lammps", "secret", "wrf", "namd", "old"]),
        (TableQuery(text="WRF"), ["wrf"]),
        (TableQuery(text="night waiting"), ["wrf"]),
        (TableQuery(text="night running"), []),
        (TableQuery(namespace="red"), ["secret"]),
        (TableQuery(queue="night"), ["wrf"]),
        (TableQuery(state="Running"), ["lammps", "secret"]),
        (TableQuery(state="active"), ["lammps", "secret", "wrf", "namd"]),
        (TableQuery(state="live"), ["lammps", "secret"]),
        (TableQuery(reason="Held"), ["namd"]),
        (TableQuery(sort="job"), ["lammps", "namd", "old", "secret", "wrf"]),
        (TableQuery(sort="job", backwards=True), ["wrf", "secret", "old", "namd", "lammps"]),
    ],
)
def test_rows_are_filtered_and_sorted(query: TableQuery, expected: list[str]) -> None:
    assert titles(table(*WORK), query) == expected


def test_nobody_sees_or_counts_the_work_of_others() -> None:
    found = table(*WORK)
    assert titles(found, TableQuery(sort="job"), BLUE) == ["lammps", "namd", "old", "wrf"]
    page = found.page(TableQuery(), BLUE)
    assert (page.total, page.states["Running"]) == (4, 1)
    assert found.page(TableQuery(namespace="red"), BLUE).total == 0
    assert found.page(TableQuery(), Visible()).total == 0


def test_pages_have_a_bounded_size_and_the_last_one_is_the_last() -> None:
    found = table(*(job(f"j{number:04}", position=number) for number in range(2 * PAGE + 1)))
    first, beyond = found.page(TableQuery(), EVERYTHING), found.page(TableQuery(page=99), EVERYTHING)
    assert (len(first.rows), first.pages, first.total) == (PAGE, 3, 2 * PAGE + 1)
    assert [row.title for row in beyond.rows] == ["job/j0200"]


def test_who_asks_the_same_shares_the_page_until_something_changes() -> None:
    state = ClusterState()
    state.jobs.apply(job("a"))
    page = state.table.page(TableQuery(), BLUE)
    assert state.table.page(TableQuery(), BLUE) is page
    state.jobs.apply(job("b"))
    assert state.table.page(TableQuery(), BLUE) is not page


def test_a_row_is_made_again_only_when_its_object_changes() -> None:
    state = ClusterState()
    state.jobs.apply(job("a"))
    state.jobs.apply(job("b"))
    before = {row.uid: row for row in state.table.rows()}
    state.jobs.apply(job("b", version=2, state="Running"))
    after = {row.uid: row for row in state.table.rows()}
    assert after["blue-a"] is before["blue-a"]
    assert after["blue-b"] is not before["blue-b"]
    state.jobs.remove(job("a"))
    assert len(state.table) == 1


def test_questions_beyond_number_keep_a_bounded_number_of_pages() -> None:
    found = table(job("a"))
    for number in range(400):
        found.page(TableQuery(text=str(number)), EVERYTHING)
    assert len(found._pages) == 256
    assert len(found._views) == 64


@pytest.mark.parametrize("seed", range(8))
def test_rows_that_are_exchanged_are_those_of_a_table_made_anew(seed: int) -> None:
    chance = random.Random(seed)
    state = ClusterState()
    questions = [
        (TableQuery(), EVERYTHING),
        (TableQuery(sort="priority", backwards=True), BLUE),
        (TableQuery(state="active", sort="eta"), EVERYTHING),
        (TableQuery(text="j1", sort="state", page=2), BLUE),
    ]
    for step in range(60):
        for _ in range(chance.choice([1, 5, 400])):
            name, namespace = f"j{chance.randrange(150)}", chance.choice(["blue", "red"])
            old = state.jobs.get(namespace, job(name).metadata.name)
            if old is not None and chance.random() < 0.3:
                state.jobs.remove(old)
                continue
            status: dict[str, Any] = {
                "state": chance.choice(["Pending", "Running", "Completed"]),
                "position": chance.choice([None, 1, 2, 3]),
            }
            spec = {"priority": chance.randrange(3)}
            state.jobs.apply(job(name, namespace, version=chance.randrange(10**9), spec=spec, **status))
        fresh = table(*state.jobs.list())
        for query, visible in chance.sample(questions, 2):
            shown, expected = state.table.page(query, visible), fresh.page(query, visible)
            assert [row.uid for row in shown.rows] == [row.uid for row in expected.rows], step
            assert (shown.total, shown.pages, shown.states) == (
                expected.total,
                expected.pages,
                expected.states,
            )


def test_an_address_is_read_as_far_as_it_can_be_meant() -> None:
    query = read_query(
        {"q": " a ", "state": "Running", "reason": "Held", "sort": "eta", "backwards": "1", "page": "3"}
    )
    assert query == TableQuery("a", "", "", "Running", "Held", "eta", True, 3)
    odd = {
        "q": "x" * 900,
        "state": "Nonsense",
        "reason": "?",
        "sort": "__class__",
        "backwards": "yes",
        "page": "-1",
    }
    assert read_query(odd) == TableQuery("x" * 200)
    assert read_query({"page": "9" * 400}).page == 1


def test_links_keep_the_question_and_escape_it() -> None:
    query = TableQuery(text='"><b>', state="active")
    assert query.link(page=2) == "?q=%22%3E%3Cb%3E&state=active&page=2"
    assert read_query({"q": '"><b>', "state": "active"}) == query
    assert read_query({"state": "live"}) == TableQuery(state="live")


def test_work_whose_object_was_deleted_is_remembered_for_a_day() -> None:
    now = NOW.timestamp()
    state = ClusterState(lambda: now)
    runs = job("runs", state="Running", nodes="node-1", allocatedAt=at(-600), cpu=4)
    ended = job("ended", state="Failed", allocatedAt=at(-600), finishedAt=at(-300))
    never = job("never", state="Cancelled", finishedAt=at(-300))
    for each in (runs, ended, never, job("waits")):
        state.jobs.apply(each)
        state.jobs.remove(each)
    assert [(row.title, row.held) for row in state.table.gone] == [
        ("job/runs", (now - 600, now)),
        ("job/ended", (now - 600, now - 300)),
        ("job/never", (0.0, 0.0)),
    ]
    assert state.table.gone[0].requested["cpu"] == 4_000
    assert len(state.table) == 0
    now += 86_400
    state.jobs.apply(job("later"))
    state.jobs.remove(job("later"))
    assert not state.table.gone


def test_a_bounded_number_of_deleted_work_is_remembered() -> None:
    assert JobTable().gone.maxlen == 20_000


def test_the_work_of_one_person_is_found_and_sorted_by_name() -> None:
    users = (("a", "bob"), ("b", "system:serviceaccount:lab:robot"), ("c", "ada"), ("d", ""))
    found = table(*(job(name, submittedBy=user) for name, user in users))
    assert titles(found, read_query({"user": "ada"})) == ["c"]
    assert read_query({"user": "ada"}).link() == "?user=ada"
    assert titles(found, read_query({"q": "robot"})) == ["b"]
    rows = found.page(read_query({"sort": "user"}), EVERYTHING).rows
    assert [row.user for row in rows] == ["", "ada", "bob", "lab:robot"]
