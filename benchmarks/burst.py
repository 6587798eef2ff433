"""A burst of single-pod Jobs on the local control plane, with fluxqueue and without, in turn.

Each round creates the same Jobs in a namespace the queue manages and in one it does not, in alternating order, and follows every Job from
the call that creates it to the watch event that shows its pod bound to a node. Writes are counted by the API server itself
(``apiserver_request_total``), ours by the queue's own metric. The local control plane raises the client limits of kube-scheduler and the
controller manager in both cases; on a cluster with their defaults both columns are lower.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fluxqueue.api.objects import Pod
from fluxqueue.kube.kinds import JOBS, NAMESPACES, PODS
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.store import Change, Store
from fluxqueue.kube.transport import Api
from fluxqueue.local.inprocess import InProcessPlane, PlaneOptions

MANAGED, PLAIN = "burst-managed", "burst-plain"
_WRITES = {"POST", "PUT", "PATCH", "DELETE", "APPLY"}
_SERIES = re.compile(r"apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_OURS = re.compile(r"fluxqueue_api_calls_total\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass
class Round:
    """One burst in one namespace; seconds."""

    namespace: str
    jobs: int
    jobs_per_s: float
    p50_s: float
    p99_s: float
    writes_per_job: float
    events_per_job: float
    ours_per_job: float


def manifest(name: str, run_s: int) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"annotations": {"fluxqueue.local/run-seconds": str(run_s)}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
                },
            }
        },
    }


class Bound:
    """When the pod of each Job was first seen on a node."""

    def __init__(self, store: Store[Pod]) -> None:
        self.at: dict[tuple[str, str], float] = {}
        self._news = asyncio.Event()
        store.add_handler(self._note)

    def _note(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is not None and pod.spec.node_name:
            owner = pod.metadata.controller
            if owner is not None:
                self.at.setdefault((pod.metadata.namespace, owner.name), time.monotonic())
                self._news.set()

    async def until(self, keys: set[tuple[str, str]], timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while not keys <= self.at.keys():
                self._news.clear()
                await self._news.wait()


async def api_writes(api: Api) -> tuple[Counter[str], Counter[str]]:
    """Writes so far, by resource: to objects, and of Events."""
    objects: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for found in _SERIES.finditer((await api.request("GET", "/metrics")).decode()):
        labels = dict(_LABEL.findall(found["labels"]))
        if (
            labels.get("verb") in _WRITES
            and labels.get("code", "").startswith("2")
            and labels.get("resource") not in ("leases", "nodes", "tokenreviews", "subjectaccessreviews", "serviceaccounts")
        ):
            (events if labels["resource"] == "events" else objects)[labels["resource"]] += int(float(found["value"]))
    return objects, events


def our_writes(metrics_url: str) -> int:
    total = 0
    with urllib.request.urlopen(metrics_url, timeout=10) as answer:
        text = answer.read().decode()
    for found in _OURS.finditer(text):
        labels = dict(_LABEL.findall(found["labels"]))
        if labels["verb"].upper() in _WRITES or labels["verb"] in ("create", "patch", "update", "delete"):
            total += int(float(found["value"]))
    return total


async def burst(api: Api, bound: Bound, metrics_url: str, namespace: str, tag: str, jobs: int, clients: int, run_s: int) -> Round:
    before, before_events = await api_writes(api)
    ours = our_writes(metrics_url)
    limit = asyncio.Semaphore(clients)
    created: dict[str, float] = {}

    async def create(name: str) -> None:
        async with limit:
            created[name] = time.monotonic()
            await api.create(JOBS, manifest(name, run_s), namespace)

    names = [f"{tag}-{number}" for number in range(jobs)]
    began = time.monotonic()
    await asyncio.gather(*(create(name) for name in names))
    await bound.until({(namespace, name) for name in names}, 300)
    ended = max(bound.at[namespace, name] for name in names)
    after, after_events = await api_writes(api)
    waits = sorted(bound.at[namespace, name] - created[name] for name in names)
    return Round(
        namespace=namespace,
        jobs=jobs,
        jobs_per_s=jobs / (ended - began),
        p50_s=statistics.median(waits),
        p99_s=waits[min(len(waits) - 1, int(len(waits) * 0.99))],
        writes_per_job=(after - before).total() / jobs,
        events_per_job=(after_events - before_events).total() / jobs,
        ours_per_job=(our_writes(metrics_url) - ours) / jobs,
    )


async def clean(api: Api, pods: Store[Pod], namespace: str) -> None:
    for job in await api.list(JOBS, namespace):
        await api.delete(JOBS, job.metadata.name, namespace=namespace)
    async with asyncio.timeout(300):
        while pods.list(namespace):
            await asyncio.sleep(0.2)


async def singles(api: Api, bound: Bound, namespace: str, tag: str, count: int) -> list[float]:
    waits = []
    for number in range(count):
        name = f"{tag}-{number}"
        began = time.monotonic()
        await api.create(JOBS, manifest(name, 600), namespace)
        await bound.until({(namespace, name)}, 60)
        waits.append(bound.at[namespace, name] - began)
        await asyncio.sleep(0.3)
    return waits


async def run(arguments: argparse.Namespace, kubeconfig: Path, metrics_url: str) -> dict[str, Any]:
    pods: Store[Pod] = Store()
    async with Api.connect(kubeconfig, user_agent="fluxqueue/benchmark", max_in_flight=64) as api:
        for name, labels in ((MANAGED, {"fluxqueue/managed": "true"}), (PLAIN, {})):
            await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        bound = Bound(pods)
        reflector = Reflector(api, PODS, pods)
        watching = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        await asyncio.sleep(2)
        idle = {
            name: await singles(api, bound, name, "warm", 5) and await singles(api, bound, name, "one", 20) for name in (PLAIN, MANAGED)
        }
        for name in (PLAIN, MANAGED):
            await clean(api, pods, name)
        rounds: list[Round] = []
        for number in range(arguments.rounds):
            order = (PLAIN, MANAGED) if number % 2 == 0 else (MANAGED, PLAIN)
            for name in order:
                result = await burst(api, bound, metrics_url, name, f"r{number}", arguments.jobs, arguments.clients, 600)
                print(f"round {number + 1}/{arguments.rounds} {name}: {result.jobs_per_s:.1f} Jobs/s", file=sys.stderr, flush=True)
                rounds.append(result)
                await clean(api, pods, name)
                await asyncio.sleep(2)
        watching.cancel()
    return {"idle_s": idle, "rounds": [asdict(item) for item in rounds]}


def summary(results: dict[str, Any]) -> str:
    lines = [f"{'':14}{'Jobs/s':>8}{'p50 s':>8}{'p99 s':>8}{'writes':>8}{'+Events':>8}{'ours':>6}{'idle p50 ms':>13}"]
    figures = {}
    for name in (PLAIN, MANAGED):
        rounds = [item for item in results["rounds"] if item["namespace"] == name]
        middle = {key: statistics.median(item[key] for item in rounds) for key in rounds[0] if key not in ("namespace", "jobs")}
        figures[name] = middle
        lines.append(
            f"{name:14}{middle['jobs_per_s']:8.1f}{middle['p50_s']:8.2f}{middle['p99_s']:8.2f}{middle['writes_per_job']:8.1f}"
            f"{middle['events_per_job']:8.1f}{middle['ours_per_job']:6.1f}{1000 * statistics.median(results['idle_s'][name]):13.0f}"
        )
    ratio = figures[MANAGED]["jobs_per_s"] / figures[PLAIN]["jobs_per_s"]
    lines.append(f"with fluxqueue {ratio:.2f} x plain (medians of {len(rounds)} rounds each)")
    results["ratio"] = ratio
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "burst.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fluxqueue-burst-") as folder:
        Path(folder).chmod(0o711)
        report = partial(print, file=sys.stderr, flush=True)
        plane = InProcessPlane(Path(folder) / "plane", PlaneOptions(nodes=8), report=report)
        with plane:
            metrics_url = f"http://127.0.0.1:{plane.programs['queue'].port}/metrics"
            results = asyncio.run(run(arguments, plane.kubeconfig, metrics_url))
    print(summary(results))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
