"""A Lease in a thread of its own, so that a blocked event loop does not lose it, and a lost Lease ends the
process.

The thread has its own event loop and its own connections, and runs :class:`~fluxqueue.kube.lease.LeaderLease`
there. The work runs in the caller's loop, the *main loop*. What the thread knows is the only truth about
leading; both loops read it.

- **The main loop is blocked for a while.** The thread renews, and nothing is lost.
- **The main loop is stuck for ever.** With each renewal the thread asks it for an answer. After `STUCK_S`
  without one the Lease is not renewed any more, and is lost.
- **The Lease is lost.** The work is cancelled. The process must end within `LOST_S`, whatever hangs: the
  work, the end of the main loop, or a worker thread that the interpreter waits for. Otherwise the stacks of
  all threads and tasks are logged, and the process is ended.
- **The work fails.** The same bound holds: from the end of the work, or from `LeaseThread.end_soon` if its
  parts still have to stop.
- **A normal end.** The Lease is renewed until the work has stopped, at most `STOP_S`, and then released.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import structlog

from fluxqueue.kube.lease import LeaderLease, LeaseLost
from fluxqueue.kube.transport import Api, CompletedCall

__all__ = ["LeaseThread", "lease_of_replica"]

log: Final = structlog.get_logger(__name__)

STUCK_S: Final = 60.0
"""Seconds for which a main loop that does not answer keeps the Lease;
longer than any pause that it recovers from."""
LOST_S: Final = 4.0
"""Seconds after a loss or a failure in which the process ends by itself;
a fifth second is left to write the stacks."""
STOP_S: Final = 20.0
"""Seconds in which the work of a terminated process stops; Kubernetes kills the process after 30."""

_LOOK_S: Final = 0.5


class LeaseThread:
    """One candidate for one Lease, in a thread.

    Parameters
    ----------
    connect
        Opens the connections to the API server; it is called in the thread.
    make_lease
        Makes the candidate on these connections. Its second argument is for `LeaderLease.may_renew`.
    stuck_s, lost_s, stop_s
        The bounds above.
    end_process
        Ends this process at once, without any clean-up.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Api]],
        make_lease: Callable[[Api, Callable[[], bool]], LeaderLease],
        *,
        stuck_s: float = STUCK_S,
        lost_s: float = LOST_S,
        stop_s: float = STOP_S,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        self._connect = connect
        self._make_lease = make_lease
        self._stuck_s = stuck_s
        self._lost_s = lost_s
        self._stop_s = stop_s
        self._end_process = end_process or _end_process
        self._lease: LeaderLease | None = None
        self._main: asyncio.AbstractEventLoop | None = None
        self._answered_at = 0.0
        self._asked = False
        self._end_watched = False

    @property
    def held(self) -> bool:
        """True if this process may act as leader now; any thread may ask."""
        return self._lease is not None and self._lease.held

    @property
    def remaining_s(self) -> float:
        """Seconds for which this process leads without another renewal; 0 if it does not lead."""
        return self._lease.remaining_s if self._lease is not None else 0.0

    def end_soon(self) -> None:
        """Give the process its last seconds: its work cannot go on, and only has to stop.
        Nothing calls this off; any thread may call.
        """
        self._watch_end("the work has failed")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Acquire the Lease, then lead; see :meth:`LeaderLease.run`.
        ``lead`` runs in the loop of this call.
        """
        main = self._main = asyncio.get_running_loop()
        ended: asyncio.Future[None] = main.create_future()
        campaign = _Campaign()
        threading.Thread(
            target=self._run_thread, args=(campaign, lead, ended), name="lease", daemon=True
        ).start()
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            campaign.cancel()
            await asyncio.wait({ended})
            if not ended.cancelled():
                ended.exception()  # the log has it
            raise
        ended.result()

    def _run_thread(
        self, campaign: _Campaign, lead: Callable[[], Awaitable[None]], ended: asyncio.Future[None]
    ) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._campaign(campaign, lead))
        except BaseException as raised:  # it is raised in the main loop
            error = raised
        if isinstance(error, LeaseLost):
            self._watch_end("the Lease is lost")
        elif isinstance(error, Exception):
            self.end_soon()
        with contextlib.suppress(RuntimeError):  # the main loop is closed
            ended.get_loop().call_soon_threadsafe(_settle, ended, error)

    async def _campaign(self, campaign: _Campaign, lead: Callable[[], Awaitable[None]]) -> None:
        campaign.begin()
        async with self._connect() as api:
            self._lease = self._make_lease(api, self._main_answers)
            await self._lease.run(lambda: self._lead(lead))

    def _main_answers(self) -> bool:
        """Ask the main loop for an answer; return False if it has not given one for too long."""
        assert self._main is not None
        if not self._asked:
            self._asked = True
            self._main.call_soon_threadsafe(self._answer)
        return time.monotonic() - self._answered_at < self._stuck_s

    def _answer(self) -> None:
        self._answered_at = time.monotonic()
        self._asked = False

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run the work in the main loop; when cancelled, cancel it and wait for its end."""
        assert self._main is not None
        self._answered_at = time.monotonic()
        here, main = asyncio.get_running_loop(), self._main
        ended: asyncio.Future[None] = here.create_future()
        started: list[asyncio.Future[None]] = []

        def start() -> None:
            self._answer()
            started.append(asyncio.ensure_future(lead()))
            started[0].add_done_callback(
                lambda work: here.call_soon_threadsafe(_settle, ended, _error_of(work))
            )

        main.call_soon_threadsafe(start)
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            main.call_soon_threadsafe(lambda: started[0].cancel())
            stopping = self._watch(self._stop_s, "the work does not stop")
            while not ended.done():
                if not self.held:  # also if it is lost while the work stops
                    self._watch_end("the Lease is lost")
                await asyncio.wait({ended}, timeout=_LOOK_S)
            stopping.cancel()
            if not ended.cancelled() and (error := ended.exception()) is not None:
                raise error from None
            raise
        ended.result()

    def _watch_end(self, reason: str) -> None:
        if not self._end_watched:
            self._end_watched = True
            self._watch(self._lost_s, reason)

    def _watch(self, limit_s: float, reason: str) -> threading.Timer:
        timer = threading.Timer(limit_s, self._end_stuck, (limit_s, reason))
        timer.daemon = True
        timer.start()
        return timer

    def _end_stuck(self, limit_s: float, reason: str) -> None:
        try:
            if self._end_process is _end_process:  # ends the process even if the log blocks
                faulthandler.dump_traceback_later(0.8, exit=True)
            log.error(
                "lease.stuck",
                reason=reason,
                limit_s=limit_s,
                stacks=_thread_stacks(),
                tasks=_task_stacks(self._main),
            )
        finally:
            self._end_process()


def lease_of_replica(
    connect: Callable[[], AbstractAsyncContextManager[Api]],
    namespace: str,
    name: str,
    replica: str,
    on_call: Callable[[CompletedCall], None],
) -> LeaseThread:
    """Return the candidate of a replica for a Lease, under a new identity that its next process recognises.

    Parameters
    ----------
    connect
        Opens the connections to the API server.
    namespace, name
        The Lease.
    replica
        Name of the replica, the same after a restart.
    on_call
        Told of each call to the API server, in the thread.
    """
    former = f"{replica}_"
    identity = f"{former}{uuid.uuid4().hex[:8]}"

    def candidate(api: Api, may_renew: Callable[[], bool]) -> LeaderLease:
        api.on_call = on_call
        return LeaderLease(api, namespace, name, identity, former=former, may_renew=may_renew)

    return LeaseThread(connect, candidate)


class _Campaign:
    """The task of the thread; may be cancelled from outside, also before it has begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        with self._lock:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            if self._cancelled and self._task is not None:
                self._task.cancel()

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._loop is not None and self._task is not None:
                with contextlib.suppress(RuntimeError):  # it has ended
                    self._loop.call_soon_threadsafe(self._task.cancel)


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    elif isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(error)


def _error_of(work: asyncio.Future[None]) -> BaseException | None:
    return asyncio.CancelledError() if work.cancelled() else work.exception()


def _thread_stacks() -> str:
    names = {each.ident: each.name for each in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


def _task_stacks(loop: asyncio.AbstractEventLoop | None) -> str:
    if loop is None:
        return ""
    tasks = asyncio.all_tasks(loop)
    return "\n".join(
        f"{task.get_name()}: {[f'{each.f_code.co_name}:{each.f_lineno}' for each in task.get_stack()]}"
        for task in tasks
    )


def _end_process() -> None:
    faulthandler.dump_traceback(all_threads=True)
    os._exit(1)
