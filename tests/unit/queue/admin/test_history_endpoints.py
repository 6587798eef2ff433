"""The accounting over HTTPS: whose right is asked for, what is answered,
and what happens when it cannot be.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.requests import Request
from starlette.responses import Response

from fluxqueue.queue.admin import history_endpoints as module
from fluxqueue.queue.admin.access import ListsFluxJobs
from fluxqueue.queue.admin.history_endpoints import history_endpoints
from fluxqueue.queue.admin.server import BadRequest, Endpoint
from fluxqueue.queue.model.accounting_queries import Cursor, HistoryQuery, InvalidQuery, ReportQuery
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.store.accounting import Page, TakesTooLong

NOW = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)


class _Accounting:
    """Has one workload and one sum."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.currency = ""
        self.asked: list[HistoryQuery | ReportQuery] = []
        self.go = asyncio.Event()
        self.go.set()

    async def _answer(self, query: HistoryQuery | ReportQuery) -> None:
        self.asked.append(query)
        await self.go.wait()
        if self.error is not None:
            raise self.error

    async def jobs(self, query: HistoryQuery, now: datetime) -> Page:
        await self._answer(query)
        return Page(
            [{"id": 7, "name": "lammps", "finished_at": now, "started_at": None}], Cursor.behind(now, 7)
        )

    async def report(self, query: ReportQuery, now: datetime) -> list[dict[str, Any]]:
        await self._answer(query)
        return [{"namespace": "science", "jobs": 1}]


def request(path: str = "/history", caller: str = "science", **parameters: str) -> Request:
    made = Request(
        {"type": "http", "path": path, "query_string": urlencode(parameters).encode(), "headers": []}
    )
    made.state.caller = f"system:serviceaccount:{caller}:reader"
    return made


def endpoints(accounting: _Accounting | None) -> list[Endpoint]:
    reader: Any = accounting
    return history_endpoints(lambda: reader, lambda: NOW)


def said(response: Response) -> tuple[int, Any]:
    return response.status_code, json.loads(bytes(response.body))


async def test_a_page_has_its_times_and_where_the_next_begins() -> None:
    history, _ = endpoints(_Accounting())
    assert said(await history.answer(request(namespace="science"))) == (
        200,
        {
            "since": "2026-11-22T08:00:00Z",
            "until": "2026-11-23T08:00:00Z",
            "jobs": [{"id": 7, "name": "lammps", "finished_at": "2026-11-23T08:00:00Z", "started_at": None}],
            "next": "2026-11-23T08:00:00.000000Z_7",
        },
    )


async def test_a_report_says_by_what_it_is_divided() -> None:
    _, report = endpoints(_Accounting())
    status, answer = said(await report.answer(request("/report", by="namespace")))
    assert (status, answer["by"], answer["rows"]) == (
        200,
        ["namespace"],
        [{"namespace": "science", "jobs": 1}],
    )


async def test_answers_name_the_currency_if_there_are_prices() -> None:
    accounting = _Accounting()
    history, report = endpoints(accounting)
    for endpoint, path in ((history, "/history"), (report, "/report")):
        accounting.currency = ""
        assert "currency" not in said(await endpoint.answer(request(path)))[1]
        accounting.currency = "EUR"
        assert said(await endpoint.answer(request(path)))[1]["currency"] == "EUR"


@pytest.mark.parametrize(("parameters", "namespace"), [({"namespace": "science"}, "science"), ({}, "")])
def test_the_right_is_that_to_list_fluxjobs_there(parameters: dict[str, str], namespace: str) -> None:
    for endpoint in endpoints(_Accounting()):
        assert endpoint.right is not None
        asked = endpoint.right(request(endpoint.permission.path, **parameters))
        assert asked == ListsFluxJobs(endpoint.permission.path, namespace)
        assert asked.audience == "fluxqueue"


def test_a_wrong_namespace_is_refused_before_a_right_is_asked_for() -> None:
    history, _ = endpoints(_Accounting())
    assert history.right is not None
    with pytest.raises(BadRequest, match="is no name of a namespace"):
        history.right(request(namespace="../all"))


@pytest.mark.parametrize(
    ("error", "status"),
    [(InvalidQuery("too many"), 400), (TakesTooLong("too long"), 504), (DatabaseUnavailable("away"), 502)],
    ids=["invalid", "slow", "away"],
)
async def test_what_fails_is_said_in_one_sentence(error: Exception, status: int) -> None:
    accounting = _Accounting()
    accounting.error = error
    for endpoint in endpoints(accounting):
        assert said(await endpoint.answer(request(endpoint.permission.path))) == (
            status,
            {"error": str(error)},
        )


async def test_a_bad_parameter_is_refused_without_a_question_to_postgres() -> None:
    accounting = _Accounting()
    history, _ = endpoints(accounting)
    status, answer = said(await history.answer(request(limit="0")))
    assert (status, answer["error"]) == (
        400,
        "limit='0' is not a number from 1 to 1000: name one, and ask for more with cursor",
    )
    assert accounting.asked == []


async def test_a_replica_that_starts_says_so() -> None:
    history, _ = endpoints(None)
    assert said(await history.answer(request()))[0] == 503


BUSY = (
    "the history is busy, because two questions are answered at a time, and one of a namespace: "
    "ask again in a few seconds"
)


async def test_two_questions_run_at_once_and_others_give_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.01)
    accounting = _Accounting()
    accounting.go.clear()
    history, report = endpoints(accounting)
    running = [
        asyncio.create_task(history.answer(request(caller="red"))),
        asyncio.create_task(report.answer(request("/report", caller="blue"))),
    ]
    while len(accounting.asked) < 2:
        await asyncio.sleep(0)
    assert said(await history.answer(request())) == (429, {"error": BUSY})
    accounting.go.set()
    assert {(await each).status_code for each in running} == {200}
    assert said(await history.answer(request()))[0] == 200


async def test_a_reader_with_many_questions_leaves_one_of_the_two_to_others() -> None:
    accounting = _Accounting()
    accounting.go.clear()
    history, _ = endpoints(accounting)
    many = [asyncio.create_task(history.answer(request(user=f"u{number}"))) for number in range(20)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(accounting.asked) == 1
    other = asyncio.create_task(history.answer(request(caller="blue")))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(accounting.asked) == 2
    accounting.go.set()
    assert {(await each).status_code for each in (*many, other)} == {200}
