"""Watches an event loop from a thread: what blocks it is logged with its stack.

Twice a second the thread asks the loop for an answer. If there is none within 250 ms, it takes the stack of the loop's thread. When the
answer arrives, the block is reported with its seconds, and with the CPU time of that thread meanwhile: on a busy machine a loop may be
late because its thread did not get the CPU, and then its CPU time is small. One block in ten seconds is logged, and each that used the CPU
for more than a second.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

import structlog

__all__ = ["watch_loop"]

log: Final = structlog.get_logger(__name__)

BLOCKED_S: Final = 0.25
_PAUSE_S: Final = 0.5
_LOG_EVERY_S: Final = 10.0
_LONG_S: Final = 1.0


def watch_loop(report: Callable[[float, float], None]) -> None:
    """Watch the running loop, in a thread that ends with it.

    Parameters
    ----------
    report
        Called in that thread for each block, with its seconds and with the CPU seconds of the loop's thread.
    """
    loop, ident = asyncio.get_running_loop(), threading.get_ident()
    threading.Thread(target=_watch, args=(loop, ident, report), name="loop-monitor", daemon=True).start()


def _watch(loop: asyncio.AbstractEventLoop, ident: int, report: Callable[[float, float], None]) -> None:
    clock, logged_at = time.pthread_getcpuclockid(ident), float("-inf")
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
            now = time.monotonic()
            blocked_s, cpu_s = now - asked_at, time.clock_gettime(clock) - cpu_s
            report(blocked_s, cpu_s)
            if now - logged_at > _LOG_EVERY_S or cpu_s > _LONG_S:
                logged_at = now
                log.warning("loop.blocked", seconds=round(blocked_s, 3), cpu_s=round(cpu_s, 3), stack=stack)
        time.sleep(_PAUSE_S)
