"""What preemption loses, beside Kueue: ``python -m cluster.lost_work`` in the folder ``benchmarks``,
or `make bench-lost-work`.

Jobs arrive for three and a half minutes on 32 nodes, a little more than these can run: single pods, gangs,
elastic Indexed Jobs that say with how few pods they run, and short urgent ones of a higher priority. Each pod
takes a whole node, so a quota of the cluster is full exactly when its nodes are. All contenders get the same
Jobs at the same times; only labels and annotations differ. What a pod did is lost if it is deleted before it
has succeeded. Half of the single pods and gangs save every ten seconds, and lose only what they did since.
They say so in the same annotation of their Job everywhere, which Kueue does not read.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from cluster.contenders import CONTENDERS, make_contender
from cluster.scenarios import quantiles
from cluster.sites import Site, SiteQueue, Work
from cluster.stage import Stage, staged
from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import JOBS
from fluxqueue.kube.object_cache import Change, ObjectCache

__all__ = ["SITE", "Arrival", "LostPods", "Outcome", "arrivals"]

NODES, NODE_CPU = 32, 8
URGENT = 100
SITE = Site(
    nodes=NODES,
    node_cpu=NODE_CPU,
    queues=(SiteQueue("lost", "site", {"kubernetes.io/os": "linux"}, NODES * NODE_CPU, 0),),
    priorities=(URGENT,),
)
ARRIVE_S = 210
_TIMEOUT_S = 480
_SAVE_S = 10
_STATED = 1.5
"""What users say that a Job takes, in proportion to what it does."""


@dataclass(frozen=True)
class Kind:
    """A kind of Jobs: how many, of so many pods, for so many seconds."""

    name: str
    count: int
    pods: tuple[int, int]
    run_s: tuple[int, int]
    least: int = 0
    priority: int | None = None
    saves: bool = False


KINDS = (
    Kind("single", 35, (1, 1), (15, 40)),
    Kind("single-saves", 35, (1, 1), (15, 40), saves=True),
    Kind("gang", 7, (3, 6), (20, 60)),
    Kind("gang-saves", 7, (3, 6), (20, 60), saves=True),
    Kind("elastic", 7, (6, 8), (50, 90), least=2),
    Kind("urgent", 30, (1, 5), (8, 15), priority=URGENT),
)


@dataclass(frozen=True)
class Arrival:
    """A Job, when it is created, and whether it saves what it has done."""

    at_s: float
    work: Work
    saves: bool


@dataclass(frozen=True)
class Outcome:
    """One run of one contender.

    Attributes
    ----------
    lost_node_s
        Of pods that had a node and did not succeed.
    ended_pods
        How many these are.
    urgent_s, other_s
        Waits until all pods that a Job asks for (or, of an elastic one, the first) have a node.
    used
        Node-seconds of pods that succeeded, in proportion to those of the nodes until the last Job ended.
    """

    contender: str
    jobs: int
    lost_node_s: float
    ended_pods: int
    urgent_s: Sequence[float]
    other_s: Sequence[float]
    used: float
    makespan_s: float


class LostPods:
    """Node-seconds of pods, by whether they succeeded. All times are monotonic seconds."""

    def __init__(self, pods: ObjectCache[Pod]) -> None:
        self.lost: dict[str, float] = {}
        self.done: dict[str, float] = {}
        self.saved: dict[str, float] = {}
        """When Jobs saved what their pods have done."""
        self._bound: dict[str, float] = {}
        pods.add_handler(self._note)

    def _note(self, change: Change[Pod]) -> None:
        now, pod = time.monotonic(), change.obj
        uid = pod.metadata.uid
        if not pod.spec.node_name or uid in self.lost or uid in self.done:
            return
        since = self._bound.setdefault(uid, now)
        if pod.status.phase == "Succeeded":
            self.done[uid] = now - since
        elif change.new is None or pod.terminal:
            owner = pod.metadata.controller
            saved = self.saved.get(owner.name, since) if owner is not None else since
            self.lost[uid] = now - max(since, saved)


def arrivals(seed: int, scale: float = 1.0, stated: float = _STATED) -> list[Arrival]:
    """Return the Jobs in the order of their creation; a scale below 1 is a short form."""
    draw = random.Random(seed)
    found = []
    for kind in KINDS:
        for number in range(max(1, round(kind.count * scale))):
            run_s = draw.randint(*kind.run_s)
            work = Work(
                f"{kind.name}-{number}",
                cpu=str(NODE_CPU),
                memory=None,
                pods=draw.randint(*kind.pods),
                run_s=str(run_s),
                duration_s=math.ceil(run_s * stated),
                queue=SITE.queues[0].name,
                priority=kind.priority,
                least=kind.least,
            )
            found.append(Arrival(draw.uniform(0, ARRIVE_S * scale), work, kind.saves))
    return sorted(found, key=lambda each: each.at_s)


async def perform(stage: Stage, planned: Sequence[Arrival]) -> Outcome:
    """Create the Jobs at their times, and wait until all have ended."""
    lost = LostPods(stage.pods)
    saving = asyncio.create_task(_save(stage, lost, [each.work for each in planned if each.saves]))
    began = time.monotonic()
    created: dict[str, float] = {}
    for each in planned:
        await asyncio.sleep(max(0.0, began + each.at_s - time.monotonic()))
        created[each.work.name] = await stage.create(each.work)
    times = stage.times
    async with asyncio.timeout(_TIMEOUT_S):
        for each in planned:
            await times.until_ended([each.work.name], each.work.pods)
    saving.cancel()
    ended = max(times.ended[each.work.name][-1] for each in planned)
    waits: dict[bool, list[float]] = {True: [], False: []}
    for each in planned:
        first = times.bound[each.work.name][(1 if each.work.least else each.work.pods) - 1]
        waits[each.work.priority is not None].append(first - created[each.work.name])
    return Outcome(
        stage.contender.name,
        len(planned),
        sum(lost.lost.values()),
        len(lost.lost),
        waits[True],
        waits[False],
        sum(lost.done.values()) / (stage.site.nodes * (ended - began)),
        ended - began,
    )


async def _save(stage: Stage, lost: LostPods, works: Sequence[Work]) -> None:
    """Have all that runs save what it has done, again and again."""
    while True:
        await asyncio.sleep(_SAVE_S)
        for work in works:
            if work.name in stage.times.bound and len(stage.times.ended.get(work.name, ())) < work.pods:
                at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                body = {"metadata": {"annotations": {names.CHECKPOINTED_ANNOTATION: at}}}
                await stage.api.patch(JOBS, work.name, body, namespace=stage.contender.namespace)
                lost.saved[work.name] = time.monotonic()


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the table of `docs/preemption.md`."""
    lines = [
        "| | lost node-seconds | pods ended | urgent waits p50 | p99 | others p50 | in use | all after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        urgent = quantiles(each.urgent_s)
        lines.append(
            f"| {each.contender} | {each.lost_node_s:.0f} | {each.ended_pods} | {urgent[50]:.1f} s "
            f"| {urgent[99]:.1f} s | {statistics.median(each.other_s):.1f} s | {each.used:.0%} "
            f"| {each.makespan_s:.0f} s |"
        )
    return "\n".join(lines)


async def measure(contender: str, planned: Sequence[Arrival]) -> Outcome:
    """Run the Jobs on a cluster of their own."""
    async with staged(make_contender(contender, SITE), SITE) as stage:
        return await perform(stage, planned)


def main() -> int:
    """Run the contenders in turn and print the table."""
    parser = argparse.ArgumentParser(prog="cluster.lost_work", description=__doc__)
    parser.add_argument("--contender", nargs="+", choices=CONTENDERS, default=["fluxqueue", "kueue"])
    parser.add_argument("--seed", nargs="+", type=int, default=[1], help="one run for each (default: 1)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of Jobs and time (default: 1)")
    parser.add_argument("--stated", type=float, default=_STATED, help="stated durations (default: 1.5 times)")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    outcomes = []
    for seed in arguments.seed:
        planned = arrivals(seed, arguments.scale, arguments.stated)
        for contender in arguments.contender:
            outcomes.append(asyncio.run(measure(contender, planned)))
            print(f"seed {seed}\n{markdown(outcomes[-1:])}", file=sys.stderr, flush=True)
    print(markdown(outcomes))
    for each in outcomes:
        print(f"{each.contender:11}{'█' * round(each.lost_node_s / 50)} {each.lost_node_s:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
