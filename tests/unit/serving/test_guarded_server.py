"""A server that any pod may reach: silence keeps nobody out, with and without TLS,
and no step of a connection lasts for ever.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import resource
import ssl
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from support.embedded_servers import serving

from fluxqueue.certs.authority import ServingNames, issue_leaf, make_authority
from fluxqueue.serving.connections import ConnectionEnding, ConnectionLimits
from fluxqueue.serving.guarded_server import CannotListen, GuardedServer, listen

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LIMITS = ConnectionLimits(connections=4, body_bytes=100, one_request=True)


def certificate_context(folder: Path, kind: type[ssl.SSLContext] = ssl.SSLContext) -> ssl.SSLContext:
    """Return the context of a server with a certificate of its own."""
    now = dt.datetime.now(dt.UTC)
    leaf = issue_leaf(make_authority("test", now), ServingNames(dns=("localhost",)), now)
    (folder / "tls.crt").write_bytes(leaf.certificate)
    (folder / "tls.key").write_bytes(leaf.key)
    context = kind(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def trusting_anybody() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def guarded(limits: ConnectionLimits = LIMITS, **more: Any) -> AbstractAsyncContextManager[int]:
    async def answer(_request: Request) -> Response:
        return PlainTextResponse("here")

    return serving(
        GuardedServer(Starlette(routes=[Route("/", answer)]), listen("127.0.0.1", 0), limits, **more)
    )


async def asked(port: int, request: bytes = REQUEST, *, tls: bool = False) -> bytes:
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting_anybody() if tls else None
        )
        writer.write(request)
        answer = await reader.read()
        writer.close()
    return answer


async def test_a_connection_carries_one_request_where_the_limits_say_so() -> None:
    async with guarded() as port:
        answer = await asked(port)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in answer


async def test_a_connection_carries_many_requests_by_default() -> None:
    async with guarded(ConnectionLimits()) as port, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(REQUEST)
            assert b"200" in await reader.readuntil(b"here")
        writer.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_silent_connections_do_not_keep_a_caller_out(tmp_path: Path, tls: bool) -> None:
    """They count from their arrival: none of them says a byte of a handshake."""
    endings: list[ConnectionEnding] = []
    async with guarded(
        context=certificate_context(tmp_path) if tls else None, observe=endings.append
    ) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        assert b"here" in await asked(port, tls=tls)
        async with asyncio.timeout(60):
            ended = [reader for reader, _ in silent[:8] if await reader.read() == b""]
        assert len(ended) == 8, "the oldest ones were closed"
        assert set(endings) == {ConnectionEnding.CROWDED}
        for _, writer in silent:
            writer.close()


class _CountedContext(ssl.SSLContext):
    handshakes = 0

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        self.handshakes += 1
        return super().wrap_bio(*arguments, **named)


async def test_a_silent_connection_costs_no_tls(tmp_path: Path) -> None:
    context = certificate_context(tmp_path, _CountedContext)
    assert isinstance(context, _CountedContext)
    async with guarded(replace(LIMITS, connections=100), context=context) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert b"here" in await asked(port, tls=True)
        assert context.handshakes == 1
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_a_silent_connection_ends_at_its_deadline(tmp_path: Path, tls: bool) -> None:
    limits = replace(LIMITS, request_s=0.05, idle_s=0.05)
    async with (
        guarded(limits, context=certificate_context(tmp_path) if tls else None) as port,
        asyncio.timeout(60),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()


async def test_a_connection_that_was_answered_and_says_no_more_ends() -> None:
    async with guarded(replace(LIMITS, one_request=False, idle_s=0.05)) as port, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        assert (await reader.read()).endswith(b"here"), "to the end of the connection"
        writer.close()


async def test_a_head_that_never_ends_is_cut_off() -> None:
    async with guarded(replace(LIMITS, request_s=0.05)) as port:
        assert b"408" in (await asked(port, b"GET / HTTP/1.1\r\nHost: x\r\n")).split(b"\r\n")[0]


async def test_a_huge_head_is_refused() -> None:
    async with guarded() as port:
        assert b"400" in (await asked(port, b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000)).split(b"\r\n")[0]


async def test_connections_leave_a_reserve_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (132, 132))
    async with guarded(replace(LIMITS, connections=1_024)) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        assert b"here" in await asked(port)
        async with asyncio.timeout(60):
            assert await silent[0][0].read() == b"", "only four may be open"
        for _, writer in silent:
            writer.close()


async def test_an_address_that_is_in_use_is_named() -> None:
    async with guarded() as port:
        with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)


async def test_an_answer_has_the_date_of_its_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded() as port:
        for second in (1_000_000_000, 1_000_000_000, 1_000_000_061):
            monkeypatch.setattr(
                "fluxqueue.serving.guarded_server.time.time", lambda second=second: second + 0.5
            )
            assert f"\r\ndate: {formatdate(second, usegmt=True)}\r\n".encode() in await asked(port)


async def test_an_idle_server_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, delays = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def noted(when: float, *more: Any, **named: Any) -> asyncio.TimerHandle:
        delays.append(when - loop.time())
        return call_at(when, *more, **named)

    monkeypatch.setattr(loop, "call_at", noted)
    async with guarded():
        timers = [delay for delay in delays if 0.05 < delay < 15]
    assert timers == [], "but for the waits of this test"


async def test_a_newcomer_ends_one_connection_and_not_itself() -> None:
    """Its handshake and the connection after it are one."""
    async with guarded(replace(LIMITS, one_request=False)) as port, asyncio.timeout(60):
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for reader, writer in kept:
            writer.write(REQUEST)
            await reader.readuntil(b"here")
        newcomer, writer = await asyncio.open_connection("127.0.0.1", port)
        kept.append((newcomer, writer))
        writer.write(REQUEST)
        await newcomer.readuntil(b"here")
        assert await kept[0][0].read() == b"", "the oldest one was closed"
        for reader, writer in kept[1:]:
            writer.write(REQUEST)
            await reader.readuntil(b"here")
        for _, writer in kept:
            writer.close()


async def test_a_service_that_bounds_bodies_itself_answers_before_they_arrive() -> None:
    limits = ConnectionLimits(connections=4, whole_requests=False)
    async with guarded(limits) as port, asyncio.timeout(60):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
            assert b"200" in await reader.readuntil(b"here")
            writer.write(b"12345")
        for _, each in [*silent, (reader, writer)]:
            each.close()
