"""Time that a new leader takes from the tables to a filled graph: it loads pending rows and live allocations
and fills the matcher.

``python benchmarks/rebuild.py [--pending 10000] [--live 1000] [--nodes 1000] [--json FILE]`` on a private
Postgres and a matcher behind gRPC in a process of its own, as next to each queue. The caches of nodes are
filled, as those of a follower are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.messages import GraphNodeSpec, NodeShare, Pool
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.local.ports import free_port
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.queue.model.jobspecs import SLOT
from fluxqueue.queue.model.records import Grant, NewWorkload, ReleaseMode
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.store import Database, Store, migrate
from fluxqueue.queue.store.ledger import Ledger

ROUNDS = 5
ENTRY = "import sys; from fluxqueue.cli.main import main; sys.exit(main())"
MEMBERS = [{"type": "cpu", "count": 2000}, {"type": "memory", "count": 1024}, {"type": "pods", "count": 1}]
JOBSPEC = json.dumps(
    {
        "version": 1,
        "resources": [{"type": "slot", "count": 4, "label": SLOT, "with": MEMBERS}],
        "attributes": {},
    }
)


def described(number: int) -> NewWorkload:
    """Return the description of a waiting Job of four pods."""
    return NewWorkload(
        uid=f"00000000-0000-4000-8000-{number:012d}",
        api_version="batch/v1",
        kind="Job",
        namespace="science",
        name=f"job-{number}",
        queue="default",
        priority=0,
        jobspec=JOBSPEC,
        shape="shape",
        pods=4,
        duration_s=3600,
        duration_assumed=False,
        release_mode=ReleaseMode.PIN,
        generation=1,
    )


def spec(node: Node) -> GraphNodeSpec:
    """Return a node of 64 cores."""
    pools = (Pool("cpu", 64_000, 10), Pool("memory", 512 * 1024, 64), Pool("pods", 110))
    return GraphNodeSpec(node.metadata.name, pools=pools)


async def fill(store: Store, pending: int, live: int, nodes: int) -> None:
    """Write the tables."""
    epoch = await store.acquire_leadership("before")
    for first in range(0, pending + live, 1000):
        await store.upsert(
            epoch, [described(number) for number in range(first, min(first + 1000, pending + live))]
        )
    waiting = (await store.pending())[:live]
    jobids = await store.next_jobids(live)
    now = datetime.now(UTC)
    for first in range(0, live, 500):
        grants = []
        for number, (workload, jobid) in enumerate(
            zip(waiting[first : first + 500], jobids[first : first + 500], strict=True), first
        ):
            hosts = tuple(f"n{(number * 4 + rank) % nodes}" for rank in range(4))
            shares = tuple(
                NodeShare(host, {SLOT: 1}, {"cpu": 2000, "memory": 1024, "pods": 1}) for host in hosts
            )
            grants.append(
                Grant(
                    workload=workload.id,
                    jobid=jobid,
                    shares=shares,
                    hosts=hosts,
                    start=now,
                    end=now + timedelta(hours=1),
                )
            )
        await store.grant(epoch, grants)


@contextmanager
def matcher() -> Iterator[str]:
    """Start a matcher in a process of its own, and return its address."""
    port = free_port()
    command = [sys.executable, "-c", ENTRY, "fluxion", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def measure(dsn: str, target: str, pending: int, live: int, node_count: int) -> dict[str, float]:
    """Return the medians and the worst of some take-overs."""
    await migrate(dsn)
    nodes: ObjectCache[Node] = ObjectCache()
    for number in range(node_count):
        nodes.apply(Node(metadata=ObjectMeta(name=f"n{number}", uid=f"n{number}", resource_version="1")))
    loads: list[float] = []
    graphs: list[float] = []
    async with Database(dsn) as database, AsyncFluxionClient(target) as fluxion:
        store = Store(database)
        await fill(store, pending, live, node_count)
        for _ in range(ROUNDS):
            began = time.perf_counter()
            ledger = Ledger(store, await store.acquire_leadership("after"), lambda: datetime.now(UTC))
            await ledger.load()
            loads.append(time.perf_counter() - began)
            assert len(ledger.pending()) == pending
            began = time.perf_counter()
            graph = GraphKeeper(fluxion, ledger, nodes, lambda node, _taken: spec(node), "lonode")
            nodes.add_handler(graph.specs.node_changed)
            await graph.ensure()
            graphs.append(time.perf_counter() - began)
    total = [load + graph for load, graph in zip(loads, graphs, strict=True)]
    return {
        "load_p50_s": statistics.median(loads),
        "graph_p50_s": statistics.median(graphs),
        "rebuild_p50_s": statistics.median(total),
        "rebuild_max_s": max(total),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fq-bench-") as folder:
        Path(folder).chmod(0o711)
        with LocalPostgres(Path(folder) / "postgres") as server, matcher() as target:
            figures = asyncio.run(
                measure(server.create_database("bench"), target, options.pending, options.live, options.nodes)
            )
            server.stop()
    print(f"{options.pending} pending, {options.live} live, {options.nodes} nodes")
    for name, figure in figures.items():
        print(f"  {name:20} {figure:8.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
