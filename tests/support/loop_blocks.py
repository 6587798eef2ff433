"""Fails where the event loop of a program was blocked for long (`fluxqueue.api.loop_monitor`).

What counts is the CPU time of the loop's thread during the block: a busy machine lets a loop wait without any
fault of its own. The limit grows with the slowness of the machine, so that a slow one finds the same blocks
as a fast one.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fluxqueue.api.loop_monitor import Block, watch_loop

__all__ = [
    "LIMIT_S",
    "assert_short_blocks",
    "assert_short_logged_blocks",
    "delays",
    "log_sizes",
    "logged_blocks",
    "slowness",
    "with_short_blocks",
]

LIMIT_S = 1.0
_REFERENCE_S = 0.009
"""CPU time of `_work` on the machine on which the limit is meant as it is."""


def log_sizes(folder: Path) -> dict[Path, int]:
    """Return the sizes of the logs in a folder: what is logged from now on comes after them."""
    return {log: log.stat().st_size for log in folder.glob("*.log")}


def assert_short_logged_blocks(
    logs: Iterable[Path], since: Mapping[Path, int] | None = None, limit_s: float | None = None
) -> None:
    """Fail if a loop used the CPU for longer than the limit before it answered, as the logs of programs say.

    Parameters
    ----------
    logs
        Files, each named after its program.
    since
        What `log_sizes` returned: earlier lines do not count.
    limit_s
        None: `LIMIT_S` times the slowness of this machine.
    """
    for log in sorted(logs):
        with log.open("rb") as stream:
            stream.seek((since or {}).get(log, 0))
            lines = [
                json.loads(line) for line in stream if b'"loop.blocked"' in line and line.startswith(b"{")
            ]
        assert_short_blocks(log.stem, logged_blocks(lines), limit_s)


def logged_blocks(entries: Iterable[Mapping[str, Any]]) -> list[Block]:
    """Return the blocks among what a program logged."""
    return [
        Block(each["seconds"], each["cpu_s"], each["stack"])
        for each in entries
        if each["event"] == "loop.blocked"
    ]


def assert_short_blocks(program: str, blocks: Iterable[Block], limit_s: float | None = None) -> None:
    """Fail if one of these blocks of a program's loop used the CPU for longer than the limit."""
    for block in blocks:
        limit_s = LIMIT_S * slowness() if limit_s is None else limit_s
        message = (
            f"the event loop of {program} was blocked for {block.seconds} s, "
            f"{block.cpu_s} s of them by itself"
        )
        assert block.cpu_s <= limit_s, f"{message} (limit {limit_s:.2f} s):\n{block.stack}"


def with_short_blocks(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Return a test that fails as well if it, or what runs in its loop,
    blocks the loop for longer than the limit.
    """

    @functools.wraps(test)
    async def watched(*arguments: Any, **named: Any) -> None:
        blocks: list[Block] = []
        watch_loop(blocks.append)
        await test(*arguments, **named)
        assert_short_blocks("the test", blocks)

    return watched


@functools.cache
def slowness() -> float:
    """Return how many times slower than the reference this machine computes; at least 1."""
    times = []
    for _ in range(5):
        began = time.thread_time()
        _work()
        times.append(time.thread_time() - began)
    return max(min(times) / _REFERENCE_S, 1.0)


def delays() -> float:
    """Return how many times longer than on the reference machine, if it is idle, something may take here now;
    at least 1.
    """
    return slowness() * max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)


def _work() -> None:
    found: dict[int, list[int]] = {}
    for number in range(100_000):
        found.setdefault(number % 1_000, []).append(number)
    sorted((len(each), key) for key, each in found.items())
