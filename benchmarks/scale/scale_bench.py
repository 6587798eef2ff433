"""How the whole service grows: real Postgres, Fluxion and queue against an API server stand-in, from 1,000 to
100,000 pending workloads.

The cluster is full of running Jobs of one pod. Then pending Jobs are added up to each point. At each point
the benchmark waits until all are stored and nothing is left to do, ends some running Jobs one by one, and
starts the queue again.

- *intake*: rows of new Jobs stored with their FluxJobs in a second, and the CPU time for each;
- *cycle after one end*: the mean time of all cycles that an end causes, by the queue's own metric, and the
  CPU time of an end;
- *start*: from the start of a queue until it is ready and leads, and until its first cycle is over;
- *memory*: proportional memory of each program, with the queue as it is before it is started again.

The times depend on the machine, and on what else runs; CPU times and exponents less so.

    PYTHONPATH=tests python benchmarks/scale/scale_bench.py \\
        [--points 1000,10000] [--nodes 5000] [--running 20000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from scale_report import table
from scale_service import ProcessUse, ScaleService, until

OURS = ("queue", "fluxion", "postgres")
CHUNK = 500
_FILL_S = 7_200.0
_QUIET_S = 2.0


def stored(service: ScaleService) -> int:
    """Return the number of workloads that wait or run."""
    states = service.states()
    return sum(states.get(state, 0) for state in ("Pending", "Allocated", "Running"))


def add(service: ScaleService, what: str, count: int) -> float:
    """Create Jobs as fast as the queue stores them; return the seconds until all have rows and FluxJobs."""
    began = time.monotonic()
    before = stored(service)
    made = 0
    while made < count:
        piece = min(CHUNK, count - made)
        service.standin("POST", f"make/{what}/{piece}")
        made += piece
        until(f"{made} Jobs stored", lambda: stored(service) >= before + made - CHUNK, _FILL_S)  # noqa: B023  # used before it changes
    until("all Jobs stored", lambda: stored(service) >= before + count, _FILL_S)
    wanted = stored(service)
    until(
        "all FluxJobs created",
        lambda: service.standin("GET", "counts")["objects"]["fluxjobs"] >= wanted,
        _FILL_S,
    )
    return time.monotonic() - began


def settle(service: ScaleService) -> None:
    """Wait until no cycle has ended and nothing was written for some seconds:
    new work is shown in its FluxJob long after its intake.
    """
    seen, since = _activity(service), time.monotonic()
    while time.monotonic() - since < _QUIET_S:
        time.sleep(0.1)
        if (now := _activity(service)) != seen:
            seen, since = now, time.monotonic()


def _activity(service: ScaleService) -> tuple[int, int]:
    writes: dict[str, int] = service.standin("GET", "counts")["writes"]
    return service.cycles()[0], sum(count for what, count in writes.items() if "lease" not in what)


def cpu_ms(before: Mapping[str, ProcessUse], after: Mapping[str, ProcessUse], count: int) -> str:
    """Return the CPU time of each of our programs for one of these."""
    return ", ".join(
        f"{1000 * (after[name].cpu_s - before[name].cpu_s) / max(count, 1):.1f}" for name in OURS
    )


def ends(service: ScaleService, count: int) -> tuple[float, str]:
    """End running Jobs one by one; return the mean time of the cycles that this caused,
    and the CPU time of an end.
    """
    before, (first, first_s) = service.use(), service.cycles()
    for _ in range(count):
        known = service.cycles()[0]
        service.standin("POST", "finish/1")
        until("a cycle after an end", lambda: service.cycles()[0] > known, 120)  # noqa: B023  # used before it changes
    settle(service)
    last, last_s = service.cycles()
    return (last_s - first_s) / (last - first), cpu_ms(before, service.use(), count)


def measure(service: ScaleService, pending: int, options: argparse.Namespace) -> dict[str, float | str]:
    """Add pending work up to a point, and measure there."""
    missing = pending - service.states().get("Pending", 0)
    before = service.use()
    filled_s = add(service, "pending", missing)
    after = service.use()
    settle(service)
    states = service.states()
    cycle_s, end_cpu = ends(service, options.ends)
    memory = {name: use.memory_mib for name, use in service.use().items()}
    ready_s, first_cycle_s = service.restart_queue()
    settle(service)
    return {
        "pending": states.get("Pending", 0),
        "running": states.get("Running", 0),
        "cycle_s": cycle_s,
        "end_cpu_ms": end_cpu,
        "intake_rows_per_s": missing / filled_s,
        "intake_cpu_ms": cpu_ms(before, after, missing),
        "start_ready_s": ready_s,
        "start_cycle_s": first_cycle_s,
        "memory_mib": ", ".join(f"{memory[name]:.0f}" for name in OURS),
        **{f"{name}_mib": round(memory[name], 1) for name in OURS},
    }


def main() -> None:
    """Read the command line, run, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--points",
        default="1000,3000,10000,30000,100000",
        help="numbers of pending workloads (default: %(default)s)",
    )
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument(
        "--running", type=int, default=20_000, help="at most four for each node (default: %(default)s)"
    )
    parser.add_argument("--policy", choices=["easy", "conservative", "fcfs"], default="easy")
    parser.add_argument(
        "--ends", type=int, default=20, help="running Jobs that end at each point (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    points: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory(prefix="fq-scale-") as folder:
        Path(folder).chmod(0o711)
        with ScaleService(Path(folder), options.nodes, options.policy, options.seed).running() as service:
            before = service.use()
            seconds = add(service, "running", options.running)
            until("all running", lambda: service.states().get("Running", 0) >= options.running, _FILL_S)
            start = {
                "jobs_per_s": options.running / seconds,
                "cpu_ms_per_job": cpu_ms(before, service.use(), options.running),
            }
            print(
                f"{options.running} Jobs stored at {start['jobs_per_s']:.0f} a second, all run; CPU ms "
                f"each: {start['cpu_ms_per_job']}"
            )
            for pending in (int(point) for point in options.points.split(",")):
                points.append(measure(service, pending, options))
                print(table(points, options.nodes, options.policy), flush=True)
                found = {
                    "nodes": options.nodes,
                    "policy": options.policy,
                    "start_of_running": start,
                    "points": points,
                }
                if options.json:
                    options.json.parent.mkdir(parents=True, exist_ok=True)
                    options.json.write_text(json.dumps(found, indent=2))
                if options.markdown:
                    options.markdown.write_text(table(points, options.nodes, options.policy) + "\n")


if __name__ == "__main__":
    main()
