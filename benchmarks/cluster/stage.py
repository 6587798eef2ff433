"""A contender that runs, a client that creates Jobs, and one watch that follows every pod:
the same for all contenders.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from cluster.contenders import Contender
from cluster.meters import Cost, measure, read_writes
from cluster.sites import Site, Work
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import JOBS, PODS
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api

__all__ = ["PodTimes", "Stage", "staged"]

_CLIENTS = 32
_TIMEOUT_S = 3_600.0
_WARM_JOBS = 20
_QUIET_S = 2.0
_READ_S = 1.0
"""Between two readings of the API server's metrics, each of which costs it some ten milliseconds."""
_POLL_S = 0.1
"""Between two looks at what the watch has brought; the times themselves are those of the events."""


class PodTimes:
    """When pods were first seen on nodes, ended, or gone. All times are monotonic seconds."""

    def __init__(self, pods: ObjectCache[Pod]) -> None:
        self.bound: dict[str, list[float]] = {}
        self.ended: dict[str, list[float]] = {}
        self.all_bound: list[float] = []
        self.freed: list[float] = []
        self._seen: set[tuple[str, str]] = set()
        pods.add_handler(self._note)

    def _note(self, change: Change[Pod]) -> None:
        now, pod = time.monotonic(), change.obj
        owner = pod.metadata.controller
        if change.new is not None and pod.spec.node_name and self._first(pod, "bound"):
            self.all_bound.append(now)
            if owner is not None:
                self.bound.setdefault(owner.name, []).append(now)
        if (change.new is None or pod.terminal) and pod.spec.node_name and self._first(pod, "freed"):
            self.freed.append(now)
            if owner is not None and pod.status.phase == "Succeeded":
                self.ended.setdefault(owner.name, []).append(now)

    def _first(self, pod: Pod, what: str) -> bool:
        key = (pod.metadata.uid, what)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    async def until_bound(self, jobs: Collection[str], pods: int = 1) -> None:
        """Wait until each of these Jobs has so many pods on nodes."""
        await self._until(self.bound, jobs, pods)

    async def until_ended(self, jobs: Collection[str], pods: int = 1) -> None:
        """Wait until so many pods of each of these Jobs have succeeded."""
        await self._until(self.ended, jobs, pods)

    async def until_number(self, number: int) -> float:
        """Wait until so many pods in all were bound, and return when that one was."""
        async with asyncio.timeout(_TIMEOUT_S):
            while len(self.all_bound) < number:
                await asyncio.sleep(_POLL_S)
        return self.all_bound[number - 1]

    async def _until(self, times: dict[str, list[float]], jobs: Collection[str], pods: int) -> None:
        missing = set(jobs)
        async with asyncio.timeout(_TIMEOUT_S):
            while missing := {name for name in missing if len(times.get(name, ())) < pods}:
                await asyncio.sleep(_POLL_S)


class Stage:
    """A contender that runs, with its client and its watch.

    Parameters
    ----------
    contender
        Started.
    site
        What it was started with.
    api
        The client of its API server.
    pods
        The cache that the watch fills.
    """

    def __init__(self, contender: Contender, site: Site, api: Api, pods: ObjectCache[Pod]) -> None:
        self.contender = contender
        self.site = site
        self.api = api
        self.pods = pods
        self.times = PodTimes(pods)
        self._created = 0

    async def create(self, work: Work) -> float:
        """Create a Job and return when the call began."""
        self._created += 1
        document = self.contender.submit(work, self._created)
        began = time.monotonic()
        await self.api.create(JOBS, document, self.contender.namespace)
        return began

    async def create_all(self, works: Sequence[Work]) -> dict[str, float]:
        """Create Jobs with 32 calls at once, and return when the call of each began."""
        limit = asyncio.Semaphore(_CLIENTS)

        async def create(work: Work) -> tuple[str, float]:
            async with limit:
                return work.name, await self.create(work)

        return dict(await asyncio.gather(*map(create, works)))

    async def cost(self) -> Cost:
        """Read all counters."""
        return await measure(self.api, self.contender.processes())

    async def settled(self, limit_s: float = 20.0) -> float:
        """Wait until nothing was written for two seconds, or ``limit_s`` has passed;
        return how long that took without those seconds.
        """
        began = quiet_since = time.monotonic()
        before = await read_writes(self.api)
        while (now := time.monotonic()) - quiet_since < _QUIET_S and now - began < limit_s:
            await asyncio.sleep(_READ_S)
            if (after := await read_writes(self.api)) != before:
                before, quiet_since = after, time.monotonic()
        return quiet_since - began

    async def warm_up(self) -> None:
        """Run some Jobs one after the other, for caches, connections and compiled policies,
        and remove them.
        """
        queues: list[str | None] = [queue.name for queue in self.site.queues]
        queues = queues or [None]
        for number in range(max(_WARM_JOBS, len(queues))):
            work = Work(
                f"warm-{number}",
                memory=None if self.site.queues else "64Mi",
                queue=queues[number % len(queues)],
            )
            await self.create(work)
            await self.times.until_bound([work.name])
            await self.api.delete(JOBS, work.name, namespace=self.contender.namespace)
        async with asyncio.timeout(120):
            while self.pods.list(self.contender.namespace):
                await asyncio.sleep(0.2)
        await self.settled(60)


@asynccontextmanager
async def staged(contender: Contender, site: Site) -> AsyncIterator[Stage]:
    """Start a contender, follow its pods, and in the end stop it and remove its files."""
    try:
        await asyncio.to_thread(contender.start)
        async with Api.connect(
            contender.plane.kubeconfig, user_agent="fluxqueue/benchmark", max_in_flight=_CLIENTS * 2
        ) as api:
            pods: ObjectCache[Pod] = ObjectCache()
            stage = Stage(contender, site, api, pods)
            reflector = Reflector(api, PODS, pods, namespace=contender.namespace)
            watching = asyncio.create_task(reflector.run())
            try:
                await asyncio.wait_for(reflector.synced.wait(), 60)
                await stage.warm_up()
                yield stage
            finally:
                watching.cancel()
    finally:
        await asyncio.to_thread(contender.stop)
        await asyncio.to_thread(shutil.rmtree, contender.folder, ignore_errors=True)
