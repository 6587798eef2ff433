"""Size of the accounting's records, the processor time of queries on them, and of the pruning that writes
them.

``PYTHONPATH=tests python benchmarks/accounting_records.py [--jobs 1000000] [--prune 5000] [--json FILE]`` on
a private Postgres. Jobs over twelve months are inserted as records: one in ten had been requeued once,
hostlists name 4 nodes. They are of 40 namespaces, 20 accounts and 300 users. Questions are asked of the
views, and as ``kubectl fluxqueue history`` and ``report`` ask. Times are those of the server process (from
/proc), so that other work on the machine does not change them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import structlog
from psycopg import sql
from support.long_life import LongLife

from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.queue.model.accounting_queries import Cursor, read_history_query, read_report_query
from fluxqueue.queue.store import Database, Store, migrate
from fluxqueue.queue.store.accounting import Accounting, TakesTooLong
from fluxqueue.queue.store.ledger import Ledger

_MONTHS = """
INSERT INTO fluxqueue.workload (uid, api_version, kind, namespace, name, queue, priority, jobspec, shape,
    pods, duration_assumed, release_mode, generation, state, reason, message, found_reason, found_message,
    submitted_at, finished_at, outcome)
SELECT 'first', '', '', '', '', '', 0, '', '', 1, false, 'pin', 1, 'Completed', '', '', '', '',
       at, at, 'Succeeded'
  FROM (SELECT now() - interval '12 months' AS at) AS first;
SELECT fluxqueue.make_months();
DELETE FROM fluxqueue.workload;
"""
_JOBS = """
INSERT INTO fluxqueue.ended_workload (id, uid, api_version, kind, namespace, name, queue, priority, pods,
    duration_s, duration_assumed, state, outcome, message, submitted_at, allocated_at, started_at,
    finished_at, requeues, jobid, hosts, account, submitted_by, evictions)
SELECT n, gen_random_uuid(), 'batch/v1', 'Job', 'team-' || n % 40, 'simulation-' || n, 'queue-' || n % 5,
       0, 4, 3600, false, 'Completed', 'Succeeded', '', at - interval '3 hours',
       at - interval '1 hour', at - interval '59 minutes', at,
       CASE WHEN n % 10 = 0 THEN 1 ELSE 0 END, n, 'pool-a-node-[' || n % 900 || '-' || n % 900 + 3 || ']',
       'account-' || n % 20, 'user-' || n % 300,
       CASE WHEN n % 10 = 0 THEN jsonb_build_array(jsonb_build_object(
           'at', at - interval '2 hours', 'reason', 'Preempted',
           'message', 'preempted by Job team-1/urgent-' || n)) END
  FROM (SELECT n, now() - interval '364 days' * n / {jobs} AS at FROM generate_series(1, {jobs}) n) AS ends
"""
_ALLOCATIONS = """
INSERT INTO fluxqueue.ended_allocation (jobid, workload, namespace, queue, granted_at, released_at, freed_at,
    nodes, amounts, account, submitted_by)
SELECT CASE WHEN former THEN {jobs} + n ELSE n END, n, 'team-' || n % 40, 'queue-' || n % 5,
       at - interval '1 hour', at - interval '59 minutes', at, 4,
       '{{"cpu": 128000, "memory": 524288, "nvidia.com:gpu": 16}}', 'account-' || n % 20, 'user-' || n % 300
  FROM (SELECT n, former, now() - interval '364 days' * n / {jobs}
               - CASE WHEN former THEN interval '2 hours' ELSE interval '0' END AS at
          FROM generate_series(1, {jobs}) n, (VALUES (true), (false)) AS f (former)
         WHERE n % 10 = 0 OR NOT former) AS ends
"""
_QUERIES = {
    "the last 50 ends of a namespace": (
        "SELECT * FROM fluxqueue.jobs WHERE namespace = 'team-7' AND finished_at IS NOT NULL"
        " AND finished_at > now() - interval '7 days' ORDER BY finished_at DESC LIMIT 50"
    ),
    "use by namespace in 30 days": "SELECT namespace, sum(node_s) FROM (SELECT namespace,"
    " nodes * EXTRACT(epoch FROM freed_at - granted_at) AS node_s FROM fluxqueue.allocations"
    " WHERE freed_at > now() - interval '30 days') AS a GROUP BY namespace",
    "use_by_day, all": (
        "SELECT namespace, sum(node_s), sum(gpu_s) FROM fluxqueue.use_by_day GROUP BY namespace"
    ),
    "waits by queue in 7 days": (
        "SELECT queue, percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_s) FROM fluxqueue.waits"
        " WHERE submitted_at > now() - interval '7 days' GROUP BY queue"
    ),
    "preemptions, all": (
        "SELECT namespace, count(*), sum(lost_node_s) FROM fluxqueue.preemptions GROUP BY namespace"
    ),
}


_HISTORY: dict[str, list[tuple[str, str]]] = {
    "history: the last day, first 100": [],
    "history: a namespace in 7 days, first 100": [("namespace", "team-7"), ("since", "7d")],
    "history: a user in 30 days, first 100": [("user", "user-7"), ("since", "30d")],
    "history: a year, first 1,000": [("since", "365d"), ("limit", "1000")],
    "history: a year, 1,000 in the middle": [("since", "365d"), ("limit", "1000"), ("cursor", "MIDDLE")],
    "history: one user's failures in a year (none)": [
        ("user", "user-7"),
        ("state", "failed"),
        ("since", "365d"),
    ],
}
_REPORTS: dict[str, list[tuple[str, str]]] = {
    "report: 30 days by namespace": [],
    "report: 30 days by account and user": [("by", "account,user")],
    "report: 30 days by day": [("by", "day")],
    "report: a year of a namespace by user": [("by", "user"), ("namespace", "team-7"), ("since", "365d")],
    "report: a year by account": [("by", "account"), ("since", "365d")],
}


def _cpu_s(pids: list[int]) -> float:
    """Return the processor time of these processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def records(dsn: str, jobs: int) -> dict[str, float]:
    """Return bytes for each job, and the processor time of queries."""
    asyncio.run(migrate(dsn))
    figures: dict[str, float] = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_MONTHS.encode())
        for statement in (_JOBS, _ALLOCATIONS):
            connection.execute(statement.format(jobs=jobs).encode())
        connection.execute("VACUUM ANALYZE")
        # workers would be processes of their own
        connection.execute("SET max_parallel_workers_per_gather = 0")
        of_all = sql.SQL("ALTER DATABASE {} SET max_parallel_workers_per_gather = 0")
        connection.execute(of_all.format(sql.Identifier(connection.info.dbname)))
        for table in ("ended_workload", "ended_allocation"):
            row = connection.execute(
                "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = "
                "%s::regclass",
                (f"fluxqueue.{table}",),
            ).fetchone()
            assert row is not None
            figures[f"{table}, bytes for each job"] = float(row[0]) / jobs
        for title, query in _QUERIES.items():
            before = _cpu_s([connection.info.backend_pid])
            connection.execute(query.encode()).fetchall()
            figures[f"{title}, s"] = _cpu_s([connection.info.backend_pid]) - before
    return figures


async def people(dsn: str) -> dict[str, float]:
    """Return the processor time of what ``kubectl fluxqueue history`` and ``report`` ask,
    on the records that are there.
    """
    figures: dict[str, float] = {}
    async with (
        Database(dsn, size=1) as database,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as watching,
    ):
        accounting, now = Accounting(database), await Store(database).now()
        found = await watching.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        pids = [int(row[0]) for row in await found.fetchall()]
        await database.pool.check()
        middle = str(Cursor.behind(now - timedelta(days=182), 1))
        for title, parameters in (_HISTORY | _REPORTS).items():
            asked = [(name, middle if value == "MIDDLE" else value) for name, value in parameters]
            before = _cpu_s(pids)
            try:
                if title in _HISTORY:
                    await accounting.jobs(read_history_query(asked, now), now)
                else:
                    await accounting.report(read_report_query(asked, now), now)
            except TakesTooLong as error:
                print(f"{title}: {error}")
            figures[f"{title}, s"] = _cpu_s(pids) - before
    return figures


async def pruning(dsn: str, jobs: int) -> dict[str, float]:
    """Return the processor time of Postgres for pruning a workload of four pods."""
    await migrate(dsn)
    async with (
        Database(dsn, size=1) as database,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as watching,
    ):
        store = Store(database)
        ledger = Ledger(store, await store.acquire_leadership("benchmark"), lambda: datetime.now(UTC))
        life = LongLife(store, ledger, dsn, 4, prunes=False)
        await life.serve(jobs)
        await life.measure()
        found = await watching.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        pids = [int(row[0]) for row in await found.fetchall()]
        later, before = await store.now() + timedelta(seconds=1), _cpu_s(pids)
        while any(await store.prune_allocations(ledger.epoch, later)):
            pass
        while await store.forget(ledger.epoch, later):
            pass
        return {"pruning, ms for each workload": (_cpu_s(pids) - before) / jobs * 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--prune", type=int, default=5_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with tempfile.TemporaryDirectory(prefix="fq-bench-") as folder:
        Path(folder).chmod(0o711)
        with LocalPostgres(Path(folder) / "postgres") as server:
            dsn = server.create_database("records")
            figures = records(dsn, options.jobs) | asyncio.run(people(dsn)) if options.jobs else {}
            if options.prune:
                figures |= asyncio.run(pruning(server.create_database("pruning"), options.prune))
            server.stop()
    for name, figure in figures.items():
        print(f"{name:50} {figure:12,.3f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
