"""Does a Deployment that is updated many times leave anything over, and does the queue grow because of it?

A Deployment of ten pods that fill a cluster of ten nodes is updated many times on the local control plane.
Each new pod waits until an old one ends, and gets its slot. After each update there must be ten allocations,
one for each pod, in the matcher and in the tables. In the end, with the Deployment deleted, there must be
none, and the doctor must report nothing. The memory of queue, matcher and webhook is read after each update.
Its growth is the slope of a line through the second half of these values, when all code has run once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from fluxqueue.api import names
from fluxqueue.fluxion.messages import CallContext, JobMode
from fluxqueue.fluxion.rpc.client import FluxionClient
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

NAMESPACE = "rolling"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = 10
WATCHED = ("queue", "fluxion", "webhook")
_WITHIN_S = 60.0
_HELD = "SELECT count(*) FROM fluxqueue.allocation WHERE freed_at IS NULL"
_WAITING = "SELECT count(*) FROM fluxqueue.workload WHERE state NOT IN ('Completed', 'Failed', 'Cancelled')"


def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + _WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {_WITHIN_S:g} s: {what}")
        time.sleep(0.02)


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def slope(values: Sequence[float]) -> float:
    """Return the growth of values from one to the next, by least squares."""
    return statistics.linear_regression(range(len(values)), values).slope


def deployment(turn: int) -> dict[str, Any]:
    """Return a Deployment of pods of a whole node each.
    The turn in the template makes each update a rollout.
    """
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "8"}}}
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": {"turn": str(turn)}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    spec = {
        "replicas": PODS,
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


class Bench:
    """A local cluster, its matcher and its tables, with the measurements on them."""

    def __init__(self, cluster: InProcessCluster, fluxion: FluxionClient, tables: psycopg.Connection) -> None:
        self.cluster = cluster
        self.client = cluster.control_plane.client
        self.fluxion = fluxion
        self.tables = tables

    def count(self, query: str) -> int:
        """Return the single number of a query's answer."""
        row = self.tables.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def held(self) -> tuple[int, int]:
        """Return the number of allocations in the matcher and in the tables."""
        jobs = self.fluxion.list_jobs(call=CallContext())
        return sum(job.mode is not JobMode.SYSTEM for job in jobs), self.count(_HELD)

    def memory(self) -> dict[str, float]:
        """Return the resident MiB of each program."""
        return {
            name: rss_mib(pid)
            for name in WATCHED
            if (pid := self.cluster.programs[name].process.pid) is not None
        }

    def rolled_out(self) -> bool:
        """True if the Deployment has processed its last change, and all of its pods are those of this
        change.
        """
        current = self.client.get(f"{DEPLOYMENTS}/web")
        status = current.get("status", {})
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
        return status.get("observedGeneration") == current["metadata"]["generation"] and counts == [PODS] * 3

    def findings(self) -> list[str]:
        """Return the report of the doctor."""
        port = self.cluster.programs["queue"].metrics_port
        assert port is not None
        return [
            finding["sentence"] for finding in self.cluster.operators.get(port, "/doctor?looks=1")["findings"]
        ]

    def left(self) -> dict[str, int]:
        """Return all objects and rows that should not exist."""
        matcher, tables = self.held()
        fluxjobs = self.client.get(f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.FLUXJOBS}")[
            "items"
        ]
        return {
            "matcher": matcher,
            "tables": tables,
            "workloads": self.count(_WAITING),
            "fluxjobs": len(fluxjobs),
        }

    def run(self, updates: int) -> dict[str, Any]:
        """Update the Deployment this often, delete it, and return the report."""
        self.client.request("POST", DEPLOYMENTS, deployment(0))
        until("the first pods run", self.rolled_out)
        took: list[float] = []
        memory: list[dict[str, float]] = []
        for turn in range(1, updates + 1):
            began = time.perf_counter()
            self.client.request(
                "PATCH", f"{DEPLOYMENTS}/web", {"spec": {"template": deployment(turn)["spec"]["template"]}}
            )
            until(f"update {turn} is rolled out", self.rolled_out)
            took.append(time.perf_counter() - began)
            until(f"each pod holds one allocation after update {turn}", lambda: self.held() == (PODS, PODS))
            memory.append(self.memory())
            if turn % 10 == 0:
                print(f"  {turn} updates, {memory[-1]}", file=sys.stderr, flush=True)
        findings = self.findings()
        self.client.request("DELETE", f"{DEPLOYMENTS}/web", {"propagationPolicy": "Background"})
        until("nothing is left", lambda: not any(self.left().values()))
        second = memory[len(memory) // 2 :]
        return {
            "updates": updates,
            "pods": PODS,
            "update_p50_s": round(statistics.median(took), 2),
            "update_max_s": round(max(took), 2),
            "left": self.left(),
            "doctor": [*findings, *self.findings()],
            "memory": {
                name: {
                    "first_mib": round(memory[0][name], 1),
                    "middle_mib": round(second[0][name], 1),
                    "last_mib": round(second[-1][name], 1),
                    "kib_per_update": round(slope([each[name] for each in second]) * 1024, 1),
                }
                for name in WATCHED
            },
        }


@contextmanager
def a_bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="fluxqueue-bench-") as folder:
        Path(folder).chmod(0o711)
        cluster = InProcessCluster(Path(folder) / "cluster", ClusterOptions(nodes=PODS, durable=False))
        try:
            cluster.start(300)
            client = cluster.control_plane.client
            client.request(
                "POST",
                "/api/v1/namespaces",
                {"metadata": {"name": NAMESPACE, "labels": {names.MANAGED_LABEL: "true"}}},
            )
            account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
            until("the default service account is there", lambda: client.find(account) is not None)
            with (
                FluxionClient(f"127.0.0.1:{cluster.programs['fluxion'].port}") as fluxion,
                psycopg.connect(cluster.database_dsn, autocommit=True) as tables,
            ):
                yield Bench(cluster, fluxion, tables)
        finally:
            cluster.destroy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=1_000)
    arguments = parser.parse_args()
    if arguments.updates < 4:
        parser.error("--updates must be at least 4: a slope is drawn through the second half of them")
    with a_bench() as bench:
        print(json.dumps(bench.run(arguments.updates), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
