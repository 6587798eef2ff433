"""Connections of a server that any pod may reach: silent ones do not keep a caller out, and none lives long."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from email.utils import formatdate
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from support.embedded_servers import serving

from fluxqueue.local.ports import free_port
from fluxqueue.queue.admin.connections import BoundedConnection, bounded_config

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "most", 4)


def bounded() -> AbstractAsyncContextManager[int]:
    async def answer(_request: Request) -> Response:
        return PlainTextResponse("here")

    return serving(bounded_config(Starlette(routes=[Route("/", answer)]), "127.0.0.1", free_port()))


async def asked(port: int, request: bytes = REQUEST) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


async def test_a_connection_carries_one_request() -> None:
    async with bounded() as port:
        answer = await asked(port, REQUEST + REQUEST)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in answer


async def test_silent_connections_do_not_keep_a_caller_out() -> None:
    async with bounded() as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        assert b"here" in await asked(port)
        async with asyncio.timeout(60):
            ended = [reader for reader, _ in silent[:8] if await reader.read() == b""]
        assert len(ended) == 8, "the oldest ones were closed"
        for _, writer in silent:
            writer.close()


async def test_a_head_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "head_s", 0.05)
    async with bounded() as port:
        assert await asked(port, b"GET / HTTP/1.1\r\nHost: x\r\n") == b""


async def test_a_huge_head_is_refused() -> None:
    async with bounded() as port:
        assert b"400" in (await asked(port, b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000)).split(b"\r\n")[0]


async def test_a_server_ends_at_once_when_it_is_told() -> None:
    async with bounded() as port:
        assert b"here" in await asked(port)


async def test_an_answer_has_the_date_of_its_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bounded() as port:
        for second in (1_000_000_000, 1_000_000_000, 1_000_000_061):
            monkeypatch.setattr("fluxqueue.certs.https.time.time", lambda second=second: second + 0.5)
            assert f"\r\ndate: {formatdate(second, usegmt=True)}\r\n".encode() in await asked(port)


async def test_an_idle_server_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, delays = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def noted(when: float, *more: Any, **named: Any) -> asyncio.TimerHandle:
        delays.append(when - loop.time())
        return call_at(when, *more, **named)

    monkeypatch.setattr(loop, "call_at", noted)
    async with bounded():
        timers = [delay for delay in delays if 0.05 < delay < 15]
    assert timers == [], "but for the waits of this test"
