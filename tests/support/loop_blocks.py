"""Fails where the event loop of a program was blocked for long, as the programs' logs say (`fluxqueue.api.loop_monitor`).

What counts is the CPU time of the loop's thread during the block: a busy machine lets a loop wait without any fault of its own. The limit
grows with the slowness of the machine, so that a slow one finds the same blocks as a fast one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["assert_short_blocks", "log_sizes", "slowness"]

LIMIT_S = 1.0
_REFERENCE_S = 0.009
"""CPU time of `_work` on the machine on which the limit is meant as it is."""


def log_sizes(folder: Path) -> dict[Path, int]:
    """Return the sizes of the logs in a folder: what is logged from now on comes after them."""
    return {log: log.stat().st_size for log in folder.glob("*.log")}


def assert_short_blocks(folder: Path, since: Mapping[Path, int], limit_s: float | None = None) -> None:
    """Fail if a loop used the CPU for longer than the limit before it answered.

    Parameters
    ----------
    folder
        With the logs.
    since
        What `log_sizes` returned: earlier lines do not count.
    limit_s
        None: `LIMIT_S` times the slowness of this machine.
    """
    limit_s = LIMIT_S * slowness() if limit_s is None else limit_s
    for log in sorted(folder.glob("*.log")):
        for block in _blocks(log, since.get(log, 0)):
            message = f"the event loop of {log.stem} was blocked for {block['seconds']} s, {block['cpu_s']} s of them by itself"
            assert block["cpu_s"] <= limit_s, f"{message} (limit {limit_s:.2f} s):\n{block['stack']}"


@cache
def slowness() -> float:
    """Return how many times slower than the reference this machine computes; at least 1."""
    times = []
    for _ in range(5):
        began = time.thread_time()
        _work()
        times.append(time.thread_time() - began)
    return max(min(times) / _REFERENCE_S, 1.0)


def _work() -> None:
    found: dict[int, list[int]] = {}
    for number in range(100_000):
        found.setdefault(number % 1_000, []).append(number)
    sorted((len(each), key) for key, each in found.items())


def _blocks(log: Path, offset: int) -> Iterator[dict[str, Any]]:
    with log.open("rb") as lines:
        lines.seek(offset)
        for line in lines:
            if b'"loop.blocked"' in line and line.startswith(b"{"):
                yield json.loads(line)
