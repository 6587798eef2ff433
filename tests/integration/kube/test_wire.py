"""When is a call tried again? A scripted server over plain HTTP answers what a test tells it to, in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from fluxqueue.kube.credentials import NoConfiguration
from fluxqueue.kube.errors import (
    Forbidden,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Undecodable,
    Unreachable,
)
from fluxqueue.kube.kinds import LEASES
from fluxqueue.kube.transport import Api, CompletedCall

LEASE = {"metadata": {"name": "a", "namespace": "n", "resourceVersion": "1"}}
Answer = Callable[[web.Request], web.StreamResponse]


class Script:
    """Answers in turn, the last one for ever, and what was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [say(200, LEASE)]
        self.asked: list[tuple[str, str | None]] = []
        self.busy = 0
        self.busiest = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.asked.append((request.method, request.headers.get("Authorization")))
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await self.gate.wait()
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            return answer(request)
        finally:
            self.busy -= 1


def say(status: int, body: Any, **headers: str) -> Answer:
    return lambda _: web.json_response(body, status=status, headers=headers)


def hang_up(request: web.Request) -> web.StreamResponse:
    """The request was read, perhaps carried out; no answer comes."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def refuse(code: int, **headers: str) -> Answer:
    return say(code, {"kind": "Status", "code": code, "reason": "", "message": "no"}, **headers)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def kubeconfig(script: Script, tmp_path: Path) -> AsyncIterator[Path]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", script.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (tmp_path / "token").write_text("first\n")
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    yield path
    script.gate.set()
    await runner.cleanup()


@pytest.fixture
async def api(kubeconfig: Path) -> AsyncIterator[Api]:
    async with Api.connect(kubeconfig, timeout_s=5.0, max_in_flight=3) as api:
        yield api


async def test_a_read_survives_a_connection_that_breaks(api: Api, script: Script) -> None:
    script.answers = [hang_up, hang_up, say(200, LEASE)]
    assert (await api.get(LEASES, "a", "n")).metadata.name == "a"
    assert len(script.asked) == 3
    assert api.calls["get", "leases"] == 3


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda api: api.create(LEASES, LEASE, "n"), id="create"),
        pytest.param(lambda api: api.patch(LEASES, "a", {}, namespace="n"), id="patch"),
        pytest.param(lambda api: api.delete(LEASES, "a", namespace="n"), id="delete"),
    ],
)
async def test_a_write_whose_answer_is_lost_is_not_sent_twice(
    api: Api, script: Script, write: Callable[[Api], Any]
) -> None:
    # so that the write goes over a kept connection, which aiohttp would try again by itself
    await api.get(LEASES, "a", "n")
    script.answers = [hang_up, say(200, LEASE)]
    with pytest.raises(Unreachable, match="Lease n/a: connection to .* lost") as lost:
        await write(api)
    assert lost.value.sent
    assert len(script.asked) == 2


async def test_a_page_of_long_objects_is_read_in_parts(api: Api, script: Script) -> None:
    asked: list[int] = []

    def leases(request: web.Request) -> web.StreamResponse:
        asked.append(int(request.query["limit"]))
        return web.json_response(
            {"metadata": {}, "items": [{**LEASE, "note": "x" * 10_000}] * min(asked[-1], 500)}
        )

    script.answers = [leases]
    page = await api.page(LEASES, most_bytes=100_000)
    assert (asked, len(page.items), page.limit) == ([500, 62, 7], 7, 7)


async def test_of_an_endless_error_only_the_beginning_is_read(api: Api, script: Script) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1 << 18
            yield b"no, " * (1 << 16)

    script.answers = [lambda _: web.Response(status=403, body=endless())]
    with pytest.raises(Forbidden, match="get Lease n/a: 403: no, no, ") as refused:
        await api.get(LEASES, "a", "n")
    assert len(str(refused.value)) < 1_000
    with pytest.raises(Forbidden):
        await anext(api.watch(LEASES, "n", resource_version="1", timeout_s=9, idle_s=9))
    assert sent < 40 << 20


@pytest.fixture
def nowhere(tmp_path: Path, kubeconfig: Path) -> Path:
    """Leads to a port where nobody listens."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    path = tmp_path / "nowhere"
    path.write_text(yaml.safe_dump(config))
    return path


async def test_a_write_that_could_not_even_connect_says_so_after_some_tries(nowhere: Path) -> None:
    async with Api.connect(nowhere, timeout_s=5.0) as api:
        with pytest.raises(Unreachable, match="cannot connect to http://127.0.0.1:1") as lost:
            await api.create(LEASES, LEASE, "n")
    assert not lost.value.sent
    assert api.calls["create", "leases"] == 5


@pytest.mark.parametrize("method", ["get", "create"])
async def test_too_many_requests_are_repeated_after_the_pause_asked_for(
    api: Api, script: Script, method: str
) -> None:
    script.answers = [
        refuse(429, **{"Retry-After": "0"}),
        refuse(429, **{"Retry-After": "0"}),
        say(200, LEASE),
    ]
    await (api.get(LEASES, "a", "n") if method == "get" else api.create(LEASES, LEASE, "n"))
    assert len(script.asked) == 3


async def test_too_many_requests_for_ever_end_after_a_bounded_number_of_tries(
    api: Api, script: Script
) -> None:
    script.answers = [refuse(429, **{"Retry-After": "0"})]
    with pytest.raises(TooManyRequests):
        await api.get(LEASES, "a", "n")
    assert len(script.asked) == 5


async def test_a_pause_beyond_the_deadline_is_not_waited_for(api: Api, script: Script) -> None:
    script.answers = [refuse(429, **{"Retry-After": "60"})]
    with pytest.raises(TooManyRequests) as refused:
        await asyncio.wait_for(api.get(LEASES, "a", "n"), 2)
    assert refused.value.retry_after_s == 60
    assert len(script.asked) == 1


async def test_a_server_error_with_a_pause_is_repeated_for_reads_only(api: Api, script: Script) -> None:
    script.answers = [refuse(503, **{"Retry-After": "0"}), say(200, LEASE)]
    await api.get(LEASES, "a", "n")
    script.answers = [refuse(503, **{"Retry-After": "0"}), say(200, LEASE)]
    with pytest.raises(ServerError):
        await api.create(LEASES, LEASE, "n")
    assert len(script.asked) == 3


async def test_a_refused_token_is_read_again_and_the_call_repeated(
    api: Api, script: Script, tmp_path: Path
) -> None:
    await api.get(LEASES, "a", "n")
    (tmp_path / "token").write_text("second\n")
    script.answers = [refuse(401), say(200, LEASE)]
    await api.create(LEASES, LEASE, "n")
    assert [header for _, header in script.asked] == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_token_that_stays_refused_is_an_error_at_once(api: Api, script: Script) -> None:
    script.answers = [refuse(401)]
    with pytest.raises(Unauthorized):
        await api.get(LEASES, "a", "n")
    assert len(script.asked) == 1


async def test_many_calls_that_find_the_token_refused_read_it_once(
    api: Api, script: Script, tmp_path: Path
) -> None:
    await api.get(LEASES, "a", "n")
    (tmp_path / "token").write_text("second\n")
    script.answers = [refuse(401), refuse(401), refuse(401), say(200, LEASE)]
    await asyncio.gather(*(api.get(LEASES, "a", "n") for _ in range(3)))
    assert [header for _, header in script.asked].count("Bearer first") == 4


async def test_a_token_file_that_vanishes_for_a_moment_does_no_harm(
    api: Api, script: Script, tmp_path: Path
) -> None:
    await api.get(LEASES, "a", "n")
    (tmp_path / "token").unlink()
    script.answers = [refuse(401)]
    with pytest.raises(Unauthorized):
        await api.get(LEASES, "a", "n")
    (tmp_path / "token").write_text("third")
    script.answers = [refuse(401), say(200, LEASE)]
    await api.get(LEASES, "a", "n")
    assert script.asked[-1] == ("GET", "Bearer third")


async def test_no_more_calls_than_allowed_are_in_flight(api: Api, script: Script) -> None:
    script.gate.clear()
    calls = asyncio.gather(*(api.get(LEASES, "a", "n") for _ in range(9)))
    async with asyncio.timeout(60):
        while script.busy < 3:
            await asyncio.sleep(0.01)
    script.gate.set()
    await calls
    assert script.busiest == 3
    assert len(script.asked) == 9


async def test_the_deadline_covers_a_server_that_never_answers(kubeconfig: Path, script: Script) -> None:
    script.gate.clear()
    async with Api.connect(kubeconfig, timeout_s=0.3) as api:
        with pytest.raises(
            Unreachable, match="create Lease n/a: no answer from http://.* within 0.3 s"
        ) as lost:
            await asyncio.wait_for(api.create(LEASES, LEASE, "n"), 3)
    assert lost.value.sent


async def test_what_is_no_kubernetes_answer_is_not_taken_for_one(api: Api, script: Script) -> None:
    script.answers = [say(200, ["login", "page"])]
    with pytest.raises(Undecodable, match="get Lease n/a"):
        await api.get(LEASES, "a", "n")
    with pytest.raises(Undecodable, match="list leases in n"):
        await api.list(LEASES, "n")


async def test_every_request_is_told_to_the_metrics(api: Api, script: Script) -> None:
    told: list[CompletedCall] = []
    api.on_call = told.append
    script.answers = [refuse(429, **{"Retry-After": "0"}), say(200, LEASE)]
    await api.patch(LEASES, "a", {}, namespace="n", subresource="status")
    assert [(call.verb, call.kind, call.status) for call in told] == [
        ("patch", "leases/status", 429),
        ("patch", "leases/status", 200),
    ]
    assert all(call.seconds > 0 for call in told)


async def test_no_configuration_says_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoConfiguration, match="set KUBECONFIG"):
        async with Api.connect():
            pass
    with pytest.raises(NoConfiguration, match="no such file: .*missing"):
        async with Api.connect(tmp_path / "missing"):
            pass
