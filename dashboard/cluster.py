"""What the dashboard watches with its own identity: FluxJobs, FluxQueues, FluxAccounts, FluxReservations and
nodes, read only.

Every change raises the version by one and wakes who waits for one. Pages are made from these caches, so
looking at a page costs the API server nothing, however many look. What else a page shows of one job (its pods
and Events) is read with the rights of the person.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
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

    Parameters
    ----------
    clock
        Seconds of the epoch.

    Attributes
    ----------
    version
        Number of changes so far.
    table
        The FluxJobs as rows.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.jobs: ObjectCache[FluxJob] = ObjectCache()
        self.queues: ObjectCache[FluxQueue] = ObjectCache()
        self.accounts: ObjectCache[FluxAccount] = ObjectCache()
        self.reservations: ObjectCache[FluxReservation] = ObjectCache()
        self.nodes: ObjectCache[Node] = ObjectCache()
        self.table = JobTable(clock)
        self.version = 0
        self._namespaces: Counter[str] = Counter()
        self._named: tuple[str, ...] | None = ()
        self._changed = asyncio.Event()
        self.jobs.add_handler(self._job_changed)
        for cache in (self.queues, self.accounts, self.reservations):
            cache.add_handler(self._bump)
        self.nodes.add_handler(self._node_changed)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that have FluxJobs, by name; the same object while they are the same."""
        if self._named is None:
            self._named = tuple(sorted(self._namespaces))
        return self._named

    async def changed_since(self, version: int, timeout_s: float) -> bool:
        """Wait until something has changed since a version; false after the time limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.version == version:
                    await self._changed.wait()
        return self.version != version

    def _job_changed(self, change: Change[FluxJob]) -> None:
        namespace = change.obj.metadata.namespace
        if change.old is None:
            self._named = self._named if namespace in self._namespaces else None
            self._namespaces[namespace] += 1
        if change.new is None:
            self._namespaces[namespace] -= 1
            if not self._namespaces[namespace]:
                del self._namespaces[namespace]
                self._named = None
        self.table.apply(change)
        self._bump(change)

    def _node_changed(self, change: Change[Node]) -> None:
        """Let heartbeats, which thousands of nodes have all the time, wake nobody."""
        if change.old is None or change.new is None or _shown(change.old) != _shown(change.new):
            self._bump(change)

    def _bump(self, _change: Change[Any]) -> None:
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _shown(node: Node) -> tuple[object, ...]:
    """Return what pages show of a node."""
    return node.metadata.labels, node.spec.unschedulable, node.status.ready, node.status.allocatable


def watches_of(api: Api, state: ClusterState) -> Watches:
    """Return the watches that keep a state current."""
    return Watches(
        Reflector(api, FLUXJOBS, state.jobs),
        Reflector(api, FLUXQUEUES, state.queues),
        Reflector(api, FLUXACCOUNTS, state.accounts),
        Reflector(api, FLUXRESERVATIONS, state.reservations),
        Reflector(api, NODES, state.nodes),
    )
