"""Clogging: many Jobs whose pods need each other, at once on a small cluster, with fluxqueue and without.

A parallel program waits at its start until all of its processes run, and occupies their nodes while it waits.
If pods are placed one by one, a few Jobs that each have some of their pods can occupy all nodes for ever. So
in this benchmark a pod uses a whole node, and ends only after all pods of its Job have run together for a
while: a Job that starts in part does not end.

The same Jobs (by seed) are created at once in a namespace that the queue manages and in one that it does not,
one after the other. A round ends when all Jobs have finished, or when nothing has changed for so long that no
further change is expected. A *partial start* is a Job of which some pods were on nodes for more than a few
seconds while others were not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import JOBS, NAMESPACES, PODS
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

MANAGED, PLAIN = "clogging-managed", "clogging-plain"
RUN_SECONDS = "fluxqueue.local/run-seconds"
TOGETHER_S = 5.0
"""Pods of a Job that are bound within this time start together."""


@dataclass
class Gang:
    """A Job and the observations of its pods. Times are monotonic seconds."""

    size: int
    created: float = 0.0
    bound: dict[str, float] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    finished: float | None = None
    reported: bool = False

    def partial(self, now: float) -> bool:
        """True if it started in part."""
        if not self.bound:
            return False
        last = max(self.bound.values()) if len(self.bound) >= self.size else now
        return last - min(self.bound.values()) > TOGETHER_S


@dataclass
class Outcome:
    """The results of one namespace's Jobs.
    Turnaround is from creation to the end of the last pod, of the Jobs that finished.
    """

    namespace: str
    jobs: int
    finished: int
    partial_starts: int
    mean_turnaround_s: float | None
    makespan_s: float | None


class Programs:
    """Ends the pods of a Job once all of them have run together,
    as the processes of a parallel program do.
    """

    def __init__(self, api: Api, pods: ObjectCache[Pod], run_s: float) -> None:
        self.gangs: dict[tuple[str, str], Gang] = {}
        self.changed_at = time.monotonic()
        self.changed = asyncio.Event()
        self._api = api
        self._run_s = run_s
        self._ending: set[asyncio.Task[None]] = set()
        pods.add_handler(self._note)

    def _note(self, change: Change[Pod]) -> None:
        pod = change.new
        owner = pod.metadata.controller if pod is not None else None
        gang = (
            self.gangs.get((pod.metadata.namespace, owner.name))
            if pod is not None and owner is not None
            else None
        )
        if pod is None or owner is None or gang is None:
            return
        now, name = time.monotonic(), pod.metadata.name
        if pod.spec.node_name and name not in gang.bound:
            gang.bound[name] = self.changed_at = now
        if pod.status.phase == "Running":
            gang.running.add(name)
        elif pod.terminal:
            gang.ended.add(name)
        if len(gang.running) >= gang.size and not gang.reported:
            gang.reported = True
            ending = asyncio.create_task(self._end(pod.metadata.namespace, sorted(gang.running)))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        if len(gang.ended) >= gang.size and gang.finished is None:
            gang.finished = self.changed_at = now
            self.changed.set()

    async def _end(self, namespace: str, names: list[str]) -> None:
        await asyncio.sleep(self._run_s)
        body = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
        await asyncio.gather(*(self._api.patch(PODS, name, body, namespace=namespace) for name in names))


def manifest(name: str, size: int, planned_s: int) -> dict[str, Any]:
    """Return a Job of this many pods, each of the size of a node."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "8", "memory": "1Gi"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {"fluxqueue/duration": str(planned_s)}},
        "spec": {
            "completionMode": "Indexed",
            "completions": size,
            "parallelism": size,
            "template": {
                "metadata": {"annotations": {RUN_SECONDS: "forever"}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


@dataclass(frozen=True)
class CloggingLoad:
    """How many Jobs, how long the pods of one run together, after how long without change nothing is
    expected, the seed of the sizes.
    """

    jobs: int = 100
    run_s: float = 1.0
    stuck_s: float = 20.0
    seed: int = 1

    @property
    def planned_s(self) -> int:
        """The duration that users say."""
        return round(self.run_s) + 2


async def clog(
    programs: Programs,
    namespace: str,
    load: CloggingLoad,
    create_job: Callable[[str, int], Awaitable[object]],
) -> Outcome:
    """Create all Jobs at once and follow them until they end, or until there is no further change.

    Parameters
    ----------
    programs
        It ends the pods.
    namespace
        Where the Jobs are created.
    load
        See `CloggingLoad`.
    create_job
        Creates the Job of a name and a number of pods.
    """
    sizes = random.Random(load.seed).choices(range(2, 7), k=load.jobs)
    gangs = {(namespace, f"gang-{number}"): Gang(size) for number, size in enumerate(sizes)}
    programs.gangs = gangs
    limit = asyncio.Semaphore(32)

    async def create(name: str, gang: Gang) -> None:
        async with limit:
            gang.created = time.monotonic()
            await create_job(name, gang.size)

    began = programs.changed_at = time.monotonic()
    await asyncio.gather(*(create(name, gang) for (_, name), gang in gangs.items()))
    while any(gang.finished is None for gang in gangs.values()):
        quiet_s = time.monotonic() - programs.changed_at
        if quiet_s > load.stuck_s:
            break
        programs.changed.clear()
        try:
            async with asyncio.timeout(load.stuck_s - quiet_s + 0.1):
                await programs.changed.wait()
        except TimeoutError:
            continue
    now = time.monotonic()
    turnarounds = [gang.finished - gang.created for gang in gangs.values() if gang.finished is not None]
    ends = [gang.finished for gang in gangs.values() if gang.finished is not None]
    return Outcome(
        namespace=namespace,
        jobs=len(gangs),
        finished=len(ends),
        partial_starts=sum(gang.partial(now) for gang in gangs.values()),
        mean_turnaround_s=statistics.mean(turnarounds) if turnarounds else None,
        makespan_s=max(ends) - began if len(ends) == len(gangs) else None,
    )


async def clean(api: Api, pods: ObjectCache[Pod], namespace: str) -> None:
    """Delete all Jobs, and wait until their pods are gone."""
    for job in await api.list(JOBS, namespace):
        await api.delete(JOBS, job.metadata.name, namespace=namespace)
    async with asyncio.timeout(120):
        while pods.list(namespace):
            await asyncio.sleep(0.2)


async def run(load: CloggingLoad, kubeconfig: Path) -> list[Outcome]:
    """Run both namespaces, the plain one first."""
    pods: ObjectCache[Pod] = ObjectCache()
    async with Api.connect(kubeconfig, user_agent="fluxqueue/benchmark", max_in_flight=64) as api:
        for name, labels in ((MANAGED, {"fluxqueue/managed": "true"}), (PLAIN, {})):
            await api.create(
                NAMESPACES,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
            )
        programs = Programs(api, pods, load.run_s)
        reflector = Reflector(api, PODS, pods)
        watching = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        outcomes = []
        for name in (PLAIN, MANAGED):

            async def create(job: str, size: int, namespace: str = name) -> None:
                await api.create(JOBS, manifest(job, size, load.planned_s), namespace)

            outcomes.append(await clog(programs, name, load, create))
            print(f"{name}: {outcomes[-1].finished} of {load.jobs} finished", file=sys.stderr, flush=True)
            await clean(api, pods, name)
        watching.cancel()
    return outcomes


def table(outcomes: list[Outcome]) -> str:
    """Format the results as a table."""
    lines = [f"{'':18}{'finished':>10}{'partial starts':>16}{'mean turnaround s':>19}{'makespan s':>12}"]
    for each in outcomes:
        mean = "-" if each.mean_turnaround_s is None else f"{each.mean_turnaround_s:.1f}"
        makespan = "-" if each.makespan_s is None else f"{each.makespan_s:.1f}"
        lines.append(
            f"{each.namespace:18}{each.finished:>6}/{each.jobs:<3}{each.partial_starts:>16}{mean:>19}"
            f"{makespan:>12}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument(
        "--run-seconds", type=float, default=1.0, help="how long the pods of a Job run together"
    )
    parser.add_argument(
        "--stuck-seconds", type=float, default=20.0, help="without any change after which nothing is expected"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "clogging.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fluxqueue-clogging-") as folder:
        Path(folder).chmod(0o711)
        report = partial(print, file=sys.stderr, flush=True)
        with InProcessCluster(Path(folder) / "cluster", ClusterOptions(nodes=8), report=report) as cluster:
            load = CloggingLoad(
                arguments.jobs, arguments.run_seconds, arguments.stuck_seconds, arguments.seed
            )
            outcomes = asyncio.run(run(load, cluster.kubeconfig))
    print(table(outcomes))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=2))


if __name__ == "__main__":
    main()
