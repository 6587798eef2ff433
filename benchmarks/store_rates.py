"""Rates of the store: rows per second of each kind of change at two depths of the queue, and the time from a
request to the run of a task.

``python benchmarks/store_rates.py [--depth 100 --depth 100000] [--json FILE]`` on a private Postgres with its
durability settings (fsync on). Figures are of one client on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.queue.model.changes import Ending, ReasonChange
from fluxqueue.queue.model.records import Epoch, Grant, NewWorkload, ReleaseMode
from fluxqueue.queue.store import Database, Store, migrate
from fluxqueue.queue.tasks.control_tasks import ControlTasks

BATCH = 500
RESOURCES = [{"type": "slot", "count": 4, "with": [{"type": "cpu", "count": 20}]}]
JOBSPEC = json.dumps({"version": 9999, "resources": RESOURCES, "pad": "x" * 600})


def described(number: int) -> NewWorkload:
    return NewWorkload(
        uid=f"00000000-0000-4000-8000-{number:012d}",
        api_version="batch/v1",
        kind="Job",
        namespace="science",
        name=f"job-{number}",
        queue="default",
        priority=number % 5,
        jobspec=JOBSPEC,
        shape=f"shape-{number % 50}",
        pods=4,
        duration_s=3600,
        duration_assumed=False,
        release_mode=ReleaseMode.PIN,
        generation=1,
    )


async def timed(work: Awaitable[Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = await work
    return time.perf_counter() - began, answer


async def at_depth(store: Store, epoch: Epoch, first: int, depth: int) -> dict[str, float]:
    """Return figures with `depth` pending workloads that are never granted,
    and `BATCH` at a time that are.
    """
    figures: dict[str, float] = {}
    began = time.perf_counter()
    for start in range(first, first + depth, 1000):
        await store.upsert(
            epoch, [described(number) for number in range(start, min(start + 1000, first + depth))]
        )
    figures["insert_batch_rows_per_s"] = depth / (time.perf_counter() - began)
    seconds, _ = await timed(
        store.upsert(epoch, [described(number) for number in range(first, first + min(depth, 1000))])
    )
    figures["sweep_unchanged_rows_per_s"] = min(depth, 1000) / seconds
    seconds, pending = await timed(store.pending())
    figures["load_pending_s"] = seconds
    assert len(pending) >= depth
    some = pending[:1000]
    changes = [
        ReasonChange(workload=each.id, reason=Reason.WAITING_FOR_NODES, message=f"{depth} nodes")
        for each in some
    ]
    seconds, _ = await timed(store.set_reasons(epoch, changes))
    figures["reasons_rows_per_s"] = len(some) / seconds
    singles: dict[str, list[float]] = {
        "insert": [],
        "grant": [],
        "claim": [],
        "released": [],
        "started": [],
        "finish": [],
    }
    now = datetime.now(UTC)
    for number in range(10**9 + first, 10**9 + first + 60):
        seconds, delta = await timed(store.upsert(epoch, [described(number)]))
        (stored,) = delta.workloads
        singles["insert"].append(seconds)
        (jobid,) = await store.next_jobids(1)
        hosts = tuple(f"node-{rank}" for rank in range(4))
        shares = tuple(NodeShare(host, {"default": 1}, {"cpu": 2000}) for host in hosts)
        grant = Grant(
            workload=stored.id,
            jobid=jobid,
            shares=shares,
            hosts=hosts,
            start=now,
            end=now + timedelta(hours=1),
        )
        singles["grant"].append((await timed(store.grant(epoch, [grant])))[0])
        seconds, claimed = await timed(store.claim_releases(epoch, 100, 60.0))
        assert [allocation.jobid for _, allocation in claimed] == [jobid]
        singles["claim"].append(seconds)
        singles["released"].append((await timed(store.mark_released(epoch, [jobid])))[0])
        singles["started"].append((await timed(store.mark_started(epoch, [stored.id])))[0])
        end = [Ending(stored.id, State.COMPLETED, Outcome.SUCCEEDED)]
        singles["finish"].append((await timed(store.finish(epoch, end)))[0])
    figures |= {f"one_{name}_p50_ms": statistics.median(values) * 1000 for name, values in singles.items()}
    return figures


async def thousand_grants(store: Store, epoch: Epoch) -> dict[str, float]:
    """Return figures of 1,000 grants of four pods in one call, and of the load by a new leader."""
    stored = (
        await store.upsert(epoch, [described(number) for number in range(2 * 10**9, 2 * 10**9 + 1000)])
    ).workloads
    jobids = await store.next_jobids(1000)
    hosts = tuple(f"node-{rank}" for rank in range(4))
    shares = tuple(NodeShare(host, {"default": 1}, {"cpu": 2000}) for host in hosts)
    now = datetime.now(UTC)
    grants = [
        Grant(
            workload=each.id, jobid=jobid, shares=shares, hosts=hosts, start=now, end=now + timedelta(hours=1)
        )
        for each, jobid in zip(stored, jobids, strict=True)
    ]
    figures = {}
    seconds, granted = await timed(store.grant(epoch, grants))
    assert len(granted.allocations) == 1000
    figures["grants_per_s"] = 1000 / seconds
    seconds, claimed = await timed(store.claim_releases(epoch, 1000, 60.0))
    figures["claims_per_s"] = len(claimed) / seconds
    seconds, live = await timed(store.live_allocations())
    assert len(live) == 1000
    figures["load_1000_allocations_s"] = seconds
    seconds, _ = await timed(store.end_slots(epoch, [(jobid, rank) for jobid in jobids for rank in range(4)]))
    figures["end_slots_per_s"] = 4000 / seconds
    return figures


class Waiting:
    """Handlers that record when a scheduling cycle began."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.at = 0.0

    async def schedule(self) -> None:
        self.at = time.perf_counter()
        self.begun.set()

    async def release(self) -> None:
        pass

    async def sweep(self) -> None:
        pass


async def request_to_run(dsn: str, store: Store, epoch: Epoch, overrides: int) -> dict[str, float]:
    handlers = Waiting()
    latencies: list[float] = []
    async with ControlTasks(dsn, store) as tasks:
        running = asyncio.create_task(tasks.run_workers(handlers, epoch))
        await asyncio.wait_for(handlers.begun.wait(), 10)
        for _ in range(overrides):
            await asyncio.sleep(0.02)
            handlers.begun.clear()
            began = time.perf_counter()
            tasks.trigger.schedule()
            await asyncio.wait_for(handlers.begun.wait(), 10)
            latencies.append(handlers.at - began)
        idle_cpu, idle_wall = time.process_time(), time.perf_counter()
        await asyncio.sleep(3)
        idle = (time.process_time() - idle_cpu) / (time.perf_counter() - idle_wall)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "wish_to_run_p50_ms": cuts[49] * 1000,
        "wish_to_run_p99_ms": cuts[98] * 1000,
        "idle_workers_cpu_ms_per_s": idle * 1000,
    }


async def measure(dsn: str, depths: list[int]) -> dict[str, dict[str, float]]:
    await migrate(dsn)
    report: dict[str, dict[str, float]] = {}
    async with Database(dsn) as database:
        store = Store(database)
        epoch = await store.acquire_leadership("benchmark")
        report["control tasks"] = await request_to_run(dsn, store, epoch, 300)
        report["batches"] = await thousand_grants(store, epoch)
        first = 0
        for depth in sorted(depths):
            report[f"depth {depth}"] = await at_depth(store, epoch, first, depth)
            first += depth
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fq-bench-") as folder:
        Path(folder).chmod(0o711)
        with LocalPostgres(Path(folder) / "postgres") as server:
            report = asyncio.run(measure(server.create_database("bench"), options.depth or [100, 100_000]))
            server.stop()
    for title, figures in report.items():
        print(title)
        for name, figure in figures.items():
            print(f"  {name:32} {figure:12,.2f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
