"""The wait for one workload: its status from the watch, or from its object while it has no FluxJob.

A FluxJob comes a moment after its object, and goes with it. Between the two only the object can be asked,
which is done when nothing has changed for `_LOOK_S`. So work that ended and was deleted before anybody looked
is not waited for without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.client.arguments import check_number
from fluxqueue.client.errors import InvalidWork, NoSuchWork, WaitTimeout
from fluxqueue.client.handles import Handle
from fluxqueue.client.statuses import WorkStatus, status_of, status_of_job

if TYPE_CHECKING:
    from fluxqueue.client.object_watches import ObjectWatch
    from fluxqueue.kube.transport import Api

__all__ = ["Timeout", "Waiting", "deadline_of"]

Timeout = float | timedelta | None
"""Seconds, or a `timedelta`; None for ever."""

_LOOK_S = 5.0
_SHOWN_POLL_S = 0.5


def deadline_of(timeout: Timeout) -> float | None:
    """Return the time of `time.monotonic` at which a time-out is over; None for never.

    Raises
    ------
    InvalidWork
        It is negative, or no time at all.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is not None:
        check_number("timeout", seconds)
    if seconds is not None and seconds < 0:
        raise InvalidWork(
            f"timeout: {timeout!r} is negative: give seconds, a timedelta, or None to wait for ever"
        )
    return None if seconds is None else time.monotonic() + seconds


class Waiting:
    """Waits for one workload.

    Parameters
    ----------
    api
        The API server.
    watch
        The FluxJobs of its namespace.
    handle
        The workload.
    """

    def __init__(self, api: Api, watch: ObjectWatch[FluxJob], handle: Handle) -> None:
        self._api = api
        self._watch = watch
        self._handle = handle
        self._owned: str | None = None

    async def status(self) -> WorkStatus:
        """Return the status now.

        Raises
        ------
        WorkGone
            The object was deleted before its end was seen.
        """
        if (found := await self._find()) is not None:
            return status_of(found)
        objects = await self._handle.objects(self._api)
        if not objects:
            # It may have been deleted after it ended, and the watch may have told so meanwhile.
            if (found := await self._find()) is not None:
                return status_of(found)
            raise self._handle.gone()
        job = await self._handle.job(self._api)
        return status_of_job(job) if job is not None else WorkStatus()

    async def until(self, holds: Callable[[WorkStatus], bool], deadline: float | None) -> WorkStatus:
        """Wait until a status is as wanted, and return it.

        Raises
        ------
        WaitTimeout, WorkGone, FluxQueueError
            It is not in time; it was deleted; the watch cannot go on.
        """
        with self._watch.listening(self._handle.key) as changed:
            while True:
                changed.clear()
                self._watch.check()
                status = await self.status()
                if holds(status):
                    return status
                left_s = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
                if left_s <= 0:
                    reason = f", {status.reason}" if status.reason else ""
                    raise WaitTimeout(
                        f"{self._handle.title} is still {status.state}{reason}: wait longer, "
                        "or ask explain() for the reason"
                    )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await changed.wait()

    async def fluxjob(self, within_s: float) -> FluxJob:
        """Return the FluxJob, and wait for one that is not there yet.

        Raises
        ------
        NoSuchWork
            There is none in time.
        WorkGone
            The object was deleted.
        """
        deadline = time.monotonic() + within_s
        with self._watch.listening(self._handle.key) as changed:
            while True:
                changed.clear()
                self._watch.check()
                if (found := await self._find()) is not None:
                    return found
                if not await self._handle.objects(self._api):
                    raise self._handle.gone()
                if time.monotonic() > deadline:
                    raise NoSuchWork(
                        f"{self._handle.title} is not in the queue: see kubectl fluxqueue explain, "
                        "and kubectl fluxqueue doctor"
                    )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_SHOWN_POLL_S):
                        await changed.wait()

    async def _find(self) -> FluxJob | None:
        """Return the FluxJob of this workload, or what was last seen of it; None if there is none.

        Where the key is a name, a former object of that name may still have its FluxJob.
        """
        key = self._handle.key
        candidates = sorted(
            self._watch.all(key), key=lambda each: each.metadata.creation_timestamp or "", reverse=True
        )
        if (ended := self._watch.last_seen(key)) is not None:
            candidates.append(ended)
        if known := [each for each in candidates if each.metadata.uid == self._owned]:
            return known[0]
        job = await self._handle.job(self._api) if candidates and self._handle.kind == "MiniCluster" else None
        for found in candidates:
            if self._handle.owns(found, job):
                self._owned = found.metadata.uid
                return found
        return None
