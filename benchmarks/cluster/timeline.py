"""When each Job of a burst passes each step of its way, and what was used until then:
``python -m cluster.timeline`` in ``benchmarks/``.

A step is seen in the watch of this program, or is a time in the tables of the queue. For each step the table
has when the Jobs passed it, from the begin of the burst, and how long each Job took for it from the step
before. Below it are the CPU time of each program for one Job until the last pod was bound, and until nothing
was written any more: what is between the two could delay no start. On a machine that others use, the times
are longer; the CPU times, the order of the steps and the writes are comparable.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import structlog

from cluster.contenders import CONTENDERS, Fluxqueue, make_contender
from cluster.meters import Cost, idle_share, read_machine
from cluster.sites import Site, Work
from cluster.stage import Stage, staged
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import FLUXJOBS, JOBS, Kind, T
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector

STEPS = (
    "create called",
    "create answered",
    "suspended by the Job controller",
    "workload stored",
    "granted",
    "resumed",
    "last pod created",
    "last pod bound",
)
"""In the order of a Job's way; the second and third may be later than those behind them."""
ASIDE = ("release stored", "Running stored", "FluxJob created")
"""What no start waits for."""
_TRANSITIONS = """
SELECT w.name, t.after, min(extract(epoch FROM t.at))::float8
FROM fluxqueue.transition t JOIN fluxqueue.workload w ON w.id = t.workload GROUP BY 1, 2
"""
_RELEASES = """
SELECT w.name, min(extract(epoch FROM a.released_at))::float8
FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload
 WHERE a.released_at IS NOT NULL GROUP BY 1
"""
_STATES = {"Pending": "workload stored", "Allocated": "granted", "Running": "Running stored"}

Times = dict[str, dict[str, float]]
"""Unix seconds, by step and Job."""


class StepWatch:
    """Notes when objects are first seen in the states that end steps."""

    def __init__(self, pods: int) -> None:
        self.times: Times = defaultdict(dict)
        self._pods = pods
        self._seen: dict[tuple[str, str], set[str]] = defaultdict(set)

    def note(self, step: str, job: str) -> None:
        """Note the first time of a step."""
        self.times[step].setdefault(job, time.time())

    def job_changed(self, change: Change[Job]) -> None:
        """Note the steps of a Job."""
        if (job := change.new) is None:
            return
        if job.status.has_condition("Suspended"):
            self.note("suspended by the Job controller", job.metadata.name)
        if change.old is not None and change.old.spec.suspend and not job.spec.suspend:
            self.note("resumed", job.metadata.name)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Note when the last pod of a Job is there, and when it has its node."""
        pod = change.new
        if pod is None or (owner := pod.metadata.controller) is None:
            return
        for step, reached in (("last pod created", True), ("last pod bound", bool(pod.spec.node_name))):
            if reached:
                seen = self._seen[step, owner.name]
                seen.add(pod.metadata.uid)
                if len(seen) == self._pods:
                    self.note(step, owner.name)

    def fluxjob_changed(self, change: Change[FluxJob]) -> None:
        """Note when a Job has a FluxJob."""
        if change.new is not None:
            self.note("FluxJob created", change.new.spec.object_ref.name)


@asynccontextmanager
async def following(stage: Stage, watch: StepWatch, *, fluxjobs: bool) -> AsyncIterator[None]:
    """Follow Jobs, pods and FluxJobs."""
    stage.pods.add_handler(watch.pod_changed)
    tasks = [await _follow(stage, JOBS, watch.job_changed)]
    if fluxjobs:
        tasks.append(await _follow(stage, FLUXJOBS, watch.fluxjob_changed))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _follow(stage: Stage, kind: Kind[T], handler: Callable[[Change[T]], None]) -> asyncio.Task[None]:
    cache: ObjectCache[T] = ObjectCache()
    cache.add_handler(handler)
    reflector = Reflector(stage.api, kind, cache, namespace=stage.contender.namespace)
    task = asyncio.create_task(reflector.run())
    await asyncio.wait_for(reflector.synced.wait(), 60)
    return task


def stored_times(dsn: str, times: Times) -> None:
    """Add what the tables of the queue say."""
    with psycopg.connect(dsn) as connection:
        for name, state, at in connection.execute(_TRANSITIONS).fetchall():
            if state in _STATES:
                times[_STATES[state]][name] = at
        for name, at in connection.execute(_RELEASES).fetchall():
            times["release stored"][name] = at


async def run(contender: str, jobs: int, pods: int) -> dict[str, Any]:
    """Run one burst."""
    site = Site()
    async with staged(make_contender(contender, site), site) as stage:
        watch = StepWatch(pods)
        ours = isinstance(stage.contender, Fluxqueue)
        async with following(stage, watch, fluxjobs=ours):
            works = [Work(f"burst-{number}", pods=pods) for number in range(jobs)]
            limit = asyncio.Semaphore(32)

            async def create(work: Work) -> None:
                async with limit:
                    watch.note("create called", work.name)
                    await stage.create(work)
                    watch.note("create answered", work.name)

            before, machine, began = await stage.cost(), read_machine(), time.time()
            await asyncio.gather(*map(create, works))
            await stage.times.until_bound([work.name for work in works], pods)
            bound, idle = await stage.cost(), idle_share(machine, read_machine())
            await stage.settled(60)
            settled = await stage.cost()
        times = {
            step: {name: at - began for name, at in found.items()} for step, found in watch.times.items()
        }
        if isinstance(stage.contender, Fluxqueue):
            stored: Times = defaultdict(dict)
            await asyncio.to_thread(stored_times, stage.contender.database_dsn, stored)
            names = {work.name for work in works}
            times |= {
                step: {name: at - began for name, at in found.items() if name in names}
                for step, found in stored.items()
            }
        return {
            "contender": contender,
            "jobs": jobs,
            "pods": pods,
            "times": times,
            "idle": idle,
            "bound": _used(bound.since(before), jobs),
            "settled": _used(settled.since(before), jobs),
        }


def _used(cost: Cost, jobs: int) -> dict[str, dict[str, float]]:
    return {
        "cpu_ms": {name: 1_000 * used / jobs for name, used in cost.cpu_s.items()},
        "writes": {name: count / jobs for name, count in cost.writes.objects.items()}
        | {"events": cost.writes.events / jobs},
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of these sorted values lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def table(found: Mapping[str, Any]) -> str:
    """Return a run as text."""
    times: Times = found["times"]
    jobs, waits = found["jobs"], _waits(times)
    rate = jobs / max(times["last pod bound"].values())
    wait = f"wait p50 {quantile(waits, 0.5):.2f} s, p99 {quantile(waits, 0.99):.2f} s"
    lines = [
        (
            f"{found['contender']}: {jobs} Jobs of {found['pods']}: {rate:.1f} Jobs/s, {wait}; the machine "
            f"was idle for {found['idle']:.0%}"
        ),
        f"  {'step':34}{'Jobs':>6}{'first':>8}{'p50':>8}{'last':>8}{'| took p10':>12}{'p50':>8}{'p90':>8}",
    ]
    former: Mapping[str, float] = {}
    for step in (*STEPS, *ASIDE):
        passed = times.get(step, {})
        if not passed:
            continue
        ordered = sorted(passed.values())
        took = sorted(at - former[name] for name, at in passed.items() if name in former)
        told = (
            "".join(f"{quantile(took, share):{width}.3f}" for share, width in ((0.1, 12), (0.5, 8), (0.9, 8)))
            if took
            else ""
        )
        lines.append(
            f"  {step:34}{len(passed):6}{ordered[0]:8.2f}{quantile(ordered, 0.5):8.2f}{ordered[-1]:8.2f}"
            f"{told}"
        )
        if step in STEPS and not step.startswith("suspended"):
            former = passed
    for what in ("bound", "settled"):
        cpu, writes = found[what]["cpu_ms"], found[what]["writes"]
        used = ", ".join(
            f"{name} {ms:.1f}" for name, ms in sorted(cpu.items(), key=lambda each: -each[1]) if ms >= 0.05
        )
        lines.append(f"  CPU ms per Job until {what}: {sum(cpu.values()):.1f} ({used})")
        told = ", ".join(
            f"{name} {count:.2f}"
            for name, count in sorted(writes.items(), key=lambda each: -each[1])
            if count >= 0.01
        )
        lines.append(
            f"  writes per Job until {what}: {sum(writes.values()) - writes['events']:.1f} + "
            f"{writes['events']:.1f} ({told})"
        )
    return "\n".join(lines)


def _waits(times: Times) -> list[float]:
    return sorted(at - times["create called"][name] for name, at in times["last pod bound"].items())


def main() -> None:
    """Run bursts, print a table of each, and write them as JSON."""
    parser = argparse.ArgumentParser(prog="cluster.timeline", description=__doc__)
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--pods", type=int, default=1, help="of each Job (default: %(default)s)")
    parser.add_argument("--contender", nargs="+", choices=CONTENDERS, default=["plain", "fluxqueue"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path(__file__).parents[1] / "results" / "timeline.json")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    runs = []
    for number in range(arguments.rounds):
        for contender in arguments.contender if number % 2 == 0 else reversed(arguments.contender):
            runs.append(asyncio.run(run(contender, arguments.jobs, arguments.pods)))
            print(table(runs[-1]), flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(runs))


if __name__ == "__main__":
    main()
