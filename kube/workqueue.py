"""A queue of keys, with the semantics of client-go's workqueue.

A key requests the reconciliation of an object and does not say what happened to it. So a key that is queued
is not queued twice. A key that is added while a worker processes it is queued again when that worker is done.
No two workers ever process the same key, and no addition is lost. Delays are per key, and the earliest one
counts. Rate limiting is per key: a key that keeps failing backs off to a minute, and other keys are not
delayed.

The queue belongs to one event loop; it is not thread-safe.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

from fluxqueue.api.termination import EndsProcess
from fluxqueue.kube.backoff import exponential_s
from fluxqueue.kube.errors import ApiError

__all__ = ["K", "ShutDown", "WorkQueue", "run_workers"]

K = TypeVar("K", bound=Hashable)

BASE_S: Final = 0.005
CAP_S: Final = 60.0
REMEMBERED_ERRORS: Final = 10_000
_IN_A_ROW: Final = 50
"""Keys after which the workers of a queue let others go on, whether they waited for anything or not."""

log: Final = structlog.get_logger(__name__)


class ShutDown(Exception):
    """The queue is shut down and empty."""


class WorkQueue(Generic[K]):
    """Keys that wait for a worker.

    Parameters
    ----------
    name
        Name in logs and metrics.
    base_s, cap_s
        First and longest delay of :meth:`add_rate_limited`, in seconds.

    Attributes
    ----------
    retries
        How often a key was queued because of a failure.
    """

    def __init__(self, name: str, *, base_s: float = BASE_S, cap_s: float = CAP_S) -> None:
        self.name = name
        self.retries = 0
        self._base_s = base_s
        self._cap_s = cap_s
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def depth(self) -> int:
        """Number of keys that wait for a worker, without delayed keys and those that are being processed."""
        return len(self._ready)

    def is_due(self, key: K) -> bool:
        """True if a key waits for a worker or is being processed, and did not fail last."""
        return (key in self._dirty or key in self._processing) and key not in self._failures

    @property
    def delayed(self) -> int:
        """Number of keys with a delay."""
        return len(self._timers)

    def add(self, key: K) -> None:
        """Queue a key; if it is being processed, it is queued again when that is done."""
        if self._closing or key in self._dirty:
            return
        self._dirty.add(key)
        self._idle.clear()
        if key not in self._processing:
            self._push(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Queue a key after ``delay_s`` seconds; an earlier time for the same key has precedence."""
        if self._closing:
            return
        if delay_s <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    def add_rate_limited(self, key: K) -> None:
        """Queue a key after a delay that doubles with each call until :meth:`forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retries += 1
        self.add_after(key, exponential_s(failures, base_s=self._base_s, cap_s=self._cap_s))

    def forget(self, key: K) -> None:
        """Reset the delay of :meth:`add_rate_limited` for a key that succeeded."""
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        """Return how often a key was rate limited since :meth:`forget`."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Return the key that has waited longest; the caller must call :meth:`done` for it.

        Raises
        ------
        ShutDown
            The queue is shut down and empty.
        """
        while not self._ready:
            if self._closing:
                raise ShutDown(self.name)
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake()  # this getter was woken and cannot take the key: wake another one
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise
        key = self._ready.popleft()
        self._processing.add(key)
        self._dirty.discard(key)
        return key

    def done(self, key: K) -> None:
        """Mark a key as processed; it is queued again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:
            self._push(key)
        elif not self._dirty and not self._processing:
            self._idle.set()

    async def join(self) -> None:
        """Wait until no key is queued or being processed, without those that have a delay."""
        await self._idle.wait()

    def shut_down(self) -> None:
        """Accept no more keys and drop those with a delay;
        :meth:`get` returns the rest, then raises :class:`ShutDown`.
        """
        self._closing = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._getters:
            self._wake()

    def _fire(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    def _push(self, key: K) -> None:
        self._ready.append(key)
        self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


def _ignore(_key: object, _error: Exception) -> None:
    """Do nothing."""


async def run_workers(
    queue: WorkQueue[K],
    workers: int,
    reconcile: Callable[[K], Awaitable[float | None]],
    failed: Callable[[K, Exception], None] = _ignore,
) -> None:
    """Process the keys of a queue until it is shut down and empty.

    Parameters
    ----------
    queue
        The queue of keys.
    workers
        How many keys are processed concurrently.
    reconcile
        Brings the object of a key to its desired state. It may return seconds after which the key is queued
        again. An exception is logged (once per key and error; a repetition is a debug line), and the key is
        retried, rate limited.
    failed
        Called for each failure.

    Raises
    ------
    EndsProcess
        From `reconcile`.
    """
    last: OrderedDict[K, str] = OrderedDict()
    keys = itertools.count(1)

    async def worker() -> None:
        while True:
            try:
                key = await queue.get()
            except ShutDown:
                return
            try:
                if not next(keys) % _IN_A_ROW:
                    await asyncio.sleep(
                        0
                    )  # keys that need no call would keep the rest of the process waiting
                again_s = await reconcile(key)
            except EndsProcess:
                raise
            except Exception as error:
                _report(queue, key, error, last)
                failed(key, error)
                queue.add_rate_limited(key)
            else:
                last.pop(key, None)
                queue.forget(key)
                if again_s is not None:
                    queue.add_after(key, again_s)
            finally:
                queue.done(key)

    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(worker(), name=f"{queue.name}-{number}")


def _report(queue: WorkQueue[K], key: K, error: Exception, last: OrderedDict[K, str]) -> None:
    text = f"{type(error).__name__}: {error}"
    known = last.get(key) == text
    last[key] = text
    last.move_to_end(key)
    if len(last) > REMEMBERED_ERRORS:
        last.popitem(last=False)
    expected = isinstance(error, ApiError)  # an error of the API server needs no traceback
    level = log.debug if known else log.warning if expected else log.error
    level(
        "workqueue.failed",
        queue=queue.name,
        key=key,
        failures=queue.num_requeues(key) + 1,
        error=text,
        exc_info=not expected and not known,
    )
