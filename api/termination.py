"""How a program ends: on SIGTERM or SIGINT, or with an error from one of its tasks.

The kubelet sends SIGTERM to stop a container, a terminal sends SIGINT. Both cancel the program's work here,
so that its context managers run: a Lease is released, calls under way are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine

__all__ = ["EndsProcess", "leaf_errors", "on_termination", "run_until_terminated"]


class EndsProcess(Exception):
    """An error after which a process must end, and not try again: somebody else does its work now."""


def on_termination(callback: Callable[[], object]) -> None:
    """Call ``callback`` in the running loop on each SIGTERM and SIGINT, instead of ending the process."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, callback)


async def run_until_terminated(work: Coroutine[object, object, object]) -> None:
    """Run a coroutine to its end, or cancel it on SIGTERM or SIGINT and wait until it has stopped.

    Each further signal cancels it again. Errors of the coroutine propagate.
    """
    running = asyncio.create_task(work)
    on_termination(running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def leaf_errors(group: BaseExceptionGroup[BaseException] | None) -> list[BaseException]:
    """Return the errors in a group and in the groups inside it, in order; none for None."""
    leaves: list[BaseException] = []
    for error in group.exceptions if group is not None else ():
        leaves.extend(leaf_errors(error) if isinstance(error, BaseExceptionGroup) else [error])
    return leaves
