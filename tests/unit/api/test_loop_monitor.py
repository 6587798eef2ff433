"""A blocked loop is reported with its stack, by seconds and by the CPU time of its thread."""

from __future__ import annotations

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from fluxqueue.api import loop_monitor
from fluxqueue.api.loop_monitor import BLOCKED_S, log_blocks


def compute(cpu_s: float) -> None:
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass


async def test_a_block_is_reported_with_its_stack_and_cpu_time() -> None:
    loop, reported = asyncio.get_running_loop(), asyncio.Event()
    blocks: list[float] = []

    def observe(blocked_s: float) -> None:
        blocks.append(blocked_s)
        loop.call_soon_threadsafe(reported.set)

    with capture_logs() as logs:
        log_blocks(observe)
        async with asyncio.timeout(60):
            while not reported.is_set():
                compute(2.0)
                await asyncio.sleep(0.05)
            while not logs:
                await asyncio.sleep(0.05)
    assert blocks[0] >= BLOCKED_S
    assert logs[0]["event"] == "loop.blocked"
    assert logs[0]["cpu_s"] > 0.1
    assert "compute" in logs[0]["stack"]


async def test_each_long_block_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_monitor, "_LONG_S", 0.1)
    with capture_logs() as logs:
        log_blocks()
        async with asyncio.timeout(120):
            while len(logs) < 2:
                compute(2.0)
                await asyncio.sleep(0.05)
