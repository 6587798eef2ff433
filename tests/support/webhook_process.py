"""The webhook as a separate process, and an HTTP/1.1 client that keeps its connection like the API server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.loop_blocks import assert_short_blocks, logged_blocks

from fluxqueue.certs.authority import Pair, ServingNames, issue_leaf, make_authority

NAMES = ServingNames(dns=("localhost",), addresses=("127.0.0.1",))
WAIT_S = 60.0


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def make_leaf(authority: Pair) -> Pair:
    return issue_leaf(authority, NAMES, now())


def new_authority() -> Pair:
    return make_authority("test", now())


def trusting(*authorities: Pair) -> ssl.SSLContext:
    """Return a client context that trusts only these authorities."""
    return ssl.create_default_context(cadata="".join(each.certificate.decode() for each in authorities))


def trusting_anybody() -> ssl.SSLContext:
    """Return a client context without verification, like the kubelet's probes."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def serial(self) -> str:
        """Serial number of the certificate that the server presented."""
        certificate = self._writer.get_extra_info("ssl_object").getpeercert()
        return str(certificate["serialNumber"])

    @property
    def version(self) -> str:
        return str(self._writer.get_extra_info("ssl_object").version())

    async def request(self, method: str, path: str, body: bytes = b"", length: int | None = None) -> Answer:
        await self.send(method, path, body, length)
        return await self.answer()

    async def send(self, method: str, path: str, body: bytes = b"", length: int | None = None) -> None:
        head = (
            f"{method} {path} HTTP/1.1\r\n"
            "Host: localhost\r\n"
            f"Content-Length: {len(body) if length is None else length}\r\n"
            "\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def answer(self) -> Answer:
        async with asyncio.timeout(WAIT_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                key.lower(): value.strip()
                for key, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(head[0].split()[1]), headers, body)

    async def ended(self) -> bool:
        """Wait until the server sends something or closes the connection; return True if it closed it."""
        async with asyncio.timeout(WAIT_S):
            return await self._reader.read(1) == b""

    def write_raw(self, content: bytes) -> None:
        self._writer.write(content)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self._writer.wait_closed()


@dataclass
class WebhookProcess:
    """A running webhook, with its log lines."""

    process: asyncio.subprocess.Process
    certificates: Path
    port: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)
    following: asyncio.Future[None] = field(init=False)
    _line_added: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def connect(self, context: ssl.SSLContext) -> Connection:
        async with asyncio.timeout(WAIT_S):
            return Connection(
                *await asyncio.open_connection(
                    "127.0.0.1", self.port, ssl=context, server_hostname="localhost"
                )
            )

    async def ask(self, context: ssl.SSLContext, method: str, path: str, body: bytes = b"") -> Answer:
        """Send one request on a new connection."""
        connection = await self.connect(context)
        try:
            return await connection.request(method, path, body)
        finally:
            await connection.close()

    async def logged(self, event: str, times: int = 1, **fields: str) -> dict[str, Any]:
        """Wait until an event with this prefix and these fields has been logged this often;
        return the last one.
        """

        def matching() -> list[dict[str, Any]]:
            return [
                line
                for line in self.lines
                if line["event"].startswith(event) and fields.items() <= line.items()
            ]

        async with asyncio.timeout(WAIT_S), self._line_added:
            await self._line_added.wait_for(lambda: len(matching()) >= times)
        return matching()[-1]

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait until the program has ended and all its lines have been read; return its exit code."""
        async with asyncio.timeout(WAIT_S):
            await asyncio.shield(self.following)
            return await self.process.wait()

    async def follow(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            entry = (
                json.loads(line) if line.startswith(b"{") else {"event": line.decode().strip(), "plain": True}
            )
            async with self._line_added:
                self.lines.append(entry)
                self._line_added.notify_all()


@contextlib.asynccontextmanager
async def running_webhook(
    certificates: Path, *arguments: str, files: int | None = None
) -> AsyncIterator[WebhookProcess]:
    """Start the program on a free port, where it may open so many files; stop it at the end of the block."""
    command = [
        sys.executable,
        "-m",
        "fluxqueue.webhook.main",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--cert-dir",
        str(certificates),
    ]
    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
    process = await asyncio.create_subprocess_exec(
        *command, "--look-seconds", "0.05", *arguments, stderr=asyncio.subprocess.PIPE
    )
    webhook = WebhookProcess(process, certificates)
    webhook.following = asyncio.create_task(webhook.follow())
    try:
        webhook.port = (await webhook.logged("webhook.listening"))["port"]
        yield webhook
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await webhook.following
    assert_short_blocks("the webhook", logged_blocks(webhook.lines))
