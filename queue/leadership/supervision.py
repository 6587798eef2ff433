"""One part of a leader fails alone: it is started again after a pause, and all others go on.

A leader is a dozen loops. Each is written to go on after the errors that it knows: an object that fails is
tried again alone (`fluxqueue.kube.workqueue`, `fluxqueue.queue.tasks.batches`), and without Postgres or the
API server a loop waits. What is left are mistakes of ours, and values of objects that nobody thought of. If
one of these ended the process, the next leader would meet the same object and end too. So the loop is started
again. It compares everything then, as its keys may be lost with it. The pause doubles up to a minute while it
keeps failing, and the log and `fluxqueue_controller_restarts_total` name it.

The same holds for a step of the start that a loop takes again (`try_step`): the leader goes on without it.

Errors after which nobody may go on end the process: another leader has taken over (`EndsProcess`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from fluxqueue.api.termination import EndsProcess, leaf_errors
from fluxqueue.kube.backoff import exponential_s
from fluxqueue.kube.errors import ApiError
from fluxqueue.queue.metrics import CONTROLLER_RESTARTS
from fluxqueue.queue.store import DatabaseUnavailable

__all__ = ["keep_running", "try_step"]

log = structlog.get_logger()

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_SETTLED_S: Final = 300.0
"""After so many seconds without an error, the next pause is the first one again."""


def _ignore() -> None:
    """Compare nothing."""


async def keep_running(
    name: str,
    run: Callable[[], Awaitable[None]],
    resync: Callable[[], None] = _ignore,
    *,
    first_pause_s: float = _FIRST_PAUSE_S,
) -> None:
    """Run a loop until it ends by itself or is cancelled, and start it again after an error.

    Parameters
    ----------
    name
        For the log and the metric.
    run
        Starts the loop.
    resync
        Has it compare everything, before it is started again.
    first_pause_s
        Pause after the first error.

    Raises
    ------
    EndsProcess
        From the loop: this process may not go on.
    """
    failures, loop = 0, asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            return await run()
        except Exception as error:
            leaves = leaf_errors(error) if isinstance(error, BaseExceptionGroup) else [error]
            if fatal := next((leaf for leaf in leaves if isinstance(leaf, EndsProcess)), None):
                raise fatal from None
            failures = 0 if loop.time() - began > _SETTLED_S else failures
            pause_s = exponential_s(failures, base_s=first_pause_s, cap_s=_LONGEST_PAUSE_S)
            failures += 1
            CONTROLLER_RESTARTS.labels(name).inc()
            text = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves)
            known = all(isinstance(leaf, DatabaseUnavailable | ApiError) for leaf in leaves)
            log.error(
                "controller.restarted",
                controller=name,
                error=text,
                retry_s=pause_s,
                exc_info=None if known else error,
            )
        await asyncio.sleep(pause_s)
        resync()


async def try_step(name: str, step: Callable[[], Awaitable[None]]) -> None:
    """Take a step of the start that a loop takes again later; an error of it is logged and counted.

    Parameters
    ----------
    name
        For the log and the metric.
    step
        Is taken once.

    Raises
    ------
    EndsProcess, DatabaseUnavailable
        From the step: this process may not go on, or has no tables.
    """
    try:
        await step()
    except (EndsProcess, DatabaseUnavailable):
        raise
    except Exception as error:
        CONTROLLER_RESTARTS.labels(name).inc()
        log.exception("start.step_failed", step=name, error=f"{type(error).__name__}: {error}")
