"""The application called in process: the guards, and the code of each error of the instance."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest

from fluxqueue.rest.app import create_app
from fluxqueue.rest.bounded import MAX_BODY_BYTES
from fluxqueue.rest.commands import (
    Flux,
    FluxFailed,
    FluxMissing,
    NoSuchJob,
)
from fluxqueue.rest.submissions import FluxSubmission, InvalidWord


class Instance:
    """A Flux instance that fails as a test sets."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked: list[str] = []

    async def job(self, jobid: str) -> dict[str, Any]:
        self.asked.append(jobid)
        if self.error is not None:
            raise self.error
        return {"id": 7}

    async def output(self, jobid: str) -> AsyncGenerator[bytes, None]:
        if jobid == "f8":
            raise FluxFailed("too much")
        yield b'"so '
        yield b'far"'

    async def submit(self, submission: FluxSubmission) -> str:
        submission.words()
        return "f7"

    async def jobs(self, *, active_only: bool = False, limit: int = 1000) -> list[dict[str, Any]]:
        if self.error is not None:
            raise self.error
        return []


class Caller:
    """Calls the application by ASGI."""

    def __init__(self, token_file: Path) -> None:
        self.instance = Instance()
        self.app = create_app(cast("Flux", self.instance), token_file)

    async def call(
        self, method: str, path: str, token: str | None = "right", sent_body: str = "", **headers: str
    ) -> tuple[int, Any]:
        messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": sent_body.encode(), "more_body": False}
        ]
        status, body = 0, b""

        async def receive() -> dict[str, Any]:
            if not messages:
                await asyncio.get_running_loop().create_future()
            return messages.pop(0)

        async def send(message: Any) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                body += message.get("body", b"")

        sent = {**headers, **({"authorization": f"Bearer {token}"} if token is not None else {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(key.replace("_", "-").encode(), value.encode()) for key, value in sent.items()],
            "root_path": "",
        }
        await self.app(scope, receive, send)
        return status, json.loads(body)


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    (tmp_path / "token").write_text("right\n")
    return Caller(tmp_path / "token")


@pytest.mark.parametrize("token", [None, "", "wrong"])
async def test_without_the_token_the_instance_is_not_asked(caller: Caller, token: str | None) -> None:
    status, answer = await caller.call("GET", "/v1/jobs/f7", token)
    assert (status, caller.instance.asked) == (401, [])
    assert "Secret of this MiniCluster" in answer["detail"]


@pytest.mark.parametrize(("token", "status"), [("right", 200), ("wrong", 401), ("", 401)])
async def test_the_token_comes_in_a_header_of_its_own_through_the_proxy(
    caller: Caller, token: str, status: int
) -> None:
    assert (await caller.call("GET", "/v1/jobs/f7", None, fluxqueue_token=token))[0] == status


async def test_without_a_token_file_nobody_gets_in(tmp_path: Path) -> None:
    caller = Caller(tmp_path / "missing")
    assert await caller.call("GET", "/v1/jobs/f7", "") == (
        503,
        {"detail": "the token of this service does not exist yet"},
    )
    assert caller.instance.asked == []


@pytest.mark.parametrize(
    "length", [{}, {"content_length": str(MAX_BODY_BYTES + 1)}], ids=["unknown", "too large"]
)
async def test_a_body_of_unknown_or_too_large_size_is_refused(caller: Caller, length: dict[str, str]) -> None:
    status, answer = await caller.call("POST", "/v1/jobs", **length)
    assert (status, str(MAX_BODY_BYTES) in answer["detail"]) == (413, True)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param('"nodes": 0', "nodes: Input should be greater than or equal to 1", id="too small"),
        pytest.param('"nodes": NaN', "nodes: Input should be a finite number", id="no number"),
        pytest.param('"duration_s": Infinity', "duration_s: Input should be less than", id="infinite"),
        pytest.param('"name": "\\ud800"', "name: Input should be a valid string", id="half a character"),
        pytest.param('"environment": {"\\ud800": 1}', "environment", id="half a character in a key"),
        pytest.param(
            '"environment": {"A": "\\ud800"}', "half of a character", id="half a character in a value"
        ),
        pytest.param('"color": 1', "color: Extra inputs are not permitted", id="unknown field"),
        pytest.param(
            '"a": 1, ' + ", ".join(f'"a{number}": 1' for number in range(1000)),
            "a0: Extra",
            id="many problems",
        ),
    ],
)
async def test_an_invalid_request_is_answered_with_a_sentence(
    caller: Caller, fields: str, problem: str
) -> None:
    body = f'{{"command": ["a"], {fields}}}'
    status, answer = await caller.call(
        "POST", "/v1/jobs", sent_body=body, content_length=str(len(body)), content_type="application/json"
    )
    assert status == 422
    assert problem in answer["detail"]
    assert len(answer["detail"]) <= 2000


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoSuchJob("none"), 404),
        (FluxFailed("none"), 409),
        (InvalidWord("none"), 422),
        (FluxMissing("none"), 503),
    ],
)
async def test_each_error_of_the_instance_has_its_code(caller: Caller, error: Exception, code: int) -> None:
    caller.instance.error = error
    assert await caller.call("GET", "/v1/jobs/f7") == (code, {"detail": "none"})


async def test_output_that_cannot_be_read_is_answered_with_a_sentence(caller: Caller) -> None:
    assert await caller.call("GET", "/v1/jobs/f7/output") == (200, "so far")
    assert await caller.call("GET", "/v1/jobs/f8/output") == (409, {"detail": "too much"})


async def test_probes_need_no_token(caller: Caller) -> None:
    assert await caller.call("GET", "/healthz", None) == (200, {"status": "ok"})
    assert await caller.call("GET", "/readyz", None) == (200, {"status": "ok"})


async def test_readiness_says_why_the_instance_cannot_be_used(caller: Caller) -> None:
    caller.instance.error = FluxMissing("away")
    assert await caller.call("GET", "/readyz", None) == (
        503,
        {"status": "the instance does not respond yet: away"},
    )
