"""A long block of an event loop fails a test, and a late loop on a busy machine does not."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from support.loop_blocks import (
    LIMIT_S,
    assert_short_logged_blocks,
    delays,
    log_sizes,
    slowness,
    with_short_blocks,
)


def note(log: Path, seconds: float, cpu_s: float) -> None:
    with log.open("a") as lines:
        lines.write(
            json.dumps({"event": "loop.blocked", "seconds": seconds, "cpu_s": cpu_s, "stack": "in compute"})
            + "\n"
        )


def test_a_loop_that_computes_for_longer_than_the_limit_fails_the_test(tmp_path: Path) -> None:
    since = log_sizes(tmp_path)
    note(tmp_path / "queue.log", 3.0, 2.0)
    with pytest.raises(
        AssertionError, match=r"(?s)queue was blocked for 3.0 s, 2.0 s of them by itself.*in compute"
    ):
        assert_short_logged_blocks(tmp_path.glob("*.log"), since, limit_s=1.0)


def test_a_loop_that_was_late_or_computed_before_the_test_does_not(tmp_path: Path) -> None:
    note(tmp_path / "queue.log", 3.0, 2.0)
    since = log_sizes(tmp_path)
    (tmp_path / "fluxion.log").write_text('text with "loop.blocked"\n')
    note(tmp_path / "queue.log", 30.0, 0.2)
    assert_short_logged_blocks(tmp_path.glob("*.log"), since, limit_s=1.0)


def test_a_machine_is_never_taken_for_faster_than_the_reference() -> None:
    assert slowness() >= 1


def test_what_takes_a_second_may_take_three_where_three_processes_share_a_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (6.0, 0.0, 0.0))
    assert delays() == 3 * slowness()
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 0.0, 0.0))
    assert delays() == slowness()


async def test_an_integration_test_that_blocks_its_own_loop_fails() -> None:
    async def compute() -> None:
        until = time.thread_time() + 2 * LIMIT_S * slowness()
        while time.thread_time() < until:
            pass
        await asyncio.sleep(1)

    async def wait() -> None:
        await asyncio.sleep(0.5)

    await with_short_blocks(wait)()
    with pytest.raises(AssertionError, match=r"(?s)event loop of the test was blocked.*in compute"):
        await with_short_blocks(compute)()
