"""One round of releases: claimed, carried out concurrently, and stored together as they end.

A release may take long: its Job is waited for, its nodes are read, its patch is refused and repeated. It
delays no other: while some are under way, more are claimed. What has ended is stored a few times a second, or
as soon as nothing is under way, so a burst costs few transactions and a single release no time. A round ends
when nothing is under way and nothing is due.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Final

from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Release", "ReleaseResult", "ReleaseRound"]

_AT_ONCE: Final = 64
"""Releases that are claimed and not stored yet."""
_CLAIM_EVERY_S: Final = 0.05
_STORE_EVERY_S: Final = 0.25


class ReleaseResult(enum.Enum):
    """What came of a release."""

    RELEASED = enum.auto()
    UNAVAILABLE = enum.auto()
    """The API server could not be asked: it is to be repeated soon."""
    STORED = enum.auto()
    """It failed, and that is stored."""


Release = Callable[[Workload, Allocation], Awaitable[ReleaseResult]]


class ReleaseRound:
    """Releases everything that is due.

    Parameters
    ----------
    ledger
        Where releases are claimed and stored.
    release
        Carries out one release.
    """

    def __init__(self, ledger: Ledger, release: Release) -> None:
        self._ledger = ledger
        self._release = release
        self._running: dict[asyncio.Future[ReleaseResult], FluxionJobId] = {}
        self._ended: dict[asyncio.Future[ReleaseResult], FluxionJobId] = {}
        self._stored_at = asyncio.get_running_loop().time()
        self._problem: BaseException | None = None

    async def run(self) -> None:
        """Run once.

        Raises
        ------
        StaleLeader, DatabaseUnavailable
            Of a release, a claim or a store, once all releases that are under way are accounted for.
        """
        try:
            while await self._claim():
                await self._wait()
                await self._store()
        finally:
            await self._abandon()
        if self._problem is not None:
            raise self._problem

    async def _claim(self) -> bool:
        """Begin as many releases as there is room for; False if nothing is under way."""
        room = _AT_ONCE - len(self._running) - len(self._ended)
        if self._problem is None and room >= _AT_ONCE // 2:
            try:
                claimed = await self._ledger.claim_releases(room)
            except Exception as error:
                claimed, self._problem = [], error
            if claimed:
                reach(CrashPoint.CLAIMED)
            for workload, allocation in claimed:
                self._running[asyncio.ensure_future(self._release(workload, allocation))] = allocation.jobid
        return bool(self._running)

    async def _wait(self) -> None:
        await asyncio.wait(self._running, timeout=_CLAIM_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        for each in [each for each in self._running if each.done()]:
            self._ended[each] = self._running.pop(each)
            self._problem = self._problem or each.exception()

    async def _store(self) -> None:
        """Store what came of the releases that have ended, if nothing is under way, they are many,
        or it is time.
        """
        now = asyncio.get_running_loop().time()
        if not self._ended or (
            self._running and len(self._ended) < _AT_ONCE // 2 and now - self._stored_at < _STORE_EVERY_S
        ):
            return
        self._stored_at = now
        reach(CrashPoint.RELEASED)
        of: dict[ReleaseResult, list[FluxionJobId]] = {result: [] for result in ReleaseResult}
        for each, jobid in self._ended.items():
            if each.exception() is None:
                of[each.result()].append(jobid)
        try:
            await self._ledger.note_released(of[ReleaseResult.RELEASED])
            await self._ledger.retry_releases_soon(of[ReleaseResult.UNAVAILABLE])
        except Exception as error:
            self._problem = self._problem or error
        self._ledger.releases_done(self._ended.values())
        self._ended.clear()

    async def _abandon(self) -> None:
        """End what is under way: the round was cancelled."""
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._ledger.releases_done([*self._running.values(), *self._ended.values()])
