"""Counts what a call does, so that tests can compare small with large inputs on any machine,
loaded or not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["assert_linear", "instructions"]


def instructions(call: Callable[[], object]) -> int:
    """Return how many Python instructions a call executes.
    Loops within functions written in C do not count.
    """
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(former)
    return count


def assert_linear(prepare: Callable[[int], Callable[[], object]], size: int = 60) -> None:
    """Fail if the work for four times as many takes more than five times as many instructions.

    Parameters
    ----------
    prepare
        Returns the call for a number of pods, slots or nodes. What it does itself does not count.
    size
        The smaller number.
    """
    few, many = (instructions(prepare(number)) for number in (size, 4 * size))
    assert many < 5 * few, f"{few} instructions for {size}, {many} for {4 * size}"
