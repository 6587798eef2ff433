"""Probes are answered by a thread: a busy program lives, a stuck one does not,
and a flood keeps no probe out.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fluxqueue.serving.health import HealthServer


def ready() -> tuple[bool, Mapping[str, Any]]:
    return True, {"ready": True, "thread": threading.current_thread().name}


@asynccontextmanager
async def serving(server: HealthServer) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port."""
    port = server.port
    task = asyncio.create_task(server.serve())
    await asyncio.sleep(0)
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.wait({task})


def probe(port: int, path: str) -> tuple[int, bytes]:
    """Ask as the kubelet does; blocks the caller's thread."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def probed_until(port: int, path: str, status: int) -> bytes:
    """Probe until this status is answered; return the body."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if (answer := probe(port, path))[0] == status:
            return answer[1]
    raise AssertionError(f"{path} was never {status}")


async def test_readiness_is_computed_in_the_main_loop() -> None:
    async with serving(HealthServer("127.0.0.1", 0, ready)) as port:
        status, body = await asyncio.to_thread(probe, port, "/readyz")
    assert (status, json.loads(body)) == (200, {"ready": True, "thread": "MainThread"})


async def test_a_program_that_is_not_ready_says_so() -> None:
    async with serving(HealthServer("127.0.0.1", 0, lambda: (False, {"ready": False}))) as port:
        assert await asyncio.to_thread(probe, port, "/readyz") == (503, b'{"ready":false}')


async def test_a_busy_main_loop_is_alive_and_not_ready() -> None:
    async with serving(HealthServer("127.0.0.1", 0, ready, answer_s=0.1)) as port:
        # The loop of this test is blocked from here on: only the thread can answer.
        assert probe(port, "/healthz") == (200, b"ok\n")
        assert probe(port, "/readyz") == (503, b'{"ready":false,"missing":["event-loop"]}')
        assert probe(port, "/healthz") == (200, b"ok\n")


async def test_a_stuck_main_loop_is_not_alive_until_it_answers_again() -> None:
    async with serving(HealthServer("127.0.0.1", 0, ready, stuck_s=0.2)) as port:
        assert probe(port, "/healthz") == (200, b"ok\n")
        assert b"the event loop has not answered for" in probed_until(port, "/healthz", 503)
        await asyncio.sleep(0)
        await asyncio.to_thread(probed_until, port, "/healthz", 200)


async def test_silent_connections_keep_no_probe_out() -> None:
    async with serving(HealthServer("127.0.0.1", 0, ready)) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        assert probe(port, "/healthz") == (200, b"ok\n")
        for _, writer in silent:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in silent), return_exceptions=True)


async def test_a_failing_question_ends_neither_the_thread_nor_the_program() -> None:
    def broken() -> tuple[bool, Mapping[str, Any]]:
        raise LookupError("no such condition")

    async with serving(HealthServer("127.0.0.1", 0, broken)) as port:
        assert (await asyncio.to_thread(probe, port, "/readyz"))[0] == 500
        assert (await asyncio.to_thread(probe, port, "/healthz"))[0] == 200


@pytest.mark.parametrize("number", [signal.SIGTERM])
async def test_a_termination_signal_reaches_the_program_once(number: signal.Signals) -> None:
    """A second signal would cancel what the first one started: the release of the Lease."""
    received: list[signal.Signals] = []
    note: Callable[[signal.Signals], None] = received.append
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, note, number)
    try:
        async with serving(HealthServer("127.0.0.1", 0, ready)) as port, asyncio.timeout(60):
            await asyncio.to_thread(probe, port, "/healthz")
            signal.raise_signal(number)
            while not received:
                await asyncio.sleep(0.01)
            assert (await asyncio.to_thread(probe, port, "/healthz"))[0] == 200
    finally:
        loop.remove_signal_handler(number)
    assert received == [number]
