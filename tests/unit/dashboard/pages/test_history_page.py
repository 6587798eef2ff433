from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.dashboard_site import LISTS_ALL, Stage, at, job, node
from support.queue_standin import QueueStandin, claims_token, run_queue_standin

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.dashboard.pages.history_page import estimate_errors, history_page
from fluxqueue.dashboard.settings import QueueAddress
from fluxqueue.dashboard.site import Asked

BLUE = ("list", "fluxjobs", "blue")


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueStandin]:
    with run_queue_standin(tmp_path) as running:
        yield running


def stage(queue: QueueStandin) -> Stage:
    made = Stage(queue=QueueAddress(queue.url, queue.ca))
    made.show(
        job("early", etaFirst=at(0), allocatedAt=at(-120)),
        job("late", "red", etaFirst=at(0), allocatedAt=at(90)),
        job("none"),
    )
    for namespace in ("blue", "fluxqueue-system"):
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/fluxqueue-history/token"
        made.api.objects[path] = {"status": {"token": claims_token("fluxqueue-history")}}
    return made


async def asked(stage: Stage, *rights: tuple[str, str, str], **parameters: str) -> Asked:
    viewer = await stage.viewer(f"with-{len(rights)}-{rights[0][2]}", *rights)
    return Asked(viewer, await stage.site.visible(viewer), parameters)


async def test_the_plots_are_of_the_namespace_and_the_days_that_were_chosen(queue: QueueStandin) -> None:
    made = stage(queue)
    made.state.nodes.apply(node("node-1", cpu=10))
    text = (
        await history_page(
            made.site, await asked(made, BLUE, ("list", "nodes", ""), namespace="blue", days="30")
        )
    ).html
    asked_for = {(path, query["since"], query["namespace"]) for path, query, _ in queue.asked}
    assert asked_for == {("/history", "30d", "blue"), ("/report", "30d", "blue")}
    for expected in (
        "Waits by queue",
        "Use of cores by namespace",
        "core-hours by day (UTC); the nodes of today have 240",
        "job/lammps-3",
        "Start against",
    ):
        assert expected in text
    assert "Use of GPUs" not in text


async def test_all_namespaces_are_for_who_lists_all(queue: QueueStandin) -> None:
    made = stage(queue)
    text = (await history_page(made.site, await asked(made, BLUE, ("list", "fluxjobs", "red")))).html
    assert "Choose a namespace" in text
    assert queue.asked == []
    text = (await history_page(made.site, await asked(made, LISTS_ALL, days="4000"))).html
    assert "job/lammps-3" in text
    assert [query.get("since") for _, query, _ in queue.asked] == ["7d", "7d"]
    assert all("namespace" not in query for _, query, _ in queue.asked)


async def test_the_work_of_one_person_is_asked_for_by_his_name(queue: QueueStandin) -> None:
    made = stage(queue)
    text = (await history_page(made.site, await asked(made, BLUE, namespace="blue"))).html
    assert 'href="?namespace=blue&amp;days=7&amp;user=with-1-blue">Mine</a>' in text
    assert 'user=alice">alice</a>' in text
    assert all("user" not in query for _, query, _ in queue.asked)
    queue.asked.clear()
    text = (await history_page(made.site, await asked(made, BLUE, namespace="blue", user="with-1-blue"))).html
    assert ">Mine</a>" not in text
    assert {(path, query["user"]) for path, query, _ in queue.asked} == {
        ("/history", "with-1-blue"),
        ("/report", "with-1-blue"),
    }


async def test_who_sees_one_namespace_need_not_choose_it(queue: QueueStandin) -> None:
    made = stage(queue)
    text = (await history_page(made.site, await asked(made, BLUE))).html
    assert "<option selected>blue</option>" in text
    assert {query["namespace"] for _, query, _ in queue.asked} == {"blue"}


async def test_a_right_that_is_missing_is_named_and_estimates_are_still_shown(queue: QueueStandin) -> None:
    made = stage(queue)
    text = (
        await history_page(made.site, await asked(made, ("list", "fluxjobs", "red"), namespace="red"))
    ).html
    assert "The namespace red has no account fluxqueue-history" in text
    assert "Start against the first estimate" in text


async def test_estimate_errors_are_of_work_that_is_seen(queue: QueueStandin) -> None:
    made = stage(queue)
    assert estimate_errors(made.site, await asked(made, BLUE), "") == [-120.0]
    assert estimate_errors(made.site, await asked(made, LISTS_ALL), "red") == [90.0]


async def test_odd_answers_of_the_queue_are_no_traceback(queue: QueueStandin) -> None:
    made = stage(queue)
    queue.answers = {
        "/history": {"jobs": [3, {"wait_s": "long", "finished_at": "x", "run_s": None}]},
        "/report": {"rows": "none"},
    }
    assert "Waits" in (await history_page(made.site, await asked(made, BLUE, namespace="blue"))).html


async def test_costs_are_shown_where_there_are_prices(queue: QueueStandin) -> None:
    made = stage(queue)
    text = (await history_page(made.site, await asked(made, BLUE, namespace="blue"))).html
    assert "Cost" not in text
    job_of = dict(queue.answers["/history"]["jobs"][0], cost="0.005")
    day = {"day": "2026-11-22", "cpu_s": 3_600.0, "cost": "1234.567"}
    queue.answers = {
        "/history": {"jobs": [job_of], "currency": "EUR"},
        "/report": {"rows": [day], "currency": "EUR"},
    }
    text = (await history_page(made.site, await asked(made, BLUE, namespace="blue"))).html
    for expected in ('<th scope="col">Cost, EUR</th>', '<td class="number">0.01</td>', "Cost by namespace"):
        assert expected in text
    assert '<th scope="row">11-22</th><td class="number">1,235 EUR</td>' in text


async def test_use_is_by_account_where_there_are_accounts_and_has_every_day(queue: QueueStandin) -> None:
    made = stage(queue)
    meta = {"metadata": {"name": "physics", "uid": "physics"}}
    made.state.accounts.apply(msgspec.convert(meta, FluxAccount))
    queue.answers["/report"] = {
        "rows": [
            {"day": "2026-03-02", "account": "physics", "cpu_s": 7_200.0},
            {"day": "2026-02-28", "account": "", "cpu_s": 3_600.0},
            {"day": "odd", "account": "physics", "cpu_s": 3_600.0},
        ]
    }
    text = (await history_page(made.site, await asked(made, BLUE, namespace="blue"))).html
    assert [query["by"] for path, query, _ in queue.asked if path == "/report"] == ["day,account"]
    assert "Use of cores by account: 02-28: 1 core-hours: no account 1; 03-01: 0 core-hours" in text
    assert "Waits by queue: &lt; 10s: 16 jobs" in text


async def test_use_of_too_many_namespaces_is_shown_as_one(queue: QueueStandin) -> None:
    made = stage(queue)
    queue.refused["/report", "day,namespace"] = "the report has more than 10000 rows"
    text = (await history_page(made.site, await asked(made, LISTS_ALL, days="30"))).html
    assert "Use of cores: " in text
    assert "too many to tell by namespace" in text
    assert "no namespace" not in text
    assert "job/lammps-3" in text
    queue.refused["/report", "day"] = "the report takes too long"
    text = (await history_page(made.site, await asked(made, LISTS_ALL, days="30"))).html
    assert "The report takes too long." in text


async def test_costs_are_added_up_before_they_are_rounded(queue: QueueStandin) -> None:
    made = stage(queue)
    rows = [{"day": "2026-11-22", "namespace": f"n-{number}", "cost": "0.004"} for number in range(300)]
    odd = [{"day": "2026-11-22", "namespace": "odd", "cost": cost} for cost in (None, "x", "NaN")]
    queue.answers["/report"] = {"rows": rows + odd}
    queue.answers["/history"] = {"jobs": [], "currency": "EUR"}
    text = (await history_page(made.site, await asked(made, LISTS_ALL))).html
    assert "Cost by namespace: 11-22: 1.2 EUR: n-0 0.004, " in text
