"""CPU time of requests below levels of the topology, on an empty graph and on a full one with thousands of
jobs.

Nodes have 64 cores; 25 form a rack, 250 a block, 2,500 a zone. Slots have 16 cores. Each request is made
alone, and given back.

Usage: ``python benchmarks/topology_matching.py [--nodes N] [--rounds N]``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.messages import (
    CallContext,
    GraphNodeSpec,
    JobMatchRequest,
    Level,
    MatchResult,
    MatchVerdict,
    Pool,
)

NOW = CallContext(now=1)
RACK, BLOCK, ZONE = 25, 250, 2_500
REQUESTS: dict[str, tuple[list[tuple[str, int, str]], int]] = {
    "200 slots anywhere": ([], 200),
    "100 slots below one rack": ([("rack", 1, "group")], 100),
    "1,000 slots below one block": ([("block", 1, "group")], 1_000),
    "2,000 slots, a rack preferred": ([("rack", 1, "preferred")], 2_000),
    "200 slices of 8 below a rack each": ([("rack", 200, "group")], 8),
    "500 slices of 4 on a node each": ([("node", 500, "group")], 4),
}


def jobspec(levels: Sequence[tuple[str, int, str]], slots: int, duration_s: int = 60) -> str:
    members = [{"type": "cpu", "count": 16_000}, {"type": "pods", "count": 1}]
    inside: list[dict[str, Any]] = [{"type": "slot", "count": slots, "label": "pod", "with": members}]
    for kind, count, label in reversed(levels):
        inside = [{"type": kind, "count": count, "label": label, "with": inside}]
    tasks = [{"command": ["x"], "slot": "pod", "count": {"per_slot": 1}}]
    return json.dumps(
        {
            "version": 1,
            "resources": inside,
            "tasks": tasks,
            "attributes": {"system": {"duration": duration_s}},
        }
    )


def empty(nodes: int) -> Engine:
    """Return an engine with an empty graph."""
    made = Engine()
    pools = (Pool("cpu", 64_000, 10), Pool("pods", 110, 1))
    specs = [
        GraphNodeSpec(
            f"n{node}",
            pools,
            (
                Level("zone", f"z{node // ZONE}"),
                Level("block", f"b{node // BLOCK}"),
                Level("rack", f"r{node // RACK}"),
            ),
        )
        for node in range(nodes)
    ]
    made.init("lonode", nodes=specs, call=NOW)
    return made


def fill(made: Engine) -> int:
    """Fill the graph with jobs of 1 to 16 slots and any end within a day, then with single slots;
    return how many there are.
    """
    random_, jobs = random.Random(1), 0
    for most in (16, 1):
        while True:
            text = jobspec([], random_.randint(1, most), random_.randint(100, 86_400))
            if made.match_batch([JobMatchRequest(text)], NOW).results[0].verdict is not MatchVerdict.GRANTED:
                break
            jobs += 1
    return jobs


def timed(made: Engine, text: str, *, reserve: bool) -> tuple[float, MatchResult]:
    began = time.process_time()
    result = made.match_batch([JobMatchRequest(text, reserve=reserve)], NOW).results[0]
    spent_s = time.process_time() - began
    made.apply([CancelJobs([result.jobid])], NOW)
    return spent_s, result


def measure(made: Engine, rounds: int, *, reserve: bool) -> None:
    for name, (levels, slots) in REQUESTS.items():
        runs = [timed(made, jobspec(levels, slots, 60 + number), reserve=reserve) for number in range(rounds)]
        assert all(
            result.verdict is (MatchVerdict.RESERVED if reserve else MatchVerdict.GRANTED)
            for _, result in runs
        ), name
        times = [spent_s * 1_000 for spent_s, _ in runs]
        print(
            f"  {name:36} first {times[0]:7.1f} ms, median of the others "
            f"{statistics.median(times[1:]):7.1f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of requests below levels of the topology.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    made = empty(arguments.nodes)
    print(f"matched now, {arguments.nodes} empty nodes:")
    measure(made, arguments.rounds, reserve=False)
    print(f"reserved, with {fill(made)} jobs on them:")
    measure(made, arguments.rounds, reserve=True)


if __name__ == "__main__":
    main()
