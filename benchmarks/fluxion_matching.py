"""Matches per second of the Fluxion engine in process, next to measurements of flux-sched.

Graphs and jobs are those of the reference measurements: flat (cluster, nodes, 32 cores and 4 memory vertices
each), racks of 40 nodes, flatgpu (8 gpus on every fourth node); c1 = one core on one node, n4c8 = 8 cores on
each of 4 nodes, x64 = 64 whole nodes, c1g1 = a core and a gpu. The queue's own shape, slots on any nodes of
fine-grained pools, comes last, with figures for growth.
Times are CPU seconds of this process. Writes benchmarks/results/fluxion_matching.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.compat.requests import MatchRequestKind
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.errors import MatchError
from fluxqueue.fluxion.messages import (
    CallContext,
    GraphNodeSpec,
    JobMatchRequest,
    MatchResult,
    MatchVerdict,
    Pool,
)

RESULTS = Path(__file__).parent / "results" / "fluxion_matching.json"
ALLOCATE, RESERVE = MatchRequestKind.ALLOCATE, MatchRequestKind.ALLOCATE_ORELSE_RESERVE

# Matches per second of flux-sched on an empty graph, and the goal; (graph, nodes, policy, job).
ORIGINAL: dict[tuple[str, int, str, str], tuple[float, float]] = {
    ("flat", 1000, "lonode", "c1"): (19.9, 5000),
    ("flat", 1000, "lonode", "n4c8"): (26.8, 2500),
    ("flat", 1000, "lonode", "x64"): (9.8, 200),
    ("flat", 10000, "lonode", "c1"): (1.7, 2000),
    ("flat", 10000, "lonode", "n4c8"): (1.7, 1000),
    ("flat", 10000, "lonode", "x64"): (1.4, 100),
    ("flat", 1000, "first", "c1"): (3256, 5000),
    ("flat", 10000, "first", "c1"): (352, 2000),
    ("racks", 1000, "lonode", "c1"): (15.5, 3000),
    ("flatgpu", 1000, "lonode", "c1g1"): (52.2, 2000),
}
LOADED: dict[int, tuple[float, float]] = {1000: (1.0, 268), 10000: (11.1, 2252)}


def jgf(kind: str, count: int) -> str:
    """A cluster as compact JGF."""
    vertices: list[str] = []
    edges: list[str] = []

    def add(type_: str, number: int, parent: tuple[int, str] | None) -> tuple[int, str]:
        path = f"{parent[1] if parent else ''}/{type_}{number}"
        ident = len(vertices)
        vertices.append(
            f'{{"id":"{ident}","metadata":{{"type":"{type_}","id":{number},"paths":{{"containment":"'
            f'{path}"}}}}}}'
        )
        if parent:
            edges.append(f'{{"source":"{parent[0]}","target":"{ident}"}}')
        return ident, path

    root = parent = add("cluster", 0, None)
    for number in range(count):
        if kind == "racks" and number % 40 == 0:
            parent = add("rack", number // 40, root)
        node = add("node", number, parent)
        leaves = [("core", 32), ("memory", 4)]
        if kind == "flatgpu" and number % 4 == 0:
            leaves.append(("gpu", 8))
        for type_, how_many in leaves:
            for index in range(how_many):
                add(type_, index, node)
    return f'{{"graph":{{"nodes":[{",".join(vertices)}],"edges":[{",".join(edges)}]}}}}'


def jobspec(*levels: dict[str, Any], duration: int = 3600) -> str:
    task = {"command": ["app"], "slot": "s", "count": {"per_slot": 1}}
    return json.dumps(
        {
            "version": 9999,
            "resources": list(levels),
            "tasks": [task],
            "attributes": {"system": {"duration": duration}},
        }
    )


def slot(count: int, **needs: int) -> dict[str, Any]:
    return {
        "type": "slot",
        "count": count,
        "label": "s",
        "with": [{"type": kind, "count": amount} for kind, amount in needs.items()],
    }


def nodes(count: int, *inside: dict[str, Any], exclusive: bool = False) -> dict[str, Any]:
    return (
        {"type": "node", "count": count, "with": list(inside)}
        if inside
        else {"type": "node", "count": count, "exclusive": exclusive}
    )


JOBS = {
    "c1": jobspec(nodes(1, slot(1, core=1))),
    "n4c8": jobspec(nodes(4, slot(1, core=8))),
    "x64": jobspec(nodes(64, exclusive=True)),
    "c1g1": jobspec(nodes(1, slot(1, core=1, gpu=1))),
}


def rate(work: Callable[[], Any], *, seconds: float = 1.0, most: int = 4_000) -> float:
    """Return calls per CPU second.
    It stops after the time or the number of calls, or when the work returns False.
    """
    began, calls = time.process_time(), 0
    while calls < most and time.process_time() - began < seconds:
        if work() is False:
            break
        calls += 1
    return calls / max(1e-9, time.process_time() - began)


def resident_mb() -> int:
    """Return the resident memory of this process.
    With the first graph of a process that is the graph and the interpreter.
    """
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // 2**20


def measure_shapes(size: int) -> Iterator[dict[str, Any]]:
    for kind, policy, jobs in (
        ("flat", "lonode", ("c1", "n4c8", "x64")),
        ("flat", "first", ("c1", "n4c8", "x64")),
        ("racks", "lonode", ("c1",)),
        ("flatgpu", "lonode", ("c1g1",)),
    ):
        if kind != "flat" and size > 1_000:
            continue
        text = jgf(kind, size)
        engine = Engine()
        began = time.process_time()
        engine.init(policy, jgf=text)
        load_s = time.process_time() - began
        del text
        after_mb = resident_mb()
        for job in jobs:
            made: list[int] = []

            def match(job: str = job, made: list[int] = made, engine: Engine = engine) -> bool:
                try:
                    made.append(engine.match(JOBS[job], ALLOCATE).jobid)
                except MatchError:
                    return False
                return True

            found = rate(match)
            original, goal = ORIGINAL.get((kind, size, policy, job), (None, None))
            yield {
                "graph": kind,
                "nodes": size,
                "policy": policy,
                "job": job,
                "per_s": found,
                "original": original,
                "goal": goal,
            }
            for jobid in made:
                engine.cancel(jobid)
        original_s, original_mb = LOADED.get(size, (None, None)) if kind == "flat" else (None, None)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        yield {
            "graph": kind,
            "nodes": size,
            "policy": policy,
            "load_s": load_s,
            "original_s": original_s,
            "peak_mb": peak_mb,
            "after_mb": after_mb,
            "original_mb": original_mb,
        }


def measure_full(size: int) -> Iterator[dict[str, Any]]:
    """Measure a failing allocate and a reservation in a cluster full of whole-node jobs."""
    engine = Engine()
    engine.init("lonode", jgf=jgf("flat", size))
    for _ in range(10):
        engine.match(jobspec(nodes(size // 10, exclusive=True)), ALLOCATE)

    def fail() -> None:
        try:
            engine.match(JOBS["c1"], ALLOCATE)
        except MatchError:
            return

    yield {
        "graph": "flat, full",
        "nodes": size,
        "what": "failing allocate, ms",
        "value": 1e3 / rate(fail),
        "original": 22.6 if size == 10_000 else 2.9,
    }
    reserve = rate(lambda: engine.match(JOBS["c1"], RESERVE), most=200)
    yield {
        "graph": "flat, full",
        "nodes": size,
        "what": "reservations/s",
        "value": reserve,
        "original": 1.1 if size == 10_000 else 10.9,
    }


def measure_queue(size: int) -> Iterator[dict[str, Any]]:
    """Measure the queue's shape on fine-grained nodes:
    64 cpus of 1000 in pieces of 10, 256 GiB in pieces of 32 MiB, 110 pods.
    """
    specs = [
        GraphNodeSpec(
            f"n{number}",
            (Pool("cpu", 63_910, 10), Pool("memory", 262_000, 32), Pool("pods", 110)),
            properties={f"zone{number % 3}": ""},
        )
        for number in range(size)
    ]
    engine = Engine()
    began = time.process_time()
    engine.init("lonode", nodes=specs, call=CallContext(now=0))
    vertices = engine.stat().vertices
    yield {
        "graph": "pools",
        "nodes": size,
        "what": "load, s",
        "value": time.process_time() - began,
        "vertices": vertices,
    }
    clock = iter(range(1, 1 << 40))
    for what, level in (
        ("slot[1]: 1 cpu, 2 GiB, matches/s", slot(1, cpu=1_000, memory=2_048, pods=1)),
        ("slot[64]: 4 cpus, matches/s", slot(64, cpu=4_000, memory=4_096, pods=1)),
        ("node[16] -> slot[1]: 8 cpus, matches/s", nodes(16, slot(1, cpu=8_000, pods=1))),
    ):
        text = jobspec(level)
        granted: list[int] = []

        def match(text: str = text, granted: list[int] = granted) -> bool:
            requests = [JobMatchRequest(text, next(clock)) for _ in range(20)]
            results: list[MatchResult] = []
            while len(results) < len(requests):
                results += engine.match_batch(requests[len(results) :], CallContext(now=1_000)).results
            granted.extend(result.jobid for result in results if result.verdict is MatchVerdict.GRANTED)
            return results[-1].verdict is MatchVerdict.GRANTED

        yield {"graph": "pools", "nodes": size, "what": what, "value": 20 * rate(match, most=50)}
        engine.apply([CancelJobs(granted)], CallContext(now=1_000))


def measure_growth() -> Iterator[dict[str, Any]]:
    """Measure c1 while the cluster fills to 100,000 live jobs, and reservations behind a full cluster."""
    engine = Engine()
    engine.init("lonode", jgf=jgf("flat", 5_000))
    for live in (1_000, 10_000, 50_000, 100_000):
        have = len(engine.list_jobs())
        for _ in range(live - have):
            engine.match(JOBS["c1"], ALLOCATE)
        yield {
            "graph": "flat",
            "nodes": 5_000,
            "what": f"c1 matches/s with {live} live jobs",
            "value": rate(lambda: engine.match(JOBS["c1"], ALLOCATE), most=500),
        }
    full = Engine()
    full.init("lonode", jgf=jgf("flat", 1_000))
    for number in range(100):
        full.match(jobspec(nodes(10, exclusive=True), duration=600 + 60 * number), ALLOCATE)
    for reserved in (100, 500, 1_000):
        while full.stat().reserved_jobs < reserved:
            full.match(JOBS["n4c8"], RESERVE)
        value = rate(lambda: full.match(JOBS["n4c8"], RESERVE), most=50)
        yield {
            "graph": "flat, full",
            "nodes": 1_000,
            "what": f"n4c8 reservations/s behind {reserved}",
            "value": value,
        }


def show(row: dict[str, Any]) -> None:
    where = f"{row['graph']} {row['nodes']}" + (f" {row['policy']}" if "policy" in row else "")
    if "per_s" in row:
        beside = f"   original {row['original']:g}, goal {row['goal']:g}" if row["original"] else ""
        mark = "" if row["goal"] is None or row["per_s"] >= row["goal"] else "   BELOW GOAL"
        print(f"{where:28} {row['job']:5} {row['per_s']:9.0f}/s{beside}{mark}")
    elif "load_s" in row:
        beside = (
            f"   original {row['original_s']:g} s, {row['original_mb']:g} MB" if row["original_s"] else ""
        )
        print(
            f"{where:28} load  {row['load_s']:9.2f} s, peak {row['peak_mb']} MB, "
            f"{row['after_mb']} MB after{beside}"
        )
    else:
        beside = f"   original {row['original']:g}" if row.get("original") else ""
        print(f"{where:28} {row['what']}: {row['value']:.3g}{beside}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--quick", action="store_true", help="leave the growth figures out")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for size in arguments.nodes:
        for row in (*measure_shapes(size), *measure_full(size), *measure_queue(size)):
            rows.append(row)
            show(row)
    if not arguments.quick:
        for row in measure_growth():
            rows.append(row)
            show(row)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS}")


if __name__ == "__main__":
    main()
