"""Watches an event loop from a thread: what blocks it is reported with its stack.

Twice a second the thread asks the loop for an answer. If there is none within 250 ms, it takes the stack of
the loop's thread. When the answer arrives, the block is reported with its seconds, and with the CPU time of
that thread meanwhile: on a busy machine a loop may be late because its thread did not get the CPU, and then
its CPU time is small. One block in ten seconds is logged, and each that used the CPU for more than a second.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

__all__ = ["Block", "log_blocks", "watch_loop"]

log: Final = structlog.get_logger(__name__)

BLOCKED_S: Final = 0.25
_PAUSE_S: Final = 0.5
_LOG_EVERY_S: Final = 10.0
_LONG_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Block:
    """A time in which a loop did not answer.

    Attributes
    ----------
    seconds, cpu_s
        How long it was, and how long the loop's thread used the CPU meanwhile.
    stack
        What that thread did 250 ms after it was asked.
    """

    seconds: float
    cpu_s: float
    stack: str


def log_blocks(observe: Callable[[float], object] | None = None) -> None:
    """Watch the running loop, and log what blocks it.

    Parameters
    ----------
    observe
        Called in another thread for each block, with its seconds: the metric of a program that has metrics.
    """
    logged_at = float("-inf")

    def report(block: Block) -> None:
        nonlocal logged_at
        if observe is not None:
            observe(block.seconds)
        now = time.monotonic()
        if now - logged_at > _LOG_EVERY_S or block.cpu_s > _LONG_S:
            logged_at = now
            log.warning(
                "loop.blocked",
                seconds=round(block.seconds, 3),
                cpu_s=round(block.cpu_s, 3),
                stack=block.stack,
            )

    watch_loop(report)


def watch_loop(report: Callable[[Block], object]) -> None:
    """Watch the running loop, in a thread that ends with it.

    Parameters
    ----------
    report
        Called in that thread for each block, once it is over.
    """
    loop, ident = asyncio.get_running_loop(), threading.get_ident()
    threading.Thread(target=_watch, args=(loop, ident, report), name="loop-monitor", daemon=True).start()


def _watch(loop: asyncio.AbstractEventLoop, ident: int, report: Callable[[Block], object]) -> None:
    clock = time.pthread_getcpuclockid(ident)
    while not loop.is_closed():
        answered = threading.Event()
        asked_at, cpu_s = time.monotonic(), time.clock_gettime(clock)
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # it was closed meanwhile
            return
        if not answered.wait(BLOCKED_S):
            frame = sys._current_frames().get(ident)
            stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
            del frame
            while not answered.wait(_PAUSE_S):
                if loop.is_closed():
                    return
            report(Block(time.monotonic() - asked_at, time.clock_gettime(clock) - cpu_s, stack))
        time.sleep(_PAUSE_S)
