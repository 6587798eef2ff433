"""A queue of keys, with the semantics of client-go's workqueue.

A key says "look at this again", never what happened to it. So a key that waits is not added twice, and a key that is added while
somebody works on it waits until that one is done and is then worked on once more: no two workers ever have the same key, and no
addition is lost. Delays are kept per key, the earliest counting. Rate limiting is per key: a key that fails again and again backs
off to a minute while the others go on at full speed.

Everything happens in one event loop; nothing here is thread safe.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

from fluxqueue.kube.backoff import exponential_s
from fluxqueue.kube.errors import ApiError

__all__ = ["K", "ShutDown", "WorkQueue", "run_workers"]

K = TypeVar("K", bound=Hashable)

BASE_S: Final = 0.005
CAP_S: Final = 60.0
REMEMBERED_ERRORS: Final = 10_000

log: Final = structlog.get_logger(__name__)


class ShutDown(Exception):
    """The queue is shut down and empty."""


class WorkQueue(Generic[K]):
    """Keys waiting to be worked on.

    Parameters
    ----------
    name
        For logs and metrics.
    base_s, cap_s
        First and longest delay of :meth:`add_rate_limited`, in seconds.

    Attributes
    ----------
    adds, retries
        How often a key began to wait, and how often because of a failure.
    """

    def __init__(self, name: str, *, base_s: float = BASE_S, cap_s: float = CAP_S) -> None:
        self.name = name
        self.adds = 0
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
        """How many keys wait for a worker; delayed ones and those being worked on do not count."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many keys wait for their time."""
        return len(self._timers)

    def add(self, key: K) -> None:
        """Ask for the key to be worked on, now or after the work on it that is under way."""
        if self._closing or key in self._dirty:
            return
        self.adds += 1
        self._dirty.add(key)
        self._idle.clear()
        if key not in self._processing:
            self._push(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """The same in ``delay_s`` seconds; if the key waits for an earlier time already, that one counts."""
        if self._closing:
            return
        if delay_s <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        waiting = self._timers.get(key)
        if waiting is not None:
            if waiting.when() <= due:
                return
            waiting.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    def add_rate_limited(self, key: K) -> None:
        """The same after a delay that doubles with each call until :meth:`forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retries += 1
        self.add_after(key, exponential_s(failures, base_s=self._base_s, cap_s=self._cap_s))

    def forget(self, key: K) -> None:
        """The key is fine again: its next delay is the first one."""
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        """How often the key was rate limited since it was last fine."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The key that waits longest; :meth:`done` must follow.

        Raises
        ------
        ShutDown
            When the queue is shut down and nothing waits any more.
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
                    self._wake()  # it was called and cannot come: another must
                else:
                    self._getters.remove(getter)
                raise
        key = self._ready.popleft()
        self._processing.add(key)
        self._dirty.discard(key)
        return key

    def done(self, key: K) -> None:
        """The key was worked on; if it was added meanwhile, it waits again."""
        self._processing.discard(key)
        if key in self._dirty:
            self._push(key)
        elif not self._dirty and not self._processing:
            self._idle.set()

    async def join(self) -> None:
        """Wait until nothing is ready or being worked on; keys with a delay are not waited for."""
        await self._idle.wait()

    def shut_down(self) -> None:
        """Take no more keys and drop those with a delay; :meth:`get` hands out the rest, then raises :class:`ShutDown`."""
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


async def run_workers(queue: WorkQueue[K], workers: int, reconcile: Callable[[K], Awaitable[float | None]]) -> None:
    """Work on the queue until it is shut down and empty.

    Parameters
    ----------
    queue
        Where keys come from and go back to.
    workers
        How many keys are worked on at once.
    reconcile
        Brings what the key names to its wanted state. It may return seconds after which it wants the key again. What it raises is
        logged (once per key and error: the same error of the same key again is a debug line) and the key is retried, rate limited.
    """
    last: OrderedDict[K, str] = OrderedDict()

    async def worker() -> None:
        while True:
            try:
                key = await queue.get()
            except ShutDown:
                return
            try:
                again_s = await reconcile(key)
            except Exception as error:
                _report(queue, key, error, last)
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
    said = f"{type(error).__name__}: {error}"
    known = last.get(key) == said
    last[key] = said
    last.move_to_end(key)
    if len(last) > REMEMBERED_ERRORS:
        last.popitem(last=False)
    expected = isinstance(error, ApiError)  # what the API server refuses needs no traceback
    level = log.debug if known else log.warning if expected else log.error
    level(
        "workqueue.failed", queue=queue.name, key=key, failures=queue.num_requeues(key) + 1, error=said, exc_info=not expected and not known
    )
