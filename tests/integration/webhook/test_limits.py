"""The webhook process and clients that hold what they can:
slow ones, large ones, and those that speak HTTP otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from support.builders import make_job, make_review
from support.webhook_process import (
    WAIT_S,
    Connection,
    WebhookProcess,
    make_leaf,
    new_authority,
    now,
    running_webhook,
    trusting_anybody,
)

from fluxqueue.api.descriptors import RESERVED
from fluxqueue.certs.pairs import write_pair
from fluxqueue.local.ports import free_port

REVIEW = make_review(make_job()).body()
TLS = trusting_anybody()
HEAD = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


@contextlib.asynccontextmanager
async def a_webhook(folder: Path, *arguments: str, files: int | None = None) -> AsyncIterator[WebhookProcess]:
    write_pair(folder, make_leaf(new_authority()), now())
    async with running_webhook(folder, *arguments, files=files) as webhook:
        await webhook.logged("certificate.loaded")
        yield webhook


async def ended_for(webhook: WebhookProcess, limit: str) -> int:
    """Return the number of connections that were ended because of this limit."""
    text = (await webhook.ask(TLS, "GET", "/metrics")).body.decode()
    name = f'fluxqueue_webhook_connections_ended_total{{limit="{limit}"}} '
    return next(
        (int(float(line.removeprefix(name))) for line in text.splitlines() if line.startswith(name)), 0
    )


async def closed(connection: Connection) -> bool:
    """Wait until the server closes a connection, after any answer."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while not await connection.ended():
            pass
    return True


async def test_a_handshake_a_head_and_a_body_that_do_not_end_are_cut_off(tmp_path: Path) -> None:
    async with a_webhook(tmp_path, "--request-seconds", "0.5") as webhook:
        kept = await webhook.connect(TLS)
        reader, writer = await asyncio.open_connection("127.0.0.1", webhook.port)
        slow = [await webhook.connect(TLS) for _ in range(2)]
        slow[0].write_raw(b"POST /mutate HTTP/1.1\r\nHost: ")
        slow[1].write_raw(HEAD % len(REVIEW) + REVIEW[:-1])
        for connection in slow:
            answer = await connection.answer()
            assert (answer.status, answer.body) == (
                408,
                b"the request was not complete in time: send it at once\n",
            )
            assert await closed(connection)
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read(1) == b""
        writer.close()
        assert (await kept.request("POST", "/mutate", REVIEW)).status == 200
        assert await ended_for(webhook, "slow") == 3


async def test_more_silent_connections_than_open_files_keep_nobody_out(tmp_path: Path) -> None:
    """Neither the API server nor the kubelet; it was so when connections were more than files may be open."""
    port = free_port()
    async with a_webhook(
        tmp_path, "--request-seconds", "300", "--health-port", str(port), files=192
    ) as webhook:
        silent = [await asyncio.open_connection("127.0.0.1", webhook.port) for _ in range(300)]
        assert (await webhook.ask(TLS, "POST", "/mutate", REVIEW)).status == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(WAIT_S):
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        assert await ended_for(webhook, "crowded") >= 300 - (192 - RESERVED)
        for _, each in [*silent, (reader, writer)]:
            each.close()


async def test_unfinished_bodies_together_hold_a_limited_number_of_bytes(tmp_path: Path) -> None:
    size = 3_000_000
    async with a_webhook(tmp_path, "--request-seconds", "30") as webhook:
        unfinished = [await webhook.connect(TLS) for _ in range(13)]
        for connection in unfinished:
            connection.write_raw(HEAD % size + b" " * (size - 10))
        first = await asyncio.wait(
            {asyncio.create_task(each.answer()) for each in unfinished}, return_when=asyncio.FIRST_COMPLETED
        )
        for task in first[1]:
            task.cancel()
        answer = first[0].pop().result()
        assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (
            429,
            "1",
            "close",
        )
        assert (await webhook.ask(TLS, "POST", "/mutate", REVIEW)).status == 200
        assert await ended_for(webhook, "memory") >= 1
        for connection in unfinished:
            await connection.close()


async def test_what_the_api_server_never_sends_is_refused_with_a_sentence(tmp_path: Path) -> None:
    many = b"".join(b"a%d: b\r\n" % number for number in range(200))
    async with a_webhook(tmp_path) as webhook:
        for sent in (
            b"POST /mutate HTTP/1.1\r\nHost: x\r\n" + many + b"\r\n",
            b"POST /mutate HTTP/1.1\r\nHost: " + b"x" * 400_000,
            b"\x16\x03 what is this\r\n\r\n",
            b"POST /mutate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\nx\r\n" * 40_000,
        ):
            connection = await webhook.connect(TLS)
            connection.write_raw(sent)
            answer = await connection.answer()
            assert (answer.status, answer.body.count(b"\n")) == (400, 1)
            assert b"HTTP/1.1 with one request at a time" in answer.body
            await connection.close()
        assert await ended_for(webhook, "malformed") == 4
        assert not [line for line in webhook.lines if "plain" in line or line["level"] == "error"]


async def test_pipelined_requests_end_their_connection_and_no_other(tmp_path: Path) -> None:
    async with a_webhook(tmp_path) as webhook:
        kept = await webhook.connect(TLS)
        pipelining = await webhook.connect(TLS)
        pipelining.write_raw((HEAD % len(REVIEW) + REVIEW) * 50)
        assert await closed(pipelining)
        answer = await kept.request("POST", "/mutate", REVIEW)
        assert answer.json["response"]["uid"] == json.loads(REVIEW)["request"]["uid"]


async def test_a_client_that_asks_before_it_sends_is_told_to_send(tmp_path: Path) -> None:
    async with a_webhook(tmp_path) as webhook:
        connection = await webhook.connect(TLS)
        connection.write_raw(
            b"POST /mutate HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
            % len(REVIEW)
        )
        assert (await connection.answer()).status == 100
        connection.write_raw(REVIEW)
        assert (await connection.answer()).status == 200
        await connection.close()
