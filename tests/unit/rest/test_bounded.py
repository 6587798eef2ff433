"""What of a request is read before it is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.datastructures import Headers

from fluxqueue.rest.bounded import MAX_BODY_BYTES, MAX_DISCARDED_BYTES, BoundedRequests, Refusal


class Application:
    """Keeps the body that it gets."""

    def __init__(self) -> None:
        self.body: bytes | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.body, more = b"", True
        while more:
            message = await receive()
            self.body += message["body"]
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


def refusal(headers: Headers) -> Refusal | None:
    return None if headers.get("authorization") == "right" else (401, "no", {})


async def call(
    app: Any, parts: list[bytes] | None, path: str = "/v1/jobs", **headers: str
) -> tuple[int, Any]:
    """Post a body in these parts; None is a client that sends none of it."""
    sent: list[Any] = []
    waiting = parts or []

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    await asyncio.wait_for(app(scope, receive, send), 60)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_nothing_is_read_from_a_client_without_the_token() -> None:
    app = Application()
    assert await call(BoundedRequests(app, refusal, arrival_s=0.05), None, content_length="5") == (
        401,
        {"detail": "no"},
    )
    assert app.body is None


@pytest.mark.parametrize(
    "length",
    [
        {},
        {"content_length": str(MAX_BODY_BYTES + 1)},
        {"content_length": "-1"},
        {"content_length": "9" * 5000},
    ],
)
async def test_nothing_is_read_of_a_body_of_unknown_or_too_large_size(length: dict[str, str]) -> None:
    app = Application()
    assert (await call(BoundedRequests(app, refusal, arrival_s=0.05), None, authorization="right", **length))[
        0
    ] == 413
    assert app.body is None


async def test_the_body_of_a_refused_request_is_discarded_within_limits() -> None:
    app, few, many = Application(), [b"x"] * 5, [b"x" * 2**20] * 100
    for parts, left in ((few, 0), (many, 100 - MAX_DISCARDED_BYTES // 2**20 - 1)):
        assert (await call(BoundedRequests(app, refusal), parts, content_length="5"))[0] == 401
        assert (app.body, len(parts)) == (None, left)


async def test_a_body_that_does_not_arrive_in_time_is_refused() -> None:
    app = Application()
    status, answer = await call(
        BoundedRequests(app, refusal, arrival_s=0.05), None, authorization="right", content_length="5"
    )
    assert (status, "did not arrive within 0.05 s" in answer["detail"]) == (408, True)
    assert app.body is None


async def test_the_application_gets_the_whole_body() -> None:
    app = Application()
    assert (
        await call(
            BoundedRequests(app, refusal), [b"one ", b"two"], authorization="right", content_length="7"
        )
    )[0] == 200
    assert app.body == b"one two"


async def test_other_paths_are_not_checked() -> None:
    app = Application()
    assert (await call(BoundedRequests(app, refusal), [b""], path="/readyz"))[0] == 200
