"""The operators' endpoints: who is refused, and what a refusal says."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Gauge
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from fluxqueue.local.ports import free_port
from fluxqueue.queue.admin.access import Permission, Verdict
from fluxqueue.queue.admin.server import (
    LIMITS,
    AdminAddress,
    AdminServer,
    BadRequest,
    Endpoint,
    make_app,
    metrics_endpoint,
    status_endpoint,
)


class _Reviews:
    """Lets in who has the token ``good``."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Permission]] = []

    async def check(self, token: str, permission: Permission, _address: str) -> Verdict:
        self.asked.append((token, permission))
        # not a secret
        return Verdict(200, user="alice") if token == "good" else Verdict(401, "the token is not valid here")


def make() -> tuple[Starlette, _Reviews]:
    registry = CollectorRegistry()
    Gauge("answer", "The answer", registry=registry).set(42)
    reviews: Any = _Reviews()
    return make_app(
        [metrics_endpoint(registry), status_endpoint(lambda: "leader", lambda: {"fluxion": "it is away"})],
        reviews,
    ), reviews


async def call(
    app: Starlette, path: str, headers: dict[str, str], method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": raw,
        "root_path": "",
    }
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}, body


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "Bearer good"}, {"authorization": "bearer good"}, {"Fluxqueue-Token": "good"}],
)
async def test_a_token_in_either_header_is_taken(headers: dict[str, str]) -> None:
    app, reviews = make()
    status, _, body = await call(app, "/metrics", headers)
    assert (status, b"answer 42.0" in body) == (200, True)
    assert reviews.asked == [("good", Permission("get", "/metrics"))]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic good"}, {"Fluxqueue-Token": "bad"}])
async def test_who_is_not_let_in_learns_nothing_but_why(headers: dict[str, str]) -> None:
    app, _ = make()
    status, answered, body = await call(app, "/status", headers)
    assert (status, answered["www-authenticate"], json.loads(body)) == (
        401,
        "Bearer",
        {"error": "the token is not valid here"},
    )


async def test_status_has_sentences_and_wants_a_token_for_fluxqueue() -> None:
    app, reviews = make()
    _, _, body = await call(app, "/status", {"Fluxqueue-Token": "good"})
    assert json.loads(body) == {"ready": False, "role": "leader", "missing": {"fluxion": "it is away"}}
    assert reviews.asked[0][1].audience == "fluxqueue"


async def test_an_endpoint_knows_who_asks() -> None:
    callers: list[str] = []

    async def answer(request: Request) -> Response:
        callers.append(request.state.caller)
        return Response()

    reviews: Any = _Reviews()
    app = make_app([Endpoint(Permission("get", "/x"), answer)], reviews)
    assert (await call(app, "/x", {"authorization": "Bearer good"}))[0] == 200
    assert callers == ["alice"]


@pytest.mark.parametrize("headers", [{"content-length": "5"}, {"transfer-encoding": "chunked"}])
async def test_a_body_is_refused_before_anything_is_asked(headers: dict[str, str]) -> None:
    app, reviews = make()
    assert (await call(app, "/metrics", {"Authorization": "Bearer good", **headers}))[0] == 413
    assert reviews.asked == []


async def test_another_method_or_path_is_not_served() -> None:
    app, _ = make()
    headers = {"Authorization": "Bearer good"}
    assert (await call(app, "/metrics", headers, "POST"))[0] == 405
    assert (await call(app, "/healthz", headers))[0] == 404


async def test_a_request_that_names_nothing_is_refused_before_its_right_is_asked_for() -> None:
    def right(_request: Any) -> Permission:
        raise BadRequest("namespace is given twice: name one")

    asked = _Reviews()
    reviews: Any = asked
    endpoint = metrics_endpoint(CollectorRegistry())
    app = make_app([Endpoint(endpoint.permission, endpoint.answer, right)], reviews)
    status, _, body = await call(app, "/metrics", {"Authorization": "Bearer good"})
    assert (status, json.loads(body), asked.asked) == (
        400,
        {"error": "namespace is given twice: name one"},
        [],
    )


async def test_connections_of_the_port_that_are_ended_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluxqueue.queue.admin.server.LIMITS", replace(LIMITS, connections=4))
    registry, port = CollectorRegistry(), free_port()
    admin = AdminServer(AdminAddress("127.0.0.1", port, tmp_path), cast(Any, None), (), registry)
    serving = asyncio.create_task(admin.serve())
    async with asyncio.timeout(60):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        while (
            registry.get_sample_value("fluxqueue_metrics_connections_ended_total", {"limit": "crowded"}) != 2
        ):
            await asyncio.sleep(0.01)
    for _, writer in silent:
        writer.close()
    serving.cancel()
    await asyncio.wait({serving})
    await asyncio.sleep(0.05)  # the loop closes what was ended
