"""What preemption and consolidation lose and win, in the simulator.
`make bench-lost-work` takes a live cluster too.

The mixed trace has 2,000 arrivals on 64 nodes: small jobs, gangs, elastic ones (as Indexed Jobs, Ray and
PyTorchJobs that say with how little they go on), serving with floors, and urgent work of a higher priority.
Half of the small jobs, gangs and elastic ones save every ten minutes. Serving is elastic work that runs for
hours; what it served is not lost, so its part is told apart. The policies differ only in who is preempted:

- ``none``: nobody;
- ``newest first``: a model of Kueue's rule: of lower priority the lowest first, then the newest, until the
  work fits; then none that can be left out. All end as a whole. Its quotas, and when it preempts, are not
  modelled;
- ``cheapest set``: the queue's choice, without giving nodes back;
- ``queue``: the queue as it is.

The scattered trace has small jobs on single cores and wide ones on whole nodes, with and without
consolidation.

    nice -n 19 .venv/bin/python benchmarks/lost_work.py
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fluxqueue.api.fluxqueues import Consolidation, Policy, Preemption
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.victims import (
    PreemptionCandidate,
    VictimSearch,
    choose_victims,
)
from fluxqueue.queue.simulator.metrics import summarise
from fluxqueue.queue.simulator.preemption import WholeVictims
from fluxqueue.queue.simulator.simulated_work import SimulatedJob
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.traces import Trace, TraceJob, numbered

__all__ = ["KINDS", "mixed_trace", "newest_first", "scattered_trace"]

_NODES, _URGENT = 64, 10
_SAVES_S = 600
_MINUTE_S, _HOUR_S = 60, 3_600
_EASY = Discipline(Policy.EASY)
_PREEMPTS = Discipline(Policy.EASY, preemption=Preemption.LOWER_PRIORITY)


@dataclass(frozen=True)
class Kind:
    """A kind of work: its part of the arrivals, its nodes, its minutes, the part of its nodes with which it
    goes on, its priority, and how much of it saves.
    """

    name: str
    part: float
    nodes: tuple[int, int]
    minutes: tuple[int, int]
    least: float = 1.0
    priority: int = 0
    saves: float = 0.5


KINDS = (
    Kind("small", 0.58, (1, 1), (5, 60)),
    Kind("gang", 0.17, (2, 16), (15, 90)),
    Kind("elastic", 0.10, (4, 24), (15, 60), least=0.25),
    Kind("serving", 0.01, (4, 8), (360, 720), least=0.5, saves=0),
    Kind("urgent", 0.14, (1, 8), (3, 15), priority=_URGENT, saves=0),
)


def mixed_trace(seed: int, jobs: int, load: float) -> Trace:
    """Return a trace of all kinds."""
    draw = random.Random(seed)
    made: list[TraceJob] = []
    for kind in KINDS:
        for _ in range(round(kind.part * jobs)):
            nodes = draw.randint(*kind.nodes)
            run_s = draw.randint(*kind.minutes) * _MINUTE_S
            made.append(
                TraceJob(
                    0,
                    round(draw.random() * jobs * _MINUTE_S),
                    nodes,
                    run_s,
                    round(run_s * draw.uniform(1, 2)),
                    priority=kind.priority,
                    user=kind.name,
                    least_nodes=max(round(nodes * kind.least), 1) if kind.least < 1 else 0,
                    checkpoint_s=_SAVES_S if draw.random() < kind.saves else 0,
                )
            )
    return Trace("mixed", _NODES, numbered(made)).scaled(load)


def scattered_trace(seed: int, hours: int, nodes: int = 8, cores: int = 4) -> Trace:
    """Return small jobs that run for hours on single cores, and every four hours one of three eighths of the
    nodes.
    """
    draw = random.Random(seed)
    jobs: list[TraceJob] = []
    at, rate = 0.0, 0.65 * nodes * cores / (5 * _HOUR_S)
    while at < hours * _HOUR_S:
        at += draw.expovariate(rate)
        run_s = round(draw.uniform(2, 8) * _HOUR_S)
        jobs.append(TraceJob(0, int(at), 1, run_s, run_s))
    at = 0.0
    while at < hours * _HOUR_S:
        at += draw.uniform(0.6, 1.4) * 4 * _HOUR_S
        jobs.append(TraceJob(0, int(at), 3 * nodes // 8, _HOUR_S, _HOUR_S))
    return Trace("scattered", nodes, numbered(jobs)).scattered(cores)


def newest_first(candidates: Sequence[PreemptionCandidate], priority: int | None) -> VictimSearch:
    """Search victims as Kueue chooses them in one ClusterQueue."""
    below = [each for each in candidates if priority is None or each.priority < priority]
    below.sort(key=lambda each: (each.priority, -each.start.timestamp(), -each.workload))
    chosen: list[PreemptionCandidate] = []
    for each in below:
        chosen.append(each)
        if (yield tuple(chosen)):
            break
    else:
        return ()
    for each in reversed(chosen[:-1]):
        rest = [other for other in chosen if other is not each]
        if (yield tuple(rest)):
            chosen = rest
    return tuple(chosen)


POLICIES: dict[str, tuple[Discipline, WholeVictims | None]] = {
    "none": (_EASY, None),
    "newest first": (_PREEMPTS, newest_first),
    "cheapest set": (_PREEMPTS, choose_victims),
    "queue": (_PREEMPTS, None),
}


async def mixed(seeds: Sequence[int], jobs: int, load: float) -> None:
    """Print the figures of each policy over the mixed traces of all seeds."""
    print(f"mixed: {len(seeds)} traces of {jobs} arrivals, load {load:g}, {_NODES} nodes\n")
    print(
        "| preempted | lost node-hours | of serving | evicted | nodes given back | urgent waits p50 | p99 "
        "| other waits p50 | mean | nodes in use |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    bars = []
    for name, (discipline, wholes) in POLICIES.items():
        ran: list[SimulatedJob] = []
        used, began = 0.0, time.monotonic()
        for seed in seeds:
            trace = mixed_trace(seed, jobs, load)
            its = await Simulation(trace, discipline, wholes=wholes).run()
            used += summarise(its, trace.nodes, cycles=0, seconds=0).utilisation / len(seeds)
            ran += its
        urgent = [each.wait_s for each in ran if each.job.priority]
        other = [each.wait_s for each in ran if not each.job.priority]
        served = sum(each.lost_node_s for each in ran if each.job.user == "serving") / _HOUR_S
        lost = sum(each.lost_node_s for each in ran) / _HOUR_S - served
        bars.append(f"{name:13}{'█' * round(lost / len(seeds) / 2)} {lost / len(seeds):.0f}")
        print(
            f"| {name} | {lost:.1f} | {served:.1f} "
            f"| {sum(each.preempted for each in ran)} | {sum(each.gave_back for each in ran)} "
            f"| {np.median(urgent):.0f} s | {np.quantile(urgent, 0.99):.0f} s "
            f"| {np.median(other) / _MINUTE_S:.1f} min | {np.mean(other) / _MINUTE_S:.1f} min | {used:.1%} |",
            flush=True,
        )
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print("\nlost node-hours of a trace:\n" + "\n".join(bars), flush=True)


async def consolidation(seeds: Sequence[int], hours: int) -> None:
    """Print the figures with and without consolidation over the scattered traces of all seeds."""
    print(f"\nscattered: {len(seeds)} traces of {hours} hours, 8 nodes of 4 cores\n")
    print(
        "| consolidation | wide waits p50 | p90 | small waits p50 | mean | moved | lost node-hours "
        "| cores in use |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for enabled in (False, True):
        ran: list[SimulatedJob] = []
        used = 0.0
        for seed in seeds:
            trace = scattered_trace(seed, hours)
            discipline = replace(_EASY, consolidation=Consolidation(enabled=enabled))
            its = await Simulation(trace, discipline, checkpoint_s=_SAVES_S).run()
            used += summarise(its, trace.nodes, cycles=0, seconds=0, cores=trace.cores).utilisation / len(
                seeds
            )
            ran += its
        wide = [each.wait_s / _MINUTE_S for each in ran if each.job.nodes > 1]
        small = [each.wait_s / _MINUTE_S for each in ran if each.job.nodes == 1]
        print(
            f"| {'on' if enabled else 'off'} | {np.median(wide):.1f} min | {np.quantile(wide, 0.9):.0f} min "
            f"| {np.median(small):.1f} min | {np.mean(small):.1f} min | {sum(each.moved for each in ran)} "
            f"| {sum(each.lost_node_s for each in ran) / _HOUR_S:.1f} | {used:.2%} |",
            flush=True,
        )


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--hours", type=int, default=48, help="of the scattered traces")
    parser.add_argument("--only", choices=("mixed", "scattered"))
    arguments = parser.parse_args()
    seeds = range(1, arguments.seeds + 1)
    if arguments.only != "scattered":
        asyncio.run(mixed(seeds, arguments.jobs, arguments.load))
    if arguments.only != "mixed":
        asyncio.run(consolidation(seeds, arguments.hours))


if __name__ == "__main__":
    main()
