"""The clogging load of ``benchmarks/clogging.py`` for every contender:
Jobs whose pods need each other and take whole nodes.
"""

from __future__ import annotations

from clogging import CloggingLoad, Programs, clog

from cluster.loads import Load, LoadResult, sized
from cluster.sites import FOREVER, Site, Work
from cluster.stage import Stage

__all__ = ["SITE", "clogged"]

SITE = Site(nodes=8)


def clogged(jobs: int) -> Load:
    """Create Jobs of 2 to 6 pods at once; a pod ends 1 s after all pods of its Job run,
    so a Job that starts in part never ends.
    """

    async def load(stage: Stage, scale: float) -> LoadResult:
        size = CloggingLoad(jobs=sized(jobs, scale))
        programs = Programs(stage.api, stage.pods, size.run_s)

        async def create(name: str, pods: int) -> float:
            work = Work(
                name, cpu=str(stage.site.node_cpu), pods=pods, run_s=FOREVER, duration_s=size.planned_s
            )
            return await stage.create(work)

        outcome = await clog(programs, stage.contender.namespace, size, create)
        figures = {"finished": float(outcome.finished), "partial_starts": float(outcome.partial_starts)}
        times = {"mean_turnaround_s": outcome.mean_turnaround_s, "makespan_s": outcome.makespan_s}
        return LoadResult(
            size.jobs, (), figures | {name: value for name, value in times.items() if value is not None}
        )

    return load
