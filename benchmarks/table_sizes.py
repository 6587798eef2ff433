"""Size of an ended workload in Postgres, by table, and the time of its removal at two depths of the tables.

``PYTHONPATH=tests python benchmarks/table_sizes.py [--day 10000] [--days 36] [--json FILE]`` on a private
Postgres with its durability settings (fsync on). A day of workloads is served for each size of gang and
measured after a vacuum. Then that day's history is copied until it has this many days, and pruned.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import structlog
from support.long_life import LongLife, Measure

from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Database, Store, migrate
from fluxqueue.queue.store.ledger import Ledger

_COPY = """
INSERT INTO fluxqueue.history
SELECT (id + {offset}) AS id, uid || '-{copy}', api_version, kind, namespace, name, queue, priority, jobspec,
       shape, pods, duration_s, duration_assumed, release_mode, generation, state, reason, message,
       found_reason, found_message, submitted_at, allocated_at, started_at,
       finished_at - {copy} * interval '1 day', outcome, requeues, jobid, hosts
  FROM fluxqueue.history WHERE id <= {last};
INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
SELECT workload + {offset}, at, before, after, reason, detail, epoch FROM fluxqueue.transition
 WHERE workload <= {last};
"""
_SINGLES = 100


async def _transactions(dsn: str) -> int:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        row = await (await connection.execute("SELECT pg_current_xact_id()::text::bigint")).fetchone()
        assert row is not None
        return int(row[0])


def _per_workload(measure: Measure, workloads: int) -> dict[str, float]:
    sizes = {
        f"{table}_bytes": size / workloads
        for table, size in measure.table_bytes.items()
        if measure.rows[table]
    }
    return sizes | {"bytes": sum(sizes.values())}


async def a_day(dsn: str, pods: int, workloads: int) -> dict[str, dict[str, float]]:
    """Return the sizes with complete rows and with history only,
    and the transactions of workloads that are submitted one by one.
    """
    await migrate(dsn)
    async with Database(dsn) as database:
        store = Store(database)
        ledger = Ledger(store, await store.acquire_leadership("benchmark"), lambda: datetime.now(UTC))
        life = LongLife(store, ledger, dsn, pods, prunes=False)
        before = await _transactions(dsn)
        await life.serve(_SINGLES, 1)
        singly = (await _transactions(dsn) - before) / _SINGLES
        began = time.perf_counter()
        await life.serve(workloads - _SINGLES)
        rate = (workloads - _SINGLES) / (time.perf_counter() - began)
        whole = await life.measure()
        later = await store.now() + timedelta(seconds=1)
        while any(await store.prune_allocations(ledger.epoch, later)):
            pass
        while await store.forget(ledger.epoch, later):
            pass
        measure = await life.measure()
        return {
            f"{pods} pods, within the retention": _per_workload(whole, workloads)
            | {"transactions": singly, "workloads_per_s": rate},
            f"{pods} pods, object still there after it": _per_workload(measure, workloads),
        }


async def deep(dsn: str, days: int, workloads: int) -> dict[str, dict[str, float]]:
    """Return the time of a batch of pruning in the history of one day, and of this many days."""
    async with Database(dsn) as database:
        store = Store(database)
        epoch = await store.acquire_leadership("benchmark")
        report = {"history of 1 day": await _prune(store, epoch, 8)}
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            for copy in range(1, days):
                await connection.execute(_COPY.format(offset=copy * 10**7, copy=copy, last=10**7).encode())
            await connection.execute("VACUUM (ANALYZE) fluxqueue.history")
            await connection.execute("VACUUM (ANALYZE) fluxqueue.transition")
        report[f"history of {days} days"] = await _prune(store, epoch, 8)
        return report


async def _prune(store: Store, epoch: Epoch, batches: int) -> dict[str, float]:
    looks, times = [], []
    for _ in range(batches):
        began = time.perf_counter()
        ended = await store.forgotten(datetime.now(UTC) + timedelta(days=1))
        looks.append(time.perf_counter() - began)
        began = time.perf_counter()
        gone, _ = await store.prune_history(epoch, [each.id for each in ended])
        times.append((time.perf_counter() - began) / len(gone))
    return {
        "find_500_p50_ms": statistics.median(looks) * 1e3,
        "prune_500_p50_ms": statistics.median(times) * 500 * 1e3,
    }


async def measure(server: LocalPostgres, day: int, days: int) -> dict[str, dict[str, float]]:
    report: dict[str, dict[str, float]] = {}
    for pods in (1, 4, 64):
        dsn = server.create_database(f"pods_{pods}")
        report |= await a_day(dsn, pods, day if pods < 64 else max(500, day // 10))
    return report | await deep(server.create_database("deep", template="pods_4"), days, day)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--day", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=36)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with tempfile.TemporaryDirectory(prefix="fq-bench-") as folder:
        Path(folder).chmod(0o711)
        with LocalPostgres(Path(folder) / "postgres") as server:
            report = asyncio.run(measure(server, options.day, options.days))
            server.stop()
    for title, figures in report.items():
        print(title)
        for name, figure in figures.items():
            print(f"  {name:32} {figure:12,.2f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
