"""The pages of work whose FluxJob is gone: reached from the history, with what the history has of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.dashboard_site import LISTS_ALL, InProcess, Stage, job
from support.queue_standin import QueueStandin, claims_token, run_queue_standin

from fluxqueue.dashboard.ended_jobs import ended_link
from fluxqueue.dashboard.settings import QueueAddress

RECORD: dict[str, Any] = {
    "id": 7,
    "uid": "uid-of-md",
    "api_version": "batch/v1",
    "kind": "Job",
    "namespace": "blue",
    "name": "md",
    "queue": "night",
    "account": "",
    "user": "alice",
    "priority": 5,
    "pods": 2,
    "duration_s": 600,
    "state": "Failed",
    "outcome": "Failed",
    "reason": "",
    "message": "pod md-0 ended with exit code 3 <b>",
    "submitted_at": "2026-03-02T11:00:00.250000Z",
    "promised_at": None,
    "allocated_at": "2026-03-02T11:10:00Z",
    "started_at": "2026-03-02T11:10:02Z",
    "finished_at": "2026-03-02T11:15:02.750000Z",
    "requeues": 0,
    "cores": 4.0,
    "run_s": 300.5,
    "jobid": 12,
    "hosts": "node-[1,1]",
}
PATH = f"/jobs/blue/{job('md').metadata.name}"
LINK = f"{PATH}?ended=2026-03-02T11%3A15%3A02Z"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueStandin]:
    with run_queue_standin(tmp_path) as running:
        running.answers = {
            "/history": {"jobs": [3, {**RECORD, "uid": "of another"}, RECORD], "next": None},
            "/report": {"rows": []},
        }
        yield running


@pytest.fixture
def client(queue: QueueStandin) -> InProcess:
    made = Stage(queue=QueueAddress(queue.url, queue.ca))
    for namespace in ("blue", "fluxqueue-system"):
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/fluxqueue-history/token"
        made.api.objects[path] = {"status": {"token": claims_token("fluxqueue-history")}}
    return InProcess(made)


@pytest.mark.parametrize("odd", [{}, {**RECORD, "uid": 3}, {**RECORD, "pods": "many"}])
def test_a_record_that_cannot_be_read_has_no_page(odd: dict[str, Any]) -> None:
    assert ended_link(odd) == ""
    assert ended_link(RECORD) == LINK


async def test_a_row_of_the_history_leads_to_what_it_has_of_the_job(
    client: InProcess, queue: QueueStandin
) -> None:
    await client.sign_in("alice", LISTS_ALL, ("patch", "fluxjobs", "blue"))
    assert f'<a href="{LINK}">job/md</a>' in (await client.get("/history")).text
    queue.asked.clear()
    page = await client.get(LINK)
    assert page.status == 200
    for expected in (
        "job/md in namespace blue failed after 5m",
        "exit code 3 &lt;b&gt;",
        "node-1 (2)",
        "alice",
        "what the history has of it",
        "2 pods: 4 cores in all, for 10m",
        "5m of 10m (50%)",
        ">night</a>",
    ):
        assert expected in page.text
    for other in ('<form method="post" action="/jobs', "data-live=", "Events</h2>"):
        assert other not in page.text
    ((path, query, _),) = queue.asked
    assert (path, query["namespace"]) == ("/history", "blue")
    assert (query["since"], query["until"]) == ("2026-03-02T11:15:02Z", "2026-03-02T11:15:03Z")


async def test_without_a_record_or_the_right_to_read_it_there_is_no_page(
    client: InProcess, queue: QueueStandin
) -> None:
    await client.sign_in("alice", LISTS_ALL)
    for address, why in (
        (PATH, "if it was removed after its end, the page History has it"),
        (f"{PATH}?ended=soon", "There is no FluxJob blue/"),
        (f"/jobs/blue/other?{LINK.partition('?')[2]}", "the history has no such work that ended then"),
        (
            LINK.replace("/blue/", "/red/"),
            "the history cannot be read: the namespace red has no account fluxqueue-history",
        ),
    ):
        page = await client.get(address)
        assert (page.status, why in page.text) == (404, True), address


async def test_a_job_that_is_still_there_is_shown_as_it_is(client: InProcess, queue: QueueStandin) -> None:
    client.stage.show(job("md", state="Failed", finishedAt="2026-03-02T11:15:02Z"))
    await client.sign_in("alice", LISTS_ALL)
    assert "what the history has of it" not in (await client.get(LINK)).text
    assert not [query for _, query, _ in queue.asked if "since" in query], "only its cost is asked for"


async def test_the_cost_of_ended_work_is_shown_where_there_are_prices(
    client: InProcess, queue: QueueStandin
) -> None:
    await client.sign_in("alice", LISTS_ALL)
    assert "<dt>Cost</dt>" not in (await client.get(LINK)).text
    queue.answers["/history"] = {"jobs": [RECORD | {"cost": "12.3456"}], "next": None, "currency": "EUR"}
    assert "<dt>Cost</dt><dd>12.35 EUR</dd>" in (await client.get(LINK)).text
