"""Does a Deployment that is rolled out again and again leave anything behind, and does the queue grow by it?

A Deployment of ten pods that fill a cluster of ten nodes is updated many times on the local control plane: each new pod waits until an old
one goes, and takes its place over. After each update there must be ten allocations, one for each pod, in the matcher and in the tables; in
the end, with the Deployment deleted, none, and the doctor has nothing to say. The memory of queue, matcher and webhook is read after each
update; what it grows by is the slope of a line through the second half of them, when everything has been used once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from fluxqueue.api import names
from fluxqueue.fluxion.client import FluxionClient
from fluxqueue.fluxion.messages import Call, Mode
from fluxqueue.local.inprocess import InProcessPlane, PlaneOptions

NAMESPACE = "rolling"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = 10
WATCHED = ("queue", "fluxion", "webhook")
_WITHIN_S = 60.0
_HELD = "SELECT count(*) FROM fluxqueue.allocation WHERE freed_at IS NULL"
_WAITING = "SELECT count(*) FROM fluxqueue.workload WHERE state NOT IN ('Completed', 'Failed', 'Cancelled')"


def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + _WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {_WITHIN_S:g} s: {what}")
        time.sleep(0.02)


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def slope(values: Sequence[float]) -> float:
    """By how much values grow from one to the next, by least squares."""
    return statistics.linear_regression(range(len(values)), values).slope


def deployment(turn: int) -> dict[str, Any]:
    """Pods of a whole node each; the turn in the template makes each update a rollout."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "8"}}}
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": {"turn": str(turn)}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    spec = {"replicas": PODS, "revisionHistoryLimit": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


class Bench:
    """A plane, its matcher and tables, and what is asked of them."""

    def __init__(self, plane: InProcessPlane, fluxion: FluxionClient, tables: psycopg.Connection) -> None:
        self.plane = plane
        self.client = plane.control_plane.client
        self.fluxion = fluxion
        self.tables = tables

    def count(self, query: str) -> int:
        """The one number a query answers."""
        row = self.tables.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def held(self) -> tuple[int, int]:
        """Allocations in the matcher and in the tables."""
        jobs = self.fluxion.list_jobs(call=Call())
        return sum(job.mode is not Mode.SYSTEM for job in jobs), self.count(_HELD)

    def memory(self) -> dict[str, float]:
        """Resident MiB of each program."""
        return {name: rss_mib(pid) for name in WATCHED if (pid := self.plane.programs[name].process.pid) is not None}

    def rolled_out(self) -> bool:
        """Whether the Deployment has seen its last change, and all of its pods are those of it."""
        found = self.client.get(f"{DEPLOYMENTS}/web")
        status = found.get("status", {})
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
        return status.get("observedGeneration") == found["metadata"]["generation"] and counts == [PODS] * 3

    def findings(self) -> list[str]:
        """What the doctor has to say."""
        url = f"http://127.0.0.1:{self.plane.programs['queue'].port}/doctor?looks=1"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return [finding["sentence"] for finding in json.load(answer)["findings"]]

    def left(self) -> dict[str, int]:
        """What is there although nothing should be."""
        matcher, tables = self.held()
        fluxjobs = self.client.get(f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.FLUXJOBS}")["items"]
        return {"matcher": matcher, "tables": tables, "workloads": self.count(_WAITING), "fluxjobs": len(fluxjobs)}

    def run(self, updates: int) -> dict[str, Any]:
        """Roll out so often, take it all away, and say what was seen."""
        self.client.request("POST", DEPLOYMENTS, deployment(0))
        until("the first pods run", self.rolled_out)
        took: list[float] = []
        memory: list[dict[str, float]] = []
        for turn in range(1, updates + 1):
            began = time.perf_counter()
            self.client.request("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"template": deployment(turn)["spec"]["template"]}})
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
        plane = InProcessPlane(Path(folder) / "plane", PlaneOptions(nodes=PODS, durable=False))
        try:
            plane.start(300)
            client = plane.control_plane.client
            client.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": {names.MANAGED_LABEL: "true"}}})
            account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
            until("the default service account is there", lambda: client.find(account) is not None)
            with (
                FluxionClient(f"127.0.0.1:{plane.programs['fluxion'].port}") as fluxion,
                psycopg.connect(plane.database_dsn, autocommit=True) as tables,
            ):
                yield Bench(plane, fluxion, tables)
        finally:
            plane.destroy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=1_000)
    arguments = parser.parse_args()
    if arguments.updates < 4:
        parser.error("--updates must be at least 4: a slope is drawn through the second half of them")
    with a_bench() as bench:
        print(json.dumps(bench.run(arguments.updates), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
