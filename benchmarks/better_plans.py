"""Measures what the rules of `spec.planning` and the policy hybrid come to: slowdown and utilisation against
plain EASY, in the simulator.

The traces are those of Lublin and Feitelson with seeds 1 to 6, and two that are like those of the archive:
people submit the same program several times in a row, and state durations by the f-model (Feitelson and
Mu'alem Weil 2001: uniform between once and f times the run time), rounded up to what people write. All of
them are made here, so the same version gives the same figures.

    nice -n 19 .venv/bin/python benchmarks/better_plans.py --out benchmarks/results/better-plans.json
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson

from fluxqueue.api.fluxqueues import BackfillDurations, Planning, Policy, ReservedNodes
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.simulator.lublin import lublin_trace
from fluxqueue.queue.simulator.metrics import summarise
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.traces import Trace, TraceJob, numbered

_LAST = Planning(reserved_nodes=ReservedNodes.FREE_LAST)
_PREDICTED = Planning(backfill_durations=BackfillDurations.PREDICTED)
_BOTH = Planning(reserved_nodes=ReservedNodes.FREE_LAST, backfill_durations=BackfillDurations.PREDICTED)
PLANS = {
    "easy": Discipline(Policy.EASY),
    "hybrid:4": Discipline(Policy.HYBRID, 4),
    "hybrid:16": Discipline(Policy.HYBRID, 16),
    "easy, freeLast": Discipline(Policy.EASY, planning=_LAST),
    "easy, predicted": Discipline(Policy.EASY, planning=_PREDICTED),
    "easy, both": Discipline(Policy.EASY, planning=_BOTH),
}
_WRITTEN_S = (300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 86_400, 172_800, 345_600)
_NODES = 64
_F = 10.0
_ARCHIVE_LIKE = 12
_ALL_PLANS = 2
"""Archive-like traces on which every plan is measured; on the others only EASY, and with predictions."""


def archive_like(jobs: int, users: int, seed: int) -> Trace:
    """Return a trace of people who repeat their programs:
    each job of the model runs one to eight times, a little different each time.
    """
    random = np.random.default_rng([seed, 7])
    model = lublin_trace(jobs, _NODES, seed).scaled(1.0)
    made: list[TraceJob] = []
    activity = random.zipf(1.6, users).clip(max=50).astype(np.float64)
    free_at = np.zeros(users)
    for job in model.jobs:
        user = int(random.choice(users, p=activity / activity.sum()))
        at = max(float(job.submit_s), free_at[user])
        for _ in range(min(8, int(random.zipf(2.0)))):
            runtime = max(1, round(job.runtime_s * float(random.lognormal(0.0, 0.15))))
            made.append(
                TraceJob(1, round(at), job.nodes, runtime, _stated(runtime, random), user=f"user{user}")
            )
            at += float(random.exponential(min(job.runtime_s, 3_600)))
        free_at[user] = at
    made.sort(key=lambda each: each.submit_s)
    return Trace(f"archive-like {seed}", _NODES, numbered(made[:jobs]))


def _stated(runtime: int, random: np.random.Generator) -> int:
    """Return the duration that people state: by the f-model, rounded up to what they write."""
    wanted = runtime * float(random.uniform(1.0, _F))
    return max(runtime, next((each for each in _WRITTEN_S if each >= wanted), round(wanted)))


def traces(jobs: int, load: float) -> Iterator[tuple[str, Trace]]:
    """Yield the traces with their names."""
    for seed in range(1, 7):
        trace = lublin_trace(jobs, _NODES, seed).scaled(load).overestimated(1.0, _F, seed)
        yield (
            f"lublin {seed}",
            replace(trace, jobs=tuple(replace(job, user=f"user{job.number % 20}") for job in trace.jobs)),
        )
    for seed in range(1, 1 + _ARCHIVE_LIKE):
        yield f"archive-like {seed}", archive_like(jobs, 30, seed).scaled(load)


def measure(trace: Trace, discipline: Discipline) -> dict[str, float | int | None]:
    """Run one trace under one plan."""
    simulation = Simulation(trace, discipline)
    began = time.perf_counter()
    ran = asyncio.run(simulation.run())
    summary = summarise(ran, trace.nodes, cycles=simulation.cycles, seconds=time.perf_counter() - began)
    return {
        "slowdown": round(summary.mean_bounded_slowdown, 2),
        "utilisation": round(summary.utilisation, 4),
        "mean_wait_s": round(summary.mean_wait_s),
        "promised": summary.promised,
        "late": summary.reserved_late,
        "seconds": round(summary.seconds, 1),
    }


def main() -> int:
    """Measure, and write the figures; what the file has already is not measured again."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/better-plans.json"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = orjson.loads(options.out.read_bytes()) if options.out.exists() else {}
    found.setdefault("jobs", options.jobs)
    found.setdefault("load", options.load)
    results = found.setdefault("results", {})
    for name, trace in traces(found["jobs"], found["load"]):
        kind, _, seed = name.partition(" ")
        few = kind == "archive-like" and int(seed) > _ALL_PLANS
        for plan, discipline in PLANS.items():
            if plan in results.setdefault(name, {}) or (few and plan not in ("easy", "easy, predicted")):
                continue
            figures = results[name][plan] = measure(trace, discipline)
            options.out.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
            sys.stdout.write(f"{name:<16} {plan:<16} {figures}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
