"""The baseline performance scenario of Kueue, as its repository has it, with real Jobs and real pods for
every contender.

Kueue publishes it in ``test/performance/scheduler/configs/baseline/generator.yaml`` (v0.19.2): 5 cohorts of 6
queues, each queue with 20 CPUs of its own and up to 100 borrowed ones, and three sizes of Workloads with
priorities, which are created at fixed intervals. There it creates Workload objects only, a runner marks them
as finished, and no pod exists. Here each is a Job whose pod must be bound, run and end, and the local cluster
ends pods after the published run times, for all contenders alike. A cohort is one node with the 120 CPUs of
its queues, so a quota is never larger than the room, and room is never split.

The short form has a fifth of the Workloads of each size.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.loads import Load, LoadResult, sized
from cluster.sites import Site, SiteQueue, Work
from cluster.stage import Stage

__all__ = ["SITE", "SIZES", "Size", "baseline", "inversions"]

_COHORTS, _QUEUES_PER_COHORT = 5, 6
_QUEUE_CPU, _BORROWED_CPU = 20, 100


@dataclass(frozen=True)
class Size:
    """A class of Workloads: how many for each queue, how often one is created, and what it takes."""

    name: str
    count: int
    interval_s: float
    run_s: float
    priority: int
    cpu: int


SIZES = (
    Size("small", 350, 0.1, 0.2, 50, 1),
    Size("medium", 100, 0.5, 0.5, 100, 5),
    Size("large", 50, 1.2, 1.0, 200, 20),
)

SITE = Site(
    nodes=_COHORTS,
    node_cpu=_QUEUES_PER_COHORT * _QUEUE_CPU,
    queues=tuple(
        SiteQueue(
            f"cq-{cohort}-{number}",
            f"cohort-{cohort}",
            {"kubernetes.io/hostname": f"node-{cohort + 1}"},
            _QUEUE_CPU,
            _BORROWED_CPU,
        )
        for cohort in range(_COHORTS)
        for number in range(_QUEUES_PER_COHORT)
    ),
    priorities=tuple(size.priority for size in SIZES),
)


def baseline(part: float) -> Load:
    """Create a part of the Workloads of each size at the published intervals,
    and wait until all have ended.
    """

    async def load(stage: Stage, scale: float) -> LoadResult:
        began = time.monotonic()
        series = [
            _series(stage, queue, size, sized(size.count, part * scale))
            for queue in stage.site.queues
            for size in SIZES
        ]
        created = {name: at for batch in await asyncio.gather(*series) for name, at in batch.items()}
        await stage.times.until_ended(created)
        times = stage.times
        waits = {name: times.bound[name][0] - at for name, at in created.items()}
        figures = {
            "makespan_s": max(times.ended[name][0] for name in created) - began,
            "created_after_s": max(created.values()) - began,
            "restarted": float(sum(len(times.bound[name]) - 1 for name in created)),
        }
        by_size = {
            size.name: [wait for name, wait in waits.items() if name.startswith(f"{size.name}-")]
            for size in SIZES
        }
        figures |= {f"{name}_mean_wait_s": statistics.mean(each) for name, each in by_size.items()}
        figures["inversions"] = float(inversions(by_size))
        return LoadResult(len(created), list(waits.values()), figures)

    return load


def inversions(waits_s: Mapping[str, Sequence[float]]) -> int:
    """Return how many pairs of sizes wait in the wrong order:
    the one of higher priority longer, at the mean.
    """
    ordered = sorted(SIZES, key=lambda size: -size.priority)
    means = [statistics.mean(waits_s[size.name]) for size in ordered]
    return sum(means[high] > means[low] for high in range(len(means)) for low in range(high + 1, len(means)))


async def _series(stage: Stage, queue: SiteQueue, size: Size, count: int) -> dict[str, float]:
    """Create the Workloads of one size in one queue, each after its interval;
    a late one delays those behind it, as in Kueue's runner.
    """
    created = {}
    for number in range(count):
        await asyncio.sleep(size.interval_s)
        work = Work(
            f"{size.name}-{queue.name}-{number}",
            cpu=str(size.cpu),
            memory=None,
            run_s=str(size.run_s),
            duration_s=math.ceil(size.run_s),
            queue=queue.name,
            priority=size.priority,
        )
        created[work.name] = await stage.create(work)
    return created
