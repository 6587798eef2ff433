"""What the dashboard watches with its own identity: FluxJobs, FluxQueues, FluxAccounts, FluxReservations and nodes, read only.

Every change raises the version by one and wakes who waits for one. Pages are made from these caches, so looking at a page costs the API
server nothing, however many look. What else a page shows of one job (its pods and Events) is read with the rights of the person.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.nodes import Node
from fluxqueue.dashboard.job_table import JobTable
from fluxqueue.kube.kinds import FLUXACCOUNTS, FLUXJOBS, FLUXQUEUES, FLUXRESERVATIONS, NODES
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.kube.watches import Watches

__all__ = ["ClusterState", "watches_of"]


class ClusterState:
    """The objects that are watched.

    Attributes
    ----------
    version
        Number of changes so far.
    table
        The FluxJobs as rows.
    """

    def __init__(self) -> None:
        self.jobs: ObjectCache[FluxJob] = ObjectCache()
        self.queues: ObjectCache[FluxQueue] = ObjectCache()
        self.accounts: ObjectCache[FluxAccount] = ObjectCache()
        self.reservations: ObjectCache[FluxReservation] = ObjectCache()
        self.nodes: ObjectCache[Node] = ObjectCache()
        self.table = JobTable()
        self.version = 0
        self._namespaces: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self.jobs.add_handler(self._job_changed)
        for cache in (self.queues, self.accounts, self.reservations, self.nodes):
            cache.add_handler(self._bump)

    @property
    def namespaces(self) -> list[str]:
        """The namespaces that have FluxJobs."""
        return [*self._namespaces]

    async def changed_since(self, version: int, timeout_s: float) -> bool:
        """Wait until something has changed since a version; false after the time limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.version == version:
                    await self._changed.wait()
        return self.version != version

    def _job_changed(self, change: Change[FluxJob]) -> None:
        if change.old is None:
            self._namespaces[change.obj.metadata.namespace] += 1
        if change.new is None:
            namespace = change.obj.metadata.namespace
            self._namespaces[namespace] -= 1
            if not self._namespaces[namespace]:
                del self._namespaces[namespace]
        self.table.apply(change)
        self._bump(change)

    def _bump(self, _change: Change[Any]) -> None:
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def watches_of(api: Api, state: ClusterState) -> Watches:
    """Return the watches that keep a state current."""
    return Watches(
        Reflector(api, FLUXJOBS, state.jobs),
        Reflector(api, FLUXQUEUES, state.queues),
        Reflector(api, FLUXACCOUNTS, state.accounts),
        Reflector(api, FLUXRESERVATIONS, state.reservations),
        Reflector(api, NODES, state.nodes),
    )
