"""Leader election with a coordination.k8s.io Lease.

The protocol is client-go's. A candidate does not compare its clock with the holder's. It notes, by its own
monotonic clock, when it first saw the Lease in its present form, and acquires it only if that form has not
changed for the whole duration. The holder counts from before the request that renewed the Lease, and stops
leading if it has not renewed it for two thirds of the duration. So clocks may differ by hours; only their
rate must be about equal. The remaining third covers different rates and the time to stop.

A candidate watches the Lease, so it notices a release at once and knows exactly when the Lease expires. If
the watch is late, it reads the Lease itself. A process that has lost the Lease does not campaign again with
its old state in memory: :meth:`LeaderLease.run` ends, and so should the process. A container that was
restarted in its pod recognises the identity of its predecessor and does not wait for it to expire.

All writes contain the resourceVersion that was read, so one of two candidates gets a conflict. This makes two
leaders unlikely, but not impossible: a process may be paused between the check of :attr:`LeaderLease.held`
and its next action. Effects that must not happen twice are fenced by an epoch in the database (architecture,
section 4).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from fluxqueue.api.clusterobjects import Lease
from fluxqueue.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from fluxqueue.kube.kinds import LEASES
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api

__all__ = ["LeaderLease", "LeaseLost"]

log: Final = structlog.get_logger(__name__)


class LeaseLost(Exception):
    """The Lease was not renewed in time, or another process holds it; all work as its holder must end."""


class LeaderLease:
    """One candidate for one Lease.

    Parameters
    ----------
    api
        The client that reads and writes it.
    namespace, name
        The Lease; it is created if it does not exist.
    identity
        Identity of this process; unique, also among restarts in the same pod.
    duration_s
        Seconds without renewal after which another process may acquire it; whole seconds are stored. It is
        renewed every quarter of this, counted from the request before, so an API server that answers within a
        third keeps no holder from renewing.
    former
        Prefix of the identities of earlier processes in the same pod, which have ended. Empty if there is
        none.
    may_renew
        Asked before each renewal; if it returns False, the Lease is not renewed.
    now
        Wall clock for the times in the Lease, which are only for people.

    Attributes
    ----------
    holder
        Identity of the holder when the Lease was last read; empty if there is none.
    transitions
        How often the holder changed, as stored in the Lease.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        duration_s: float = 8.0,
        *,
        former: str = "",
        may_renew: Callable[[], bool] = lambda: True,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_s = duration_s
        self._renew_deadline_s = duration_s * 2 / 3
        self._retry_s = duration_s / 4
        self._former = former
        self._may_renew = may_renew
        self._now = now
        self._seen: Lease | None = None
        self._seen_at = float("-inf")
        self._renewed_at = float("-inf")
        self._tried_at = float("-inf")
        self._current = False
        self._log: Any = log.bind(lease=f"{namespace}/{name}", identity=identity)
        self.holder = ""
        self.transitions = 0

    @property
    def held(self) -> bool:
        """True if this process may act as leader now."""
        return self.remaining_s > 0

    @property
    def remaining_s(self) -> float:
        """Seconds for which this process leads without another renewal; 0 if it does not lead."""
        return max(0.0, self._renewed_at + self._renew_deadline_s - time.monotonic())

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Acquire the Lease, then lead.

        Parameters
        ----------
        lead
            Runs while this process leads. It is cancelled if the Lease is lost, and must then end soon.

        Raises
        ------
        LeaseLost
            The Lease was lost and ``lead`` was cancelled.
        Exception
            Whatever ``lead`` raised. If it raises, returns, or this call is cancelled, the Lease is released
            first, so that another process acquires it at once.
        """
        await self._acquire()
        await self._lead(lead)

    async def _acquire(self) -> None:
        changed = asyncio.Event()

        def changed_to(change: Change[Lease]) -> None:
            if change.new is not None:
                self._observe(change.new)
            changed.set()

        records: ObjectCache[Lease] = ObjectCache()
        records.add_handler(changed_to)
        selector = f"metadata.name={self._name}"
        watch = Reflector(self._api, LEASES, records, namespace=self._namespace, field_selector=selector)
        watching = asyncio.create_task(watch.run(), name=f"watch-lease-{self._name}")
        try:
            while not await self._try():
                pause_s = self._retry_s * (1 + 0.2 * random.random())
                while True:  # until the watch shows that the Lease is free, or until it must have expired
                    changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(max(self._blocked_s(), pause_s)):
                            await changed.wait()
                            pause_s = 0.0
                    if not changed.is_set() or not self._blocked_s():
                        break
        finally:
            await _stop(watching)
        self._log.info("lease.acquired", transitions=self.transitions)

    def _blocked_s(self) -> float:
        """Return for how many seconds the Lease of another holder is still valid, as far as is known."""
        if (
            self._seen is None
            or self.holder in ("", self._identity)
            or (self._former and self.holder.startswith(self._former))
        ):
            return 0.0
        duration_s = max(self._duration_s, self._seen.spec.lease_duration_seconds or 0)
        return max(0.0, self._seen_at + duration_s - time.monotonic())

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run ``lead`` and the renewals concurrently."""
        work = asyncio.ensure_future(lead())
        renewals = asyncio.create_task(self._renew(), name=f"lease-{self._name}")
        try:
            await asyncio.wait({work, renewals}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return await work
            self._log.error(
                "lease.lost",
                holder=self.holder,
                asked_s_ago=round(time.monotonic() - self._tried_at, 2),
                main_loop_answers=self._may_renew(),
                remedy="stopping; another replica leads",
            )
        finally:
            # The Lease is renewed until the work has ended, so that no other process starts before.
            if (error := await _stop(work)) is not None:
                self._log.error("lease.work_failed", error=repr(error))
            await _stop(renewals)
            await self._release()
        reason = (
            f"{self.holder} holds it" if self.holder != self._identity else "it could not be renewed in time"
        )
        raise LeaseLost(f"the lease {self._namespace}/{self._name} is lost: {reason}")

    async def _renew(self) -> None:
        """Renew until leadership has expired or another process holds the Lease."""
        while True:
            # an answer that comes late does not delay the next renewal
            due_s = self._tried_at + self._retry_s - time.monotonic()
            await asyncio.sleep(max(0.0, min(due_s, self.remaining_s)))
            if self.held and self._may_renew():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.remaining_s):
                        await self._try()
            if not self.held or self.holder != self._identity:
                self._renewed_at = float("-inf")
                return

    async def _try(self) -> bool:
        """Try once to acquire or renew the Lease; after an own write, it need not be read first."""
        self._tried_at = started = time.monotonic()
        lease = self._seen if self._current else None
        self._current = False
        try:
            written = await self._write(lease or await self._read())
        except (Conflict, AlreadyExists):
            return False
        except ApiError as error:
            self._log.warning("lease.write_failed", error=str(error))
            return False
        if written is None:
            return False
        self._observe(written)
        self._current = True
        self._renewed_at = started
        return True

    async def _read(self) -> Lease | None:
        try:
            lease = await self._api.get(LEASES, self._name, self._namespace)
        except NotFound:
            return None
        self._observe(lease)
        return lease

    def _observe(self, lease: Lease) -> None:
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at = time.monotonic()
        self._seen = lease
        self.holder = lease.spec.holder_identity or ""
        self.transitions = lease.spec.lease_transitions or 0

    async def _write(self, lease: Lease | None) -> Lease | None:
        """Write this process as the holder; return None if another holder's Lease is still valid."""
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._duration_s)),
            "renewTime": self._timestamp(),
        }
        if lease is None:
            spec |= {"acquireTime": spec["renewTime"], "leaseTransitions": 0}
            return await self._api.create(
                LEASES, {"metadata": {"name": self._name}, "spec": spec}, self._namespace
            )
        if self.holder != self._identity:
            if self._blocked_s():
                return None
            spec |= {"acquireTime": spec["renewTime"], "leaseTransitions": self.transitions + 1}
        return await self._patch(lease, spec)

    async def _release(self) -> None:
        """Release the Lease, so that no candidate waits for it to expire; best effort."""
        lease, held = self._seen, self.held
        self._current = False
        self._renewed_at = float("-inf")
        if lease is None or not held:
            return
        try:
            async with asyncio.timeout(self._retry_s):
                self._observe(await self._patch(lease, {"holderIdentity": "", "leaseDurationSeconds": 1}))
            self._log.info("lease.released")
        except (ApiError, TimeoutError) as error:
            self._log.warning(
                "lease.release_failed", error=str(error), consequence="other replicas wait until it expires"
            )

    async def _patch(self, lease: Lease, spec: dict[str, Any]) -> Lease:
        body = {
            "metadata": {"resourceVersion": lease.metadata.resource_version, "uid": lease.metadata.uid},
            "spec": spec,
        }
        return await self._api.patch(LEASES, self._name, body, namespace=self._namespace)

    def _timestamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _stop(task: asyncio.Future[None]) -> BaseException | None:
    """Cancel a task, wait for its end and return its exception."""
    task.cancel()
    await asyncio.wait({task})
    return None if task.cancelled() else task.exception()
