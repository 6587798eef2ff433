"""What one Job costs our own programs: CPU of each, SQL statements, commits, scheduling cycles and API
requests.

A local cluster with real Postgres, Fluxion and API server gets a steady trickle of single-pod Jobs that end
by themselves, and then a burst. The figures are differences of counters (CPU time of processes,
``pg_stat_statements``, metrics of the queue), divided by the number of Jobs. So they are comparable on a
machine that does other work too; the waits are not. ``--idle`` measures the cost without any Job: then what
wakes a program is what counts, so the voluntary context switches of each thread are counted too.

``--flame FILE`` writes a flame graph of the queue in the steady phase with py-spy, if that is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from burst import Bound, clean, cpu_of_programs, manifest
from psycopg.rows import TupleRow

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import JOBS, NAMESPACES, PODS
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.postgres import LocalPostgres

NAMESPACE = "queue-cpu"
OURS = ("queue", "postgres", "webhook", "fluxion")
_METRIC = re.compile(r"^(fluxqueue_\w+?)(\{[^}]*\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_TICK_S = 0.01


def postgres_pids(cluster: InProcessCluster) -> list[int]:
    """Return the server and its sessions."""
    process = cluster.postgres.process
    assert process is not None
    assert process.pid is not None
    return [
        process.pid,
        *map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()),
    ]


def wakeups(cluster: InProcessCluster) -> Counter[str]:
    """Return how often each thread of our programs has waited so far, by program and name of the thread."""
    pids = [(name, cluster.programs[name].process.pid) for name in OURS if name in cluster.programs]
    found: Counter[str] = Counter()
    for name, pid in [*pids, *(("postgres", pid) for pid in postgres_pids(cluster))]:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                thread = (task / "comm").read_text().strip()
                if name == "postgres":
                    thread = (
                        (task / "cmdline")
                        .read_bytes()
                        .partition(b"\0")[0]
                        .decode()
                        .removeprefix("postgres: ")[:60]
                    )
                switches = int(
                    (task / "status").read_text().rpartition("\nvoluntary_ctxt_switches:")[2].split()[0]
                )
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[f"{name}: {thread}"] += switches
    return found


def postgres_cpu_s(cluster: InProcessCluster) -> float:
    """Return the CPU seconds so far of the server, its sessions and those that have ended."""
    process = cluster.postgres.process
    assert process is not None
    total = 0
    for pid in postgres_pids(cluster):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(map(int, fields[11:15] if pid == process.pid else fields[11:13]))
    return total * _TICK_S


class Counters:
    """The counters of a running cluster at one time."""

    def __init__(self, cluster: InProcessCluster, connection: psycopg.Connection[TupleRow]) -> None:
        self.cpu = cpu_of_programs(cluster) | {"postgres": postgres_cpu_s(cluster)}
        self.wakeups = wakeups(cluster)
        self.at = time.monotonic()
        self.metrics = self._metrics(cluster)
        rows = connection.execute(
            "SELECT query, calls, total_exec_time + total_plan_time, wal_bytes FROM pg_stat_statements"
        ).fetchall()
        self.statements: Counter[str] = Counter()
        self.statement_ms: Counter[str] = Counter()
        self.wal_bytes = 0
        for query, calls, milliseconds, wal in rows:
            text = " ".join(str(query).split())[:90]
            self.statements[text] += calls
            self.statement_ms[text] += milliseconds
            self.wal_bytes += int(wal)
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
        assert row is not None
        self.commits = int(row[0])

    @staticmethod
    def _metrics(cluster: InProcessCluster) -> Counter[str]:
        port = cluster.programs["queue"].metrics_port
        assert port is not None
        found: Counter[str] = Counter()
        for name, labels, value in _METRIC.findall(cluster.operators.metrics(port).decode()):
            if name.endswith("_bucket"):
                continue
            wanted = [value for key, value in _LABEL.findall(labels) if key != "code"]
            found[" ".join([name.removeprefix("fluxqueue_"), *wanted])] += float(value)  # type: ignore[assignment]
        return found


def difference(before: Counters, after: Counters, jobs: int) -> dict[str, Any]:
    """Return what each Job costs, or each second if there were none."""
    seconds = after.at - before.at
    count = jobs or seconds
    cpu = {name: 1000 * (used - before.cpu[name]) / count for name, used in after.cpu.items()}
    statements = after.statements - before.statements
    spent = {key: after.statement_ms[key] - before.statement_ms[key] for key in statements}
    metrics = after.metrics - before.metrics
    calls = {
        key.removeprefix("api_calls_total "): value / count
        for key, value in metrics.items()
        if key.startswith("api_calls_total ")
    }
    rest = {
        key: value / count
        for key, value in metrics.items()
        if "_total" in key or key.startswith("control_task_seconds_count")
    }
    return {
        "jobs": jobs,
        "seconds": seconds,
        "cpu_ms": cpu,
        "ours_ms": sum(cpu[name] for name in OURS),
        "commits": (after.commits - before.commits) / count,
        "statements": statements.total() / count,
        "statement_ms": sum(spent.values()) / count,
        "wal_bytes": (after.wal_bytes - before.wal_bytes) / count,
        "by_statement": {
            key: {"calls": value / count, "ms": spent[key] / count}
            for key, value in statements.most_common(60)
        },
        "api_calls": calls,
        "wakeups": {key: value / count for key, value in (after.wakeups - before.wakeups).most_common()},
        "metrics": {key: value for key, value in rest.items() if not key.startswith("api_calls_total")},
    }


def job(name: str, run_s: int) -> dict[str, Any]:
    return manifest(name, "fluxqueue", run_s)


async def steady(api: Api, bound: Bound, tag: str, arguments: argparse.Namespace, count: int) -> list[float]:
    """Create Jobs at a steady rate, and return how long each waited; the last ones have ended, too."""
    created: dict[str, float] = {}
    loop, creating = asyncio.get_running_loop(), set[asyncio.Task[Any]]()
    began = loop.time()
    for number in range(count):
        await asyncio.sleep(max(began + number / arguments.rate - loop.time(), 0))
        name = f"{tag}-{number}"
        created[name] = time.monotonic()
        creating.add(asyncio.create_task(api.create(JOBS, job(name, arguments.run_seconds), NAMESPACE)))
    await asyncio.gather(*creating)
    await bound.until({(NAMESPACE, name) for name in created}, 120)
    await asyncio.sleep(arguments.run_seconds + 4)
    return [bound.at[NAMESPACE, name] - at for name, at in created.items()]


async def burst(api: Api, bound: Bound, tag: str, arguments: argparse.Namespace) -> list[float]:
    limit = asyncio.Semaphore(32)
    created: dict[str, float] = {}

    async def create(name: str) -> None:
        async with limit:
            created[name] = time.monotonic()
            await api.create(JOBS, job(name, 600), NAMESPACE)

    await asyncio.gather(*(create(f"{tag}-{number}") for number in range(arguments.burst)))
    await bound.until({(NAMESPACE, name) for name in created}, 300)
    return [bound.at[NAMESPACE, name] - at for name, at in created.items()]


Phase = Callable[[], Coroutine[Any, Any, list[float]]]


async def measured(
    cluster: InProcessCluster, connection: psycopg.Connection[TupleRow], jobs: int, phase: Phase
) -> dict[str, Any]:
    before = await asyncio.to_thread(Counters, cluster, connection)
    in_order = await phase()
    waits = sorted(in_order)
    after = await asyncio.to_thread(Counters, cluster, connection)
    result = difference(before, after, jobs)
    if waits:
        result |= {
            "waits_s": in_order,
            "p50_s": statistics.median(waits),
            "p99_s": waits[min(len(waits) - 1, int(len(waits) * 0.99))],
        }
    return result


async def _pause(seconds: float) -> list[float]:
    await asyncio.sleep(seconds)
    return []


def _recorder(cluster: InProcessCluster, arguments: argparse.Namespace) -> subprocess.Popen[bytes] | None:
    tool = Path(sys.executable).with_name("py-spy")
    program = str(tool) if tool.exists() else shutil.which("py-spy")
    if arguments.flame is None or program is None:
        return None
    seconds = arguments.jobs / arguments.rate
    form = "raw" if arguments.flame.suffix == ".txt" else "flamegraph"
    pid = str(cluster.programs[arguments.flame_of].process.pid)
    command = [
        program,
        "record",
        "-p",
        pid,
        "-o",
        arguments.flame,
        "-d",
        str(int(seconds)),
        "-r",
        "250",
        "-f",
        form,
        "--nonblocking",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


async def run(arguments: argparse.Namespace, cluster: InProcessCluster) -> dict[str, Any]:
    pods: ObjectCache[Pod] = ObjectCache()
    results: dict[str, Any] = {}
    async with Api.connect(cluster.kubeconfig, user_agent="fluxqueue/benchmark", max_in_flight=64) as api:
        await api.create(
            NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": {names.MANAGED_LABEL: "true"}}}
        )
        bound = Bound(pods)
        reflector = Reflector(api, PODS, pods)
        watching = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        with psycopg.connect(cluster.database_dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public")
            connection.execute("SET search_path = public")
            await steady(api, bound, "warm", arguments, 30)
            if arguments.jobs:
                recorder = _recorder(cluster, arguments)
                results["steady"] = await measured(
                    cluster,
                    connection,
                    arguments.jobs,
                    partial(steady, api, bound, "steady", arguments, arguments.jobs),
                )
                if recorder is not None:
                    await asyncio.to_thread(recorder.wait, 60)
            await clean(api, pods, NAMESPACE)
            if arguments.burst:
                results["burst"] = await measured(
                    cluster, connection, arguments.burst, partial(burst, api, bound, "burst", arguments)
                )
                await clean(api, pods, NAMESPACE)
            if arguments.idle:
                await asyncio.sleep(5)
                results["idle"] = await measured(cluster, connection, 0, partial(_pause, arguments.idle))
        watching.cancel()
    return results


def summary(results: dict[str, Any]) -> str:
    lines = []
    for phase, each in results.items():
        unit = "Job" if each["jobs"] else "second"
        lines += [f"== {phase}: {each['jobs']} Jobs in {each['seconds']:.0f} s; for each {unit}:"]
        lines.append(
            f"CPU ms  ours {each['ours_ms']:.2f}: "
            + ", ".join(f"{name} {each['cpu_ms'][name]:.2f}" for name in OURS)
        )
        lines.append(
            "        others: "
            + ", ".join(f"{name} {used:.2f}" for name, used in each["cpu_ms"].items() if name not in OURS)
        )
        lines.append(
            f"SQL     statements {each['statements']:.2f} ({each['statement_ms']:.2f} ms), "
            f"commits {each['commits']:.2f}, "
            f"WAL {each['wal_bytes'] / 1024:.1f} KiB"
        )
        if "p50_s" in each:
            lines.append(f"wait    p50 {1000 * each['p50_s']:.0f} ms, p99 {1000 * each['p99_s']:.0f} ms")
        for title in ("by_statement", "api_calls", "metrics", "wakeups"):
            lines.append(f"-- {title}")
            for key, value in each[title].items():
                if title == "by_statement":
                    lines.append(f"  {value['calls']:8.2f} {value['ms']:8.3f} ms  {key}")
                elif value >= 0.005:
                    lines.append(f"  {value:8.2f}  {key}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rate", type=float, default=10.0, help="Jobs per second of the steady phase (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=300, help="Jobs of the steady phase; 0: none (default: %(default)s)"
    )
    parser.add_argument("--burst", type=int, default=0, help="Jobs of the burst (default: none)")
    parser.add_argument("--idle", type=float, default=0, help="seconds without Jobs (default: none)")
    parser.add_argument(
        "--run-seconds",
        type=int,
        default=3,
        help="how long a Job of the steady phase runs (default: %(default)s)",
    )
    parser.add_argument("--flame", type=Path, help="file for a flame graph (.svg), or folded stacks (.txt)")
    parser.add_argument(
        "--flame-of", default="queue", help="the program of the flame graph (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "queue_cpu.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fluxqueue-cpu-") as folder:
        Path(folder).chmod(0o711)
        cluster = InProcessCluster(
            Path(folder) / "cluster",
            ClusterOptions(nodes=32),
            report=partial(print, file=sys.stderr, flush=True),
        )
        settings = {
            "shared_preload_libraries": "pg_stat_statements",
            "pg_stat_statements.track_planning": "on",
        }
        # as in the chart's Postgres; a local cluster has a quarter of that
        settings["autovacuum_naptime"] = "1min"
        cluster.postgres = LocalPostgres(cluster.folder / "postgres", settings=settings)
        with cluster:
            results = asyncio.run(run(arguments, cluster))
    print(summary(results))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
