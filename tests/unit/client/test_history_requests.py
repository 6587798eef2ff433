"""The history from Python: with which token it is asked, what comes back, and what is said to who may not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import orjson
import pytest

from fluxqueue.cli.queue_endpoint import URL_VARIABLE
from fluxqueue.client import AsyncClient, InvalidWork, NoCluster, NotInstalled, NotPermitted, Refused
from fluxqueue.kube.errors import Unreachable, decode_error
from fluxqueue.kube.transport import Api

TOKEN = "/api/v1/namespaces/team/serviceaccounts/fluxqueue-history/token"
FLUXJOBS = "/apis/jobs.converged-computing.org/v1alpha1/namespaces/team/fluxjobs"
HISTORY = "/api/v1/namespaces/fluxqueue-system/services/https:fluxqueue-queue:metrics/proxy/history"
ROW = {
    "id": 1,
    "kind": "Job",
    "namespace": "team",
    "name": "solver",
    "queue": "night",
    "account": "science",
    "user": None,
    "priority": 3,
    "pods": 2,
    "state": "Cancelled",
    "outcome": "Cancelled",
    "reason": "",
    "message": "",
    "submitted_at": "2026-03-02T10:00:00Z",
    "allocated_at": "2026-03-02T10:01:00Z",
    "started_at": "2026-03-02T10:01:01Z",
    "finished_at": "2026-03-02T11:00:00Z",
    "wait_s": 60.0,
    "run_s": 3540.0,
    "cores": 16.0,
    "hosts": "n[1-2]",
    "requeues": 1,
}


class Server:
    """Stands for the API server and the queue behind it:
    what each path answers, one answer after the other.
    """

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.answers: dict[str, list[Any]] = {
            TOKEN: [{"status": {"token": "abc"}}],
            FLUXJOBS: [{"items": []}],
            **answers,
        }
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []

    async def request(
        self, method: str, path: str, *, query: Any = None, headers: Any = None, **_: Any
    ) -> bytes:
        self.asked.append((f"{method} {path}", dict(query or {}), dict(headers or {})))
        answer = self.answers[path].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return orjson.dumps(answer)


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)


def client(server: Server) -> AsyncClient:
    return AsyncClient(cast(Api, server), "team")


def page(*rows: dict[str, Any], cursor: str | None = None) -> dict[str, Any]:
    return {"jobs": rows, "next": cursor, "since": "S", "until": "U"}


def refused(status: int, **body: Any) -> Exception:
    return decode_error(status, orjson.dumps(body), action="get it")


async def test_the_history_is_a_sequence_of_work_with_times_and_nodes() -> None:
    server = Server({HISTORY: [page(ROW)]})
    listed = await client(server).history(since=timedelta(days=7), states=["Cancelled"], queue="night")
    (past,) = listed
    assert (past.title, past.queue, past.user, past.outcome, past.nodes) == (
        "job/solver",
        "night",
        "",
        "Cancelled",
        ("n1", "n2"),
    )
    assert (past.wait, past.run) == (timedelta(minutes=1), timedelta(minutes=59))
    assert past.finished_at == datetime(2026, 3, 2, 11, tzinfo=UTC)
    assert listed.more is False
    assert str(listed).splitlines()[0].split()[:3] == ["OBJECT", "QUEUE", "ACCOUNT"]
    assert "<td>job/solver</td>" in listed._repr_html_()
    asked, query, headers = server.asked[-1]
    assert (asked, headers) == (f"GET {HISTORY}", {"Fluxqueue-Token": "abc"})
    since = datetime.fromisoformat(query.pop("since"))
    assert abs(datetime.now(UTC) - timedelta(days=7) - since) < timedelta(hours=1)
    assert query == {"namespace": "team", "state": "Cancelled", "queue": "night", "limit": "1000"}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("solver", {"name": "solver"}), ("jobs.batch/solver", {"kind": "job", "name": "solver"})],
)
async def test_the_history_of_a_name_is_all_work_of_that_name(name: str, parameters: dict[str, str]) -> None:
    server = Server({HISTORY: [page(ROW), page()], TOKEN: [{"status": {"token": "abc"}}] * 2})
    (past,) = await client(server).history(name=name)
    assert past.title == "job/solver"
    assert server.asked[-1][1] == {"namespace": "team", "limit": "1000"} | parameters
    assert (
        str(await client(server).history(name=name))
        == f"no work named {name.replace('jobs.batch', 'job')} was found"
    )


async def test_it_says_if_there_is_more() -> None:
    listed = await client(Server({HISTORY: [page(ROW, cursor="c1"), page(ROW, cursor="c2")]})).history(
        limit=2
    )
    assert (len(listed), listed.more) == (2, True)
    nothing = await client(Server({HISTORY: [page()]})).history()
    assert str(nothing) == "no work of this time was found"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"since": "7d"}, r"since: '7d' is neither a datetime nor a timedelta: write timedelta\(days=7\)"),
        ({"until": datetime(2026, 3, 2)}, ("until: .* has no time zone")),  # noqa: DTZ001  that is what is tested
        ({"states": ["faild"]}, "states: 'faild' is not a state: there are pending"),
        ({"name": "job/"}, "name: 'job/' is no name of work: write name='lammps', or name='job/lammps'"),
        ({"name": 4711}, "name: 4711 is no name of work"),
        ({"limit": 0}, "limit is 0: at least 1 is needed"),
        ({"limit": "10"}, "limit: '10' is not a whole number: write limit=10"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_the_first_request(
    options: dict[str, Any], why: str
) -> None:
    server = Server({})
    with pytest.raises(InvalidWork, match=why):
        await client(server).history(**options)
    assert server.asked == []


@pytest.mark.parametrize(
    ("answers", "kind", "why"),
    [
        (
            {TOKEN: [refused(403, reason="Forbidden")]},
            NotPermitted,
            "you may not read the history of the namespace team; an administrator",
        ),
        (
            {TOKEN: [refused(404, reason="NotFound", message='"x" not found')]},
            NotPermitted,
            "has no account fluxqueue-history",
        ),
        (
            {TOKEN: [refused(404, reason="NotFound", message='"x" not found')], FLUXJOBS: [refused(404)]},
            NotInstalled,
            "is fluxqueue installed in this cluster",
        ),
        ({HISTORY: [refused(400, error="until='x' is no time")]}, Refused, "^until='x' is no time$"),
        ({HISTORY: [refused(503)]}, NoCluster, "no replica of the queue answers"),
        ({TOKEN: [Unreachable("post it: no route", sent=False)]}, NoCluster, "no route"),
    ],
)
async def test_who_gets_no_answer_is_told_why(
    answers: dict[str, list[Any]], kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        await client(Server(answers)).history()
