"""Collects keys while others are being worked on, and hands them out together.

A controller whose work ends in one database transaction handles many keys at once: the busier the cluster,
the larger the batch, and the lower the cost of each object. The first key after a quiet time is handed out at
once. While keys keep coming, batches are handed out at a fixed pace, so a burst becomes few large batches. A
key that nobody waits for may be added to go out with later ones, after a while at the latest. A key that is
added while its batch is being worked on waits for the next batch.

Many keys that are added together, such as all of a sweep, have a lane of their own (`add_later`): they go out
some at a time, behind the keys of the other lane, which wait for one such part at most. Some of them go out
with each batch, so that a long burst does not keep them back.

A failure of one key does not affect others. The keys of a batch that fails are handed out again one by one. A
key that fails alone waits for a pause that doubles each time, and is handed out alone until it succeeds. If
the database is unavailable, no key is at fault: the whole batch waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from itertools import islice
from typing import Generic, TypeVar

import structlog

from fluxqueue.kube.backoff import exponential_s
from fluxqueue.kube.errors import ApiError
from fluxqueue.queue.metrics import OBJECT_FAILURES
from fluxqueue.queue.store import DatabaseUnavailable, StaleLeader

__all__ = ["Batches"]

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)

_PACE_S = 0.04
_LATER_AT_ONCE = 50
_LATER_AT_LEAST = 5
_LATER_PACE_S = 0.01
_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 10.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0


def _ignore(_key: object, _error: Exception) -> None:
    """Report nothing."""


def _taken(keys: dict[K, None], count: int) -> list[K]:
    """Remove the first keys, and return them."""
    taken = list(islice(keys, count))
    for key in taken:
        del keys[key]
    return taken


class Batches(Generic[K]):
    """A set of keys with a worker.

    Parameters
    ----------
    name
        For the log and the metric.
    failed
        Called with each key that failed alone, each time.
    pace_s
        Time from the end of a batch to the next, while keys keep coming.
    """

    def __init__(
        self, name: str, failed: Callable[[K, Exception], None] = _ignore, *, pace_s: float = _PACE_S
    ) -> None:
        self._name = name
        self._failed = failed
        self._pace_s = pace_s
        self._keys: dict[K, None] = {}
        self._later: dict[K, None] = {}
        self._failures: dict[K, int] = {}
        self._paused: dict[K, asyncio.TimerHandle] = {}
        self._working: frozenset[K] = frozenset()
        self._not_empty = asyncio.Event()
        self._due: asyncio.TimerHandle | None = None
        """Hands out the keys that are not urgent."""

    def __len__(self) -> int:
        return len(self._keys) + len(self._later)

    def is_due(self, key: K) -> bool:
        """True if a key waits for its batch or is being worked on, and did not fail last."""
        waits = key in self._keys or key in self._later or key in self._working
        return waits and key not in self._failures

    def add(self, key: K) -> None:
        """Add a key, unless it is in the queue; a key that failed still waits for its pause to end."""
        if key in self._paused:
            return
        self._later.pop(key, None)
        self._keys.setdefault(key)
        self.flush()

    def add_later(self, key: K) -> None:
        """Add one of many keys, behind all that are added by `add`."""
        if key in self._paused or key in self._keys:
            return
        self._later.setdefault(key)
        self.flush()

    def add_within(self, key: K, delay_s: float) -> None:
        """Add a key that is handed out with the next one that is added by `add`, or after some seconds."""
        if key in self._paused:
            return
        self._later.pop(key, None)
        self._keys.setdefault(key)
        if self._due is None and not self._not_empty.is_set():
            self._due = asyncio.get_running_loop().call_later(delay_s, self.flush)

    def flush(self) -> None:
        """Hand out the keys that are not urgent with the next batch."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self:
            self._not_empty.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """Add a key after some seconds."""
        asyncio.get_running_loop().call_later(delay_s, self.add, key)

    def fail(self, key: K, error: Exception) -> None:
        """Report from the work that one key failed and the others of its batch did not."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause_s = exponential_s(failures, base_s=_FIRST_PAUSE_S, cap_s=_LONGEST_PAUSE_S)
        if (waiting := self._paused.pop(key, None)) is not None:
            waiting.cancel()
        self._paused[key] = asyncio.get_running_loop().call_later(pause_s, self._resume, key)
        OBJECT_FAILURES.labels(self._name).inc()
        traced = error if not failures and not isinstance(error, ApiError) else None
        text = f"{type(error).__name__}: {error}"
        log.warning(
            "batch.key_failed", batch=self._name, key=key, error=text, retry_s=pause_s, exc_info=traced
        )
        self._failed(key, error)

    async def run(self, work: Callable[[list[K]], Awaitable[None]], *, limit: int) -> None:
        """Hand out batches of at most ``limit`` keys until cancelled.

        Raises
        ------
        StaleLeader
            From the work: another replica leads.
        """
        delay_s = _FIRST_DELAY_S
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        while True:
            await self._not_empty.wait()
            await asyncio.sleep(max(next_at - loop.time(), 0))
            batch = _taken(self._keys, limit - min(len(self._later), _LATER_AT_LEAST, limit - 1))
            urgent = frozenset(batch)
            batch += _taken(
                self._later, min(limit - len(batch), max(_LATER_AT_ONCE - len(batch), _LATER_AT_LEAST))
            )
            if not self:
                self._not_empty.clear()
            self._working = frozenset(batch)
            try:
                await self._carry_out(batch, work)
            except DatabaseUnavailable as error:
                log.warning(
                    "batch.database_unavailable",
                    batch=self._name,
                    keys=len(batch),
                    error=str(error),
                    retry_s=delay_s,
                )
                for key in batch:
                    (self.add if key in urgent else self.add_later)(key)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _LONGEST_DELAY_S)
            else:
                delay_s = _FIRST_DELAY_S
            self._working = frozenset()
            next_at = loop.time() + (self._pace_s if urgent else min(self._pace_s, _LATER_PACE_S))

    async def _carry_out(self, batch: Sequence[K], work: Callable[[list[K]], Awaitable[None]]) -> None:
        """Hand out the keys without failures together, and each of the others alone."""
        alone = [key for key in batch if key in self._failures]
        together = [key for key in batch if key not in self._failures]
        if len(together) > 1:
            try:
                await work(together)
            except (StaleLeader, DatabaseUnavailable):
                raise
            except Exception as error:
                log.warning(
                    "batch.failed",
                    batch=self._name,
                    keys=len(together),
                    error=str(error),
                    effect="its keys are tried one by one",
                )
                alone = [*together, *alone]
        else:
            alone = [*together, *alone]
        for key in alone:
            await self._carry_out_alone(key, work)

    async def _carry_out_alone(self, key: K, work: Callable[[list[K]], Awaitable[None]]) -> None:
        before = self._failures.get(key)
        try:
            await work([key])
        except (StaleLeader, DatabaseUnavailable):
            raise
        except Exception as error:
            self.fail(key, error)
        else:
            if self._failures.get(key) == before:
                self._failures.pop(key, None)

    def _resume(self, key: K) -> None:
        del self._paused[key]
        self.add(key)
