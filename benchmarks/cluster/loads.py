"""The loads: what is created when, and what is read off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.sites import Work
from cluster.stage import Stage
from fluxqueue.kube.kinds import JOBS

__all__ = ["Load", "LoadResult", "backlog", "burst", "idle", "singles", "steady"]

_SETTLED_S = 300.0


@dataclass(frozen=True)
class LoadResult:
    """What one load gave.

    Attributes
    ----------
    jobs
        The Jobs by which costs are divided.
    waits_s
        Seconds from the call that creates a Job to the event that shows its last pod bound, unless the load
        says otherwise.
    figures
        Others, by name with unit.
    """

    jobs: int
    waits_s: Sequence[float] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


Load = Callable[[Stage, float], Awaitable[LoadResult]]
"""A load on a stage, with a factor of its size."""


def burst(jobs: int, pods: int = 1, cpu: str = "100m") -> Load:
    """Create Jobs as fast as the API server takes them; all fit at once."""

    async def load(stage: Stage, scale: float) -> LoadResult:
        works = [Work(f"burst-{number}", cpu=cpu, pods=pods) for number in range(sized(jobs, scale))]
        names = [work.name for work in works]
        began = time.monotonic()
        created = await stage.create_all(works)
        await stage.times.until_bound(names, pods)
        ends = {name: stage.times.bound[name][pods - 1] for name in names}
        rate = len(names) / (max(ends.values()) - began)
        figures = {"jobs_per_s": rate}
        if pods > 1:
            figures |= {"pods_per_s": rate * pods, "pods_of_job": float(pods)}
        return LoadResult(len(names), [ends[name] - created[name] for name in names], figures)

    return load


def steady(rate: float, seconds: float) -> Load:
    """Create Jobs at a fixed rate; all fit together, so the cluster never fills."""

    async def load(stage: Stage, scale: float) -> LoadResult:
        works = [Work(f"steady-{number}", cpu="50m") for number in range(sized(rate * seconds, scale))]
        names = [work.name for work in works]
        began = time.monotonic()
        creations: dict[str, asyncio.Task[float]] = {}
        for number, work in enumerate(works):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            creations[work.name] = asyncio.create_task(stage.create(work))
        created = {name: await creation for name, creation in creations.items()}
        await stage.times.until_bound(names)
        return LoadResult(len(names), [stage.times.bound[name][0] - created[name] for name in names])

    return load


def singles(jobs: int) -> Load:
    """Create one Job after the other, each when the one before is bound."""

    async def load(stage: Stage, scale: float) -> LoadResult:
        waits = []
        for number in range(sized(jobs, scale)):
            work = Work(f"single-{number}")
            created = await stage.create(work)
            await stage.times.until_bound([work.name])
            waits.append(stage.times.bound[work.name][0] - created)
        return LoadResult(len(waits), waits)

    return load


def backlog(pending: int, freed: int) -> Load:
    """Measure from a node that becomes free to the next pod bound, while many Jobs wait behind a full
    cluster.

    Each Job takes a whole node, so that a quota of the whole cluster is full exactly when its nodes are.
    """

    async def load(stage: Stage, scale: float) -> LoadResult:
        whole = str(stage.site.node_cpu)
        running = [Work(f"runs-{number}", cpu=whole) for number in range(stage.site.nodes)]
        await stage.create_all(running)
        await stage.times.until_bound([work.name for work in running])
        waiting = [Work(f"waits-{number}", cpu=whole) for number in range(sized(pending, scale))]
        began = time.monotonic()
        await stage.create_all(waiting)
        figures = {"created_per_s": len(waiting) / (time.monotonic() - began)}
        figures["settled_s"] = await stage.settled(_SETTLED_S)
        waits = []
        for work in running[:freed]:
            bound, gone = len(stage.times.all_bound), len(stage.times.freed)
            await stage.api.delete(JOBS, work.name, namespace=stage.contender.namespace)
            next_at = await stage.times.until_number(bound + 1)
            waits.append(next_at - stage.times.freed[gone])
            await asyncio.sleep(1)
        return LoadResult(len(waiting), waits, figures)

    return load


def idle(seconds: float) -> Load:
    """Do nothing; costs are those of a cluster without work, by `Outcome.lasted_s`."""

    async def load(stage: Stage, scale: float) -> LoadResult:
        await asyncio.sleep(seconds * scale)
        return LoadResult(0)

    return load


def sized(number: float, scale: float) -> int:
    """Return a number of Jobs in a short form, at least one."""
    return max(1, round(number * scale))
