"""Jobs per second that the Fluxion service matches over gRPC.

The real program runs in a process of its own, with one client on the loopback address. There are two graphs
of 1,000 nodes under policy lonode, empty at the start of each round. `flat` is the graph of flux-sched's
figures (32 cores and 4 memory vertices a node, as JGF) with the job c1 (node[1]->slot[1]->core[1]). `queue`
is the graph that the queue sends (nodes in pools of 100 millicores and 256 MiB, a slot of cpu, memory and a
pod slot). A round matches 60 batches of 100 under ids of the caller, then cancels all. For comparison there
are the same batches in this process without gRPC, and one Match per call, which is the only way in the Go
service. flux-sched's own figure (in process, one match at a time) was measured on a machine of the same kind.

    python benchmarks/fluxion_grpc.py [--rounds 3] [--output benchmarks/results/fluxion_grpc.json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.graph.files import write_jgf
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, JobMatchRequest, MatchVerdict, Pool
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.fluxion.rpc.interface import Fluxion

RESULTS = Path(__file__).parent / "results"
GOAL_PER_S = 3_000
ORIGINAL_PER_S = 19.9
NODES = 1_000
BATCH = 100
BATCHES = 60
SINGLES = 500
CALL = CallContext(now=1_700_000_000, epoch=1)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Shape:
    """A graph and the job that is matched on it."""

    name: str
    nodes: tuple[GraphNodeSpec, ...]
    jobspec: str
    as_jgf: bool


def jobspec(resources: dict[str, Any]) -> str:
    return json.dumps(
        {
            "version": 1,
            "resources": [resources],
            "tasks": [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 3_600}},
        }
    )


def slot(**amounts: int) -> dict[str, Any]:
    return {
        "type": "slot",
        "count": 1,
        "label": "task",
        "with": [{"type": kind, "count": count} for kind, count in amounts.items()],
    }


SHAPES = (
    Shape(
        "flat, c1",
        tuple(
            GraphNodeSpec(f"node{number}", (Pool("core", 32), Pool("memory", 4))) for number in range(NODES)
        ),
        jobspec({"type": "node", "count": 1, "with": [slot(core=1)]}),
        as_jgf=True,
    ),
    Shape(
        "queue, one pod",
        tuple(
            GraphNodeSpec(
                f"node{number}", (Pool("cpu", 32_000, 10), Pool("memory", 131_072, 32), Pool("pods", 110))
            )
            for number in range(NODES)
        ),
        jobspec(slot(cpu=1_000, memory=2_048, pods=1)),
        as_jgf=False,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Jobs a second that the Fluxion service matches over gRPC.")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of each measurement (default: %(default)s)"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "fluxion_grpc.json", help="JSON file (default: %(default)s)"
    )
    arguments = parser.parse_args()
    results = uvloop.run(measure(arguments.rounds))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    print(f"MatchBatch of {BATCH}, {NODES} nodes, lonode; jobs a second, median of {arguments.rounds} rounds")
    print(
        f"{'':<18}{'over gRPC':>11}{'p50 ms':>9}{'p99 ms':>9}{'in process':>12}{'one a call':>12}"
        f"{'server us/job':>15}{'Init s':>8}"
    )
    for row in results["shapes"]:
        print(
            f"{row['shape']:<18}{row['grpc_per_s']:>11.0f}{row['batch_p50_ms']:>9.1f}"
            f"{row['batch_p99_ms']:>9.1f}"
            f"{row['in_process_per_s']:>12.0f}{row['single_per_s']:>12.0f}"
            f"{row['server_cpu_us_per_job']:>15.0f}{row['init_s']:>8.2f}"
        )
    print(f"goal: {GOAL_PER_S} (flat, c1, over gRPC); the original, in process: {ORIGINAL_PER_S}")
    return 0 if results["goal_met"] else 1


async def measure(rounds: int) -> dict[str, Any]:
    with service() as (target, pid):
        async with AsyncFluxionClient(target) as client:
            shapes = [await measure_shape(shape, client, pid, rounds) for shape in SHAPES]
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "platform": platform.platform(),
            "python": platform.python_version(),
        },
        "nodes": NODES,
        "batch": BATCH,
        "rounds": rounds,
        "shapes": shapes,
        "goal_per_s": GOAL_PER_S,
        "goal_met": shapes[0]["grpc_per_s"] >= GOAL_PER_S,
        "original_in_process_per_s": ORIGINAL_PER_S,
    }


async def measure_shape(shape: Shape, client: AsyncFluxionClient, pid: int, rounds: int) -> dict[str, Any]:
    started = time.perf_counter()
    await load(client, shape)
    init_s = time.perf_counter() - started
    local = LocalFluxion()
    await load(local, shape)
    rates: list[float] = []
    local_rates: list[float] = []
    latencies: list[float] = []
    cpu_s = 0.0
    await one_round(client, shape, [])  # warm up
    for _ in range(rounds):
        before = cpu_of(pid)
        rates.append(await one_round(client, shape, latencies))
        cpu_s += cpu_of(pid) - before
        local_rates.append(await one_round(local, shape, []))
    return {
        "shape": shape.name,
        "grpc_per_s": statistics.median(rates),
        "grpc_per_s_rounds": [round(rate) for rate in rates],
        "batch_p50_ms": 1_000 * statistics.median(latencies),
        "batch_p99_ms": 1_000 * statistics.quantiles(latencies, n=100)[98],
        "in_process_per_s": statistics.median(local_rates),
        "single_per_s": await one_a_call(client, shape),
        "server_cpu_us_per_job": 1e6 * cpu_s / (rounds * BATCHES * BATCH),
        "init_s": init_s,
    }


async def load(fluxion: Fluxion, shape: Shape) -> None:
    if shape.as_jgf:
        await fluxion.init("lonode", jgf=write_jgf(shape.nodes), call=CALL)
    else:
        await fluxion.init("lonode", nodes=shape.nodes, call=CALL)


async def one_round(fluxion: Fluxion, shape: Shape, latencies: list[float]) -> float:
    """Return the jobs per second of one round, and leave the graph empty."""
    started = time.perf_counter()
    for number in range(BATCHES):
        first = number * BATCH + 1
        sent = time.perf_counter()
        batch = await fluxion.match_batch(
            [JobMatchRequest(shape.jobspec, jobid) for jobid in range(first, first + BATCH)], call=CALL
        )
        latencies.append(time.perf_counter() - sent)
        assert [result.verdict for result in batch.results] == [MatchVerdict.GRANTED] * BATCH
    rate = BATCHES * BATCH / (time.perf_counter() - started)
    await fluxion.apply([CancelJobs(range(1, BATCHES * BATCH + 1))], call=CALL)
    return rate


async def one_a_call(client: AsyncFluxionClient, shape: Shape) -> float:
    """Return the compatible matches per second: each is a call with R in its answer,
    on a graph without a clock.
    """
    await client.init("lonode", jgf=write_jgf(shape.nodes)) if shape.as_jgf else await client.init(
        "lonode", nodes=shape.nodes
    )
    started = time.perf_counter()
    for _ in range(SINGLES):
        await client.match(shape.jobspec)
    return SINGLES / (time.perf_counter() - started)


@contextlib.contextmanager
def service() -> Iterator[tuple[str, int]]:
    """Start the program on a free port; return its address and process id."""
    words = [sys.executable, "-m", "fluxqueue.fluxion.main", "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        yield json.loads(process.stderr.readline())["address"], process.pid
    finally:
        process.terminate()
        try:
            process.communicate(timeout=30)
        finally:
            process.kill()


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    sys.exit(main())
