"""Domains that jobs span, on one trace and one cluster, by four ways to choose nodes.

Each job asks for whole nodes, one pod on each, and starts strictly in order of submission when enough nodes
are free. So all ways start every job at the same time, and differ only in which nodes it gets. The ways are:

- ours: the matcher of fluxqueue, with ``preferred-topology: rack``;
- Kueue's BestFit, its default for ``podset-preferred-topology``, and its LeastFreeCapacity, for
  ``podset-unconstrained-topology``: transcribed from ``pkg/cache/scheduler/tas_flavor_snapshot.go`` of
  v0.19.2 (findLevelWithFitDomains, updateCountsToMinimumGeneric);
- plain Kubernetes: each pod on a random node of those with the most free, as NodeResourcesFit with
  LeastAllocated scores empty nodes.

Usage: ``python benchmarks/topology_domains.py [--jobs N] [--seeds N] [--json FILE]``. Figures do not depend
on the machine, except the time of a match.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from pathlib import Path

from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, JobMatchRequest, Level, MatchVerdict, Pool
from fluxqueue.queue.simulator.lublin import lublin_trace
from fluxqueue.queue.simulator.traces import TraceJob

ZONES, BLOCKS, RACKS, NODES = 2, 4, 4, 8
"""Blocks of a zone, racks of a block, nodes of a rack: 256 nodes in 32 racks."""

Place = tuple[int, int, int]
"""Zone, block and rack of a node, each with a number of its own."""
Choose = Callable[[Sequence[int], int], list[int]]


def cluster() -> list[Place]:
    """Return the place of each node."""
    count = ZONES * BLOCKS * RACKS * NODES
    return [
        (node // (BLOCKS * RACKS * NODES), node // (RACKS * NODES), node // NODES) for node in range(count)
    ]


PLACES = cluster()


def by_level(nodes: Sequence[int], level: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for node in nodes:
        found.setdefault(PLACES[node][level], []).append(node)
    return found


def kueue_fill(domains: dict[int, list[int]], wanted: int, *, best_fit: bool) -> list[int]:
    """Take domains until the count is reached; return the domains in order (updateCountsToMinimumGeneric)."""
    order = sorted(
        domains, key=lambda number: ((-len(domains[number]) if best_fit else len(domains[number])), number)
    )
    taken: list[int] = []
    for position, number in enumerate(order):
        if best_fit and len(domains[number]) >= wanted:
            number = min(
                (each for each in order[position:] if len(domains[each]) >= wanted),
                key=lambda each: (len(domains[each]), each),
            )
        taken.append(number)
        wanted -= len(domains[number])
        if wanted <= 0:
            break
    return taken


def kueue_best_fit(free: Sequence[int], wanted: int) -> list[int]:
    """Start at racks, go up while no single domain fits, then go down again over the children of all chosen
    domains together.
    """
    for level in (2, 1, 0):
        domains = by_level(free, level)
        fits = [number for number in domains if len(domains[number]) >= wanted]
        if fits or level == 0:
            break
    if fits:
        chosen = [min(fits, key=lambda number: (len(domains[number]), number))]
    else:
        chosen = kueue_fill(domains, wanted, best_fit=True)
    nodes = [node for number in chosen for node in domains[number]]
    for below in range(level + 1, 3):
        domains = by_level(nodes, below)
        nodes = [node for number in kueue_fill(domains, wanted, best_fit=True) for node in domains[number]]
    return nodes[:wanted]


def kueue_least_free(free: Sequence[int], wanted: int) -> list[int]:
    """Unconstrained: the lowest level counts, and the domains with the least free capacity come first."""
    nodes = list(free)
    domains = by_level(nodes, 2)
    fits = [number for number in domains if len(domains[number]) >= wanted]
    if fits:
        return domains[min(fits, key=lambda number: (len(domains[number]), number))][:wanted]
    return [node for number in kueue_fill(domains, wanted, best_fit=False) for node in domains[number]][
        :wanted
    ]


class Spread:
    """Plain Kubernetes: all free nodes score alike, so each pod gets a random one."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, free: Sequence[int], wanted: int) -> list[int]:
        return self._random.sample(list(free), wanted)


class Ours:
    """The matcher, with a graph that mirrors the free nodes."""

    def __init__(self) -> None:
        self._engine = Engine()
        specs = [
            GraphNodeSpec(
                f"n{node}",
                (Pool("cpu", 1, 1),),
                (Level("zone", f"z{zone}"), Level("block", f"b{block}"), Level("rack", f"r{rack}")),
            )
            for node, (zone, block, rack) in enumerate(PLACES)
        ]
        self._engine.init("lonode", nodes=specs, call=CallContext(now=1))
        self._jobs: dict[tuple[int, ...], int] = {}
        self.cpu_s = 0.0
        self.matches = 0

    def __call__(self, free: Sequence[int], wanted: int) -> list[int]:
        slot = {"type": "slot", "count": wanted, "label": "pod", "with": [{"type": "cpu", "count": 1}]}
        spec = {
            "version": 1,
            "resources": [{"type": "rack", "count": 1, "label": "preferred", "with": [slot]}],
            "tasks": [{"command": ["x"], "slot": "pod", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 60}},
        }
        began = time.process_time()
        result = self._engine.match_batch([JobMatchRequest(json.dumps(spec))], CallContext(now=1)).results[0]
        self.cpu_s += time.process_time() - began
        self.matches += 1
        assert result.verdict is MatchVerdict.GRANTED
        nodes = [int(share.node[1:]) for share in result.shares]
        self._jobs[tuple(sorted(nodes))] = result.jobid
        return nodes

    def free(self, nodes: Sequence[int]) -> None:
        self._engine.apply([CancelJobs([self._jobs.pop(tuple(sorted(nodes)))])], CallContext(now=1))


def run(jobs: Sequence[TraceJob], choose: Choose) -> list[tuple[TraceJob, list[int], int]]:
    """Run a trace; return the nodes of each job, and the racks with enough free nodes for all of it when it
    started.
    """
    free, now = set(range(len(PLACES))), 0
    ends: list[tuple[int, int, list[int]]] = []
    placed: list[tuple[TraceJob, list[int], int]] = []
    for number, job in enumerate(jobs):
        now = max(now, job.submit_s)
        while ends and (ends[0][0] <= now or len(free) < job.nodes):
            now = max(now, ends[0][0])
            nodes = heappop(ends)[2]
            free.update(nodes)
            if isinstance(choose, Ours):
                choose.free(nodes)
        ordered = sorted(free)
        nodes = choose(ordered, job.nodes)
        assert len(set(nodes)) == job.nodes
        assert free.issuperset(nodes)
        fits = sum(len(members) >= job.nodes for members in by_level(ordered, 2).values())
        placed.append((job, nodes, fits))
        free.difference_update(nodes)
        heappush(ends, (now + job.runtime_s, number, nodes))
    return placed


def figures(placed: Sequence[tuple[TraceJob, list[int], int]]) -> dict[str, float]:
    """Return what the jobs of more than one node span."""
    several = [(job, nodes) for job, nodes, _ in placed if job.nodes > 1]
    racks_of = [
        (len({PLACES[node][2] for node in nodes}), fits) for job, nodes, fits in placed if job.nodes > 1
    ]
    racks = [len({PLACES[node][2] for node in nodes}) for _, nodes in several]
    blocks = [len({PLACES[node][1] for node in nodes}) for _, nodes in several]
    least = [-(-job.nodes // NODES) for job, _ in several]
    weights = [job.nodes * job.runtime_s for job, _ in several]
    one_fits = [count == 1 for count, fits in racks_of if fits]
    return {
        "racks of a job": statistics.mean(racks),
        "racks above the least possible": statistics.mean(
            count - bound for count, bound in zip(racks, least, strict=True)
        ),
        "racks, by node-seconds": sum(count * weight for count, weight in zip(racks, weights, strict=True))
        / sum(weights),
        "blocks of a job": statistics.mean(blocks),
        "in one rack where one had room": statistics.mean(one_fits),
        "jobs for which one rack had room": statistics.mean(fits > 0 for _, fits in racks_of),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Domains that jobs span.")
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {}
    cpu_s, matches = 0.0, 0
    for seed in range(1, arguments.seeds + 1):
        jobs = lublin_trace(arguments.jobs, len(PLACES), seed).scaled(arguments.load).jobs
        ours = Ours()
        ways: dict[str, Choose] = {
            "fluxqueue": ours,
            "Kueue BestFit": kueue_best_fit,
            "Kueue LeastFreeCapacity": kueue_least_free,
            "plain Kubernetes": Spread(seed),
        }
        for name, choose in ways.items():
            results.setdefault(name, []).append(figures(run(jobs, choose)))
        cpu_s, matches = cpu_s + ours.cpu_s, matches + ours.matches
    table = {
        name: {key: statistics.mean(each[key] for each in runs) for key in runs[0]}
        for name, runs in results.items()
    }
    for name, values in table.items():
        print(f"{name:26}", *(f"{key}: {value:.3f}" for key, value in values.items()), sep="  ")
    print(f"one match of ours: {cpu_s * 1_000 / matches:.2f} ms of CPU, {len(PLACES)} nodes")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(
            json.dumps({"ways": table, "match_cpu_ms": cpu_s * 1_000 / matches}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
