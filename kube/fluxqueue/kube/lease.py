"""Who leads: a coordination.k8s.io Lease that at most one process holds.

The protocol is client-go's. A candidate never compares clocks with the holder: it notes when, by its own monotonic clock, it first
saw the record in its present form, and takes the lease over only when that form has not changed for the whole duration. The holder
for its part counts from before the request that renewed it, and stops leading when it has not renewed for two thirds of the duration.
So clocks may be wrong by hours; only their speed must be about equal, and the third in between is for that and for stopping.

A candidate watches the record, so it knows at once when the holder gives it back, and to the moment when it runs out; should the watch
be late, it looks by itself. Whoever lost the lease does not campaign again with what it still has in memory: :meth:`LeaderLease.run`
ends, and so should the process. A new life in the same place (a container started again in its pod) knows that its former life is over
and does not wait for it.

All writes carry the resourceVersion that was read, so of two candidates one gets a conflict. That makes two leaders unlikely, not
impossible: a process can be frozen between looking at :attr:`LeaderLease.held` and acting. What must not happen twice is fenced
elsewhere by an epoch; see the architecture, section 4.
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
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.store import Change, Store
from fluxqueue.kube.transport import Api

__all__ = ["LeaderLease", "LeaseLost"]

log: Final = structlog.get_logger(__name__)


class LeaseLost(Exception):
    """The lease could not be renewed in time, or somebody else holds it: what is done as its holder must end."""


class LeaderLease:
    """One candidate for one lease.

    Parameters
    ----------
    api
        Through which it is read and written.
    namespace, name
        Which Lease; it is made if it is not there.
    identity
        Who we are; must differ between processes, also between two lives of the same pod.
    duration_s
        After how many seconds without renewal others may take over; whole seconds are stored. Renewed every fifth of it.
    former
        What identities of former lives in our place begin with: such a life has ended, or we would not run. Empty if nothing says so.
    clock
        Monotonic seconds.
    now
        Wall clock for what people read in the Lease; decides nothing.

    Attributes
    ----------
    holder
        Who held it when it was last read; empty for nobody.
    transitions
        How often it changed hands, as stored in the Lease.
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
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_s = duration_s
        self._renew_deadline_s = duration_s * 2 / 3
        self._retry_s = duration_s / 5
        self._former = former
        self._clock = clock
        self._now = now
        self._seen: Lease | None = None
        self._seen_at = float("-inf")
        self._renewed_at = float("-inf")
        self._current = False
        self._log: Any = log.bind(lease=f"{namespace}/{name}", identity=identity)
        self.holder = ""
        self.transitions = 0

    @property
    def held(self) -> bool:
        """Whether this process may act as leader right now."""
        return self.remaining_s > 0

    @property
    def remaining_s(self) -> float:
        """Seconds of leadership that are certain without another renewal; 0 when not leading."""
        return max(0.0, self._renewed_at + self._renew_deadline_s - self._clock())

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign until the lease is ours, then lead.

        Parameters
        ----------
        lead
            Runs while we lead. It is cancelled when the lease is lost, and must then end soon.

        Raises
        ------
        LeaseLost
            After ``lead`` was cancelled for it.
        Exception
            What ``lead`` raised. When it raises, returns, or this call is cancelled, the lease is given back first, so that another
            takes over at once.
        """
        await self._acquire()
        await self._lead(lead)

    async def _acquire(self) -> None:
        changed = asyncio.Event()

        def see(change: Change[Lease]) -> None:
            if change.new is not None:
                self._observe(change.new)
            changed.set()

        records: Store[Lease] = Store()
        records.add_handler(see)
        selector = f"metadata.name={self._name}"
        watch = Reflector(self._api, LEASES, records, namespace=self._namespace, field_selector=selector)
        watching = asyncio.create_task(watch.run(), name=f"watch-lease-{self._name}")
        try:
            while not await self._try():
                pause_s = self._retry_s * (1 + 0.2 * random.random())
                while True:  # until the record says that it is free, or, whatever the watch says, until it should have run out
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
        """For how many seconds, as far as is known, somebody else's claim counts."""
        if self._seen is None or self.holder in ("", self._identity) or (self._former and self.holder.startswith(self._former)):
            return 0.0
        theirs_s = max(self._duration_s, self._seen.spec.lease_duration_seconds or 0)
        return max(0.0, self._seen_at + theirs_s - self._clock())

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run ``lead`` beside the renewals."""
        work = asyncio.ensure_future(lead())
        renewals = asyncio.create_task(self._renew(), name=f"lease-{self._name}")
        try:
            await asyncio.wait({work, renewals}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return await work
            self._log.error("lease.lost", holder=self.holder, remedy="stopping; another replica leads")
        finally:
            # Renewals go on while the work ends, so that nobody else starts before it has.
            if (error := await _stop(work)) is not None:
                self._log.error("lease.work_failed", error=repr(error))
            await _stop(renewals)
            await self._release()
        by = f"{self.holder} holds it" if self.holder != self._identity else "it could not be renewed in time"
        raise LeaseLost(f"the lease {self._namespace}/{self._name} is lost: {by}")

    async def _renew(self) -> None:
        """Renew until it fails for as long as others keep their hands off, or somebody else holds it."""
        while True:
            await asyncio.sleep(min(self._retry_s, self.remaining_s))
            try:
                async with asyncio.timeout(self.remaining_s):
                    renewed = await self._try()
            except TimeoutError:
                renewed = False
            if not renewed and (not self.held or self.holder != self._identity):
                self._renewed_at = float("-inf")
                return

    async def _try(self) -> bool:
        """One attempt to take or keep the lease; what we wrote last ourselves needs no reading before."""
        started = self._clock()
        lease = self._seen if self._current else None
        self._current = False
        try:
            written = await self._write(lease or await self._read())
        except (Conflict, AlreadyExists):
            return False
        except ApiError as error:
            self._log.warning("lease.failed", error=str(error))
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
            self._seen_at = self._clock()
        self._seen = lease
        self.holder = lease.spec.holder_identity or ""
        self.transitions = lease.spec.lease_transitions or 0

    async def _write(self, lease: Lease | None) -> Lease | None:
        """Write our claim; None where somebody else's still counts."""
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._duration_s)),
            "renewTime": self._timestamp(),
        }
        if lease is None:
            spec |= {"acquireTime": spec["renewTime"], "leaseTransitions": 0}
            return await self._api.create(LEASES, {"metadata": {"name": self._name}, "spec": spec}, self._namespace)
        if self.holder != self._identity:
            if self._blocked_s():
                return None
            spec |= {"acquireTime": spec["renewTime"], "leaseTransitions": self.transitions + 1}
        return await self._patch(lease, spec)

    async def _release(self) -> None:
        """Give it back, so that nobody has to wait for it to run out; best effort."""
        lease, mine = self._seen, self.held
        self._current = False
        self._renewed_at = float("-inf")
        if lease is None or not mine:
            return
        try:
            async with asyncio.timeout(self._retry_s):
                self._observe(await self._patch(lease, {"holderIdentity": "", "leaseDurationSeconds": 1}))
            self._log.info("lease.released")
        except (ApiError, TimeoutError) as error:
            self._log.warning("lease.not_released", error=str(error), consequence="others wait until it runs out")

    async def _patch(self, lease: Lease, spec: dict[str, Any]) -> Lease:
        body = {"metadata": {"resourceVersion": lease.metadata.resource_version, "uid": lease.metadata.uid}, "spec": spec}
        return await self._api.patch(LEASES, self._name, body, namespace=self._namespace)

    def _timestamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _stop(task: asyncio.Future[None]) -> BaseException | None:
    """End a task and return what it ended with."""
    task.cancel()
    await asyncio.wait({task})
    return None if task.cancelled() else task.exception()
