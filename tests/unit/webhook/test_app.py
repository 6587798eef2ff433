"""The application called in process, for cases that a network cannot produce."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fastapi.routing import APIRoute
from structlog.testing import capture_logs
from support.builders import JOB_CONTROLLER, make_job, make_pod, make_queue, make_review

from fluxqueue.serving.readiness import Readiness
from fluxqueue.webhook.app import create_app
from fluxqueue.webhook.decide import AdmissionSettings
from fluxqueue.webhook.metrics import WebhookMetrics


class Caller:
    """Calls the application by ASGI."""

    def __init__(self, clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)) -> None:
        self.readiness, self.metrics = Readiness(), WebhookMetrics()
        self.app = create_app(AdmissionSettings(), self.readiness, self.metrics, clock)
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""

    async def call(
        self,
        method: str,
        path: str,
        *parts: bytes,
        hang_up: bool = False,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> int:
        messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": part, "more_body": True} for part in parts
        ]
        messages.append(
            {"type": "http.disconnect"}
            if hang_up
            else {"type": "http.request", "body": b"", "more_body": False}
        )
        self.body = b""

        async def receive() -> dict[str, Any]:
            return messages.pop(0)

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.status, self.headers = message["status"], dict(message["headers"])
            else:
                self.body += message.get("body", b"")

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": list(headers),
            "root_path": "",
        }
        await self.app(scope, receive, send)
        return self.status

    def counted(self, kind: str, outcome: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "fluxqueue_webhook_reviews_total", {"kind": kind, "outcome": outcome}
        )


async def test_a_body_in_parts_is_one_review() -> None:
    caller, body = Caller(), make_review(make_pod()).body()
    assert await caller.call("POST", "/mutate", body[:10], body[10:]) == 200
    assert json.loads(caller.body)["response"]["allowed"] is True
    assert caller.counted("Pod", "held") == 1


def test_reviews_are_served_by_routes_of_fastapi_without_a_model() -> None:
    routes = {route.path: route for route in Caller().app.routes if isinstance(route, APIRoute)}
    assert {"/mutate", "/validate"} <= set(routes)
    for path in ("/mutate", "/validate"):
        assert (routes[path].body_field, routes[path].response_field, routes[path].methods) == (
            None,
            None,
            {"POST"},
        )


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"\xff\xfe", b"application/json"), (b"{}", b"text/plain"), (b"", b"")],
    ids=str,
)
async def test_the_body_reaches_the_reader_as_it_is(body: bytes, content_type: bytes) -> None:
    caller = Caller()
    assert await caller.call("POST", "/mutate", body, headers=[(b"content-type", content_type)]) == 400
    assert caller.counted("other", "malformed") == 1


async def test_queues_are_validated_under_their_own_path() -> None:
    caller, body = Caller(), make_review(make_queue("odd", nodeSelector={"a b": "x"})).body()
    assert await caller.call("POST", "/validate", body) == 200
    answer = json.loads(caller.body)["response"]
    assert (answer["allowed"], answer["status"]["code"]) == (False, 422)
    assert caller.counted("FluxQueue", "refused") == 1
    assert await caller.call("POST", "/validate", body[:40]) == 400


async def test_a_client_that_hangs_up_is_no_malformed_review() -> None:
    caller = Caller()
    await caller.call("POST", "/mutate", b"{", hang_up=True)
    assert caller.counted("other", "malformed") is None


async def test_a_failure_of_ours_is_answered_with_a_sentence_and_no_traceback() -> None:
    def broken() -> dt.datetime:
        raise RuntimeError("the clock is broken, and this is a secret")

    caller = Caller(broken)
    caller.readiness.waiting_for = None
    with pytest.raises(RuntimeError, match="clock"):
        await caller.call("GET", "/readyz")
    assert caller.status == 500
    assert caller.body == b"fluxqueue could not answer this request: its log says why\n"


async def test_an_internal_error_refuses_the_object_instead_of_letting_it_pass() -> None:
    def broken() -> dt.datetime:
        raise RuntimeError("this is a secret")

    caller = Caller(broken)
    with capture_logs() as logs:
        assert await caller.call("POST", "/mutate", make_review(make_pod("p")).body()) == 200
    answer = json.loads(caller.body)["response"]
    assert (answer["allowed"], answer["status"]["code"]) == (False, 500)
    assert answer["status"]["message"].startswith("Pod default/p: fluxqueue could not decide about it")
    assert "secret" not in caller.body.decode()
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["review.failed"]
    assert caller.counted("Pod", "failed") == 1


async def test_kinds_we_do_not_know_share_one_label() -> None:
    caller = Caller()
    for kind in ("Deployment", "Surprise"):
        await caller.call(
            "POST", "/mutate", make_review({"apiVersion": "x/v1", "kind": kind, "metadata": {}}).body()
        )
    assert caller.counted("other", "passed") == 2


async def test_only_refusals_and_warnings_are_logged_with_requester_and_object() -> None:
    caller = Caller()
    with capture_logs() as logs:
        await caller.call(
            "POST",
            "/mutate",
            make_review(make_job().annotation("fluxqueue/duration", "soon"), user="bob").body(),
        )
        lost = make_pod("j-7-x").owned_by("Job").index(7).allocation("n1")
        await caller.call("POST", "/mutate", make_review(lost, user=JOB_CONTROLLER).body())
        await caller.call("POST", "/mutate", make_review(make_job()).body())
    reported = [entry for entry in logs if entry["log_level"] != "debug"]
    assert [entry["event"] for entry in reported] == ["review.refused", "review.warned"]
    assert (reported[0]["object"], reported[0]["requester"]) == ("Job default/j", "bob")
    assert "completion index 7 is beyond the 1 nodes" in reported[1]["warnings"][0]


async def test_while_draining_every_response_closes_the_connection() -> None:
    caller = Caller()
    await caller.call("POST", "/mutate", make_review(make_job()).body())
    assert b"connection" not in caller.headers
    caller.readiness.draining = True
    for body, status in ((make_review(make_job()).body(), 200), (b"{}", 400)):
        assert await caller.call("POST", "/mutate", body) == status
        assert caller.headers[b"connection"] == b"close"


async def test_probes_and_metrics_are_served() -> None:
    caller = Caller()
    assert await caller.call("GET", "/healthz") == 200
    assert await caller.call("GET", "/readyz") == 503
    assert caller.body == b"the certificate has not been read yet\n"
    caller.readiness.waiting_for = None
    assert await caller.call("GET", "/readyz") == 200
    assert await caller.call("GET", "/metrics") == 200
    assert b"fluxqueue_webhook_review_seconds_bucket" in caller.body
