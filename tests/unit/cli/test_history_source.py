"""The history asked of the queue: whose token, which way, and what is said to who may not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fluxqueue.cli.api_client import ApiRefused, ClusterError, ObjectNotFound
from fluxqueue.cli.history_source import HistoryAddress, HistorySource, find_history

TOKEN = "/api/v1/namespaces/science/serviceaccounts/fluxqueue-history/token"  # a path
FLUXJOBS = "/apis/jobs.converged-computing.org/v1alpha1/namespaces/science/fluxjobs"
PROXY = "/api/v1/namespaces/fluxqueue-system/services/https:fluxqueue-queue:metrics/proxy"


class Server:
    """Stands for the API server: what each path answers, one answer after the other."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []

    def get(self, path: str, params: Any = None, headers: Any = None) -> bytes:
        self.asked.append((path, dict(params or {}), dict(headers or {})))
        answer = self.answers[path].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()

    def post(self, path: str, body: Any) -> bytes:
        assert body["spec"] == {"audiences": ["fluxqueue"], "expirationSeconds": 600}
        return self.get(path)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def found(answers: dict[str, list[Any]], namespace: str = "science") -> tuple[Any, Server]:
    server: Any = Server({TOKEN: [{"status": {"token": "abc"}}], FLUXJOBS: [{"items": []}], **answers})
    return find_history(HistoryAddress(namespace=namespace), lambda _timeout_s: server), server


def page(names: list[str], cursor: str | None) -> dict[str, Any]:
    return {"jobs": [{"name": name} for name in names], "next": cursor, "since": "S", "until": "U"}


def test_the_queues_service_is_asked_with_a_token_of_the_namespace() -> None:
    opened, server = found({f"{PROXY}/report": [{"rows": []}]})
    with opened as source:
        assert source.report({"by": "day"}) == {"rows": []}
    assert server.asked[1:] == [(f"{PROXY}/report", {"by": "day"}, {"Fluxqueue-Token": "abc"})]


def test_all_namespaces_are_opened_by_the_account_of_fluxqueues_own() -> None:
    everything = TOKEN.replace("science", "fluxqueue-system")
    opened, server = found({everything: [{"status": {"token": "all"}}]}, namespace="")
    with opened:
        assert server.asked[0][0] == everything


def test_pages_follow_each_other_with_the_times_of_the_first() -> None:
    opened, server = found({f"{PROXY}/history": [page(["a", "b"], "c1"), page(["c"], None)]})
    with opened as source:
        pages = list(source.jobs({"since": "1d", "queue": "gpu"}, limit=10, page=2))
    assert [([job["name"] for job in jobs], more) for jobs, more in pages] == [
        (["a", "b"], True),
        (["c"], False),
    ]
    assert [params for _, params, _ in server.asked[1:]] == [
        {"since": "1d", "queue": "gpu", "limit": "2"},
        {"since": "S", "queue": "gpu", "cursor": "c1", "limit": "2"},
    ]


def test_no_more_is_asked_for_than_is_wanted() -> None:
    opened, server = found({f"{PROXY}/history": [page(["a", "b"], "c1"), page(["c"], "c2")]})
    with opened as source:
        assert [more for _, more in source.jobs({"until": "1h"}, limit=3, page=2)] == [True, True]
    assert [params["limit"] for _, params, _ in server.asked[1:]] == ["2", "1"]
    assert server.asked[2][1]["until"] == "U"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        pytest.param(
            ApiRefused(403, "Forbidden", "no"),
            "you may not read the history of the namespace science; an administrator gives you the right by: "
            "kubectl -n science create rolebinding NAME --clusterrole=fluxqueue-history-reader --user=YOU",
            id="no right to a token",
        ),
        pytest.param(
            ObjectNotFound(404, "NotFound", "no"),
            "the namespace science has no account fluxqueue-history, so nobody reads its history; an "
            "administrator makes it by: kubectl -n science create serviceaccount fluxqueue-history && "
            "kubectl -n science create rolebinding fluxqueue-history --clusterrole=fluxqueue-history "
            "--serviceaccount=science:fluxqueue-history",
            id="no account",
        ),
    ],
)
def test_who_gets_no_token_reads_the_remedy(error: Exception, sentence: str) -> None:
    opened, _ = found({TOKEN: [error]})
    with pytest.raises(ClusterError) as refused, opened:
        pass
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_the_queue_refuses_is_its_own_sentence() -> None:
    body = json.dumps({"error": "limit='0' is not a number"}).encode()
    opened, _ = found({f"{PROXY}/report": [ApiRefused(400, "", "x", body)]})
    with opened as source, pytest.raises(ClusterError, match="^error: limit='0' is not a number$"):
        source.report({})


def test_who_may_not_use_the_proxy_reads_which_value_opens_it() -> None:
    opened, _ = found({f"{PROXY}/report": [ApiRefused(403, "Forbidden", "services/proxy is forbidden")]})
    with (
        opened as source,
        pytest.raises(ClusterError, match="adds a group of yours to rbac.historyReachableBy"),
    ):
        source.report({})


def test_an_address_that_is_given_is_asked_itself() -> None:
    client: Any = Server({"/report": [{"rows": [1]}]})
    assert HistorySource(client, "", "t").report({}) == {"rows": [1]}
