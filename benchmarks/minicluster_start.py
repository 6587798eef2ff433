"""How long an idle plane takes from the creation of a MiniCluster to the moment its last pod is let go, and what that writes.

One after the other, each of four brokers, as kubectl would create it; the clock runs from the call to the watch event in which the last
pod has lost our gate. What it takes until the pods run is the kubelet's and the images' business and is not in it. Writes are the queue's
own, by its metric, from before the creation until the MiniCluster has formed and its status says so; Events are counted apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import tempfile
import time
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.objects import Pod
from fluxqueue.kube.kinds import MINICLUSTERS, NAMESPACES, PODS
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.store import Change, Store
from fluxqueue.kube.transport import Api
from fluxqueue.local.inprocess import InProcessPlane, PlaneOptions

NAMESPACE = "gangs"
_CALLS = re.compile(r"fluxqueue_api_calls_total\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = {"create", "patch", "update", "delete"}


def manifest(name: str, size: int) -> dict[str, Any]:
    container = {"image": "app", "command": "solve", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}}
    return {
        "metadata": {"name": name},
        "spec": {"size": size, "containers": [container], "pod": {"annotations": {"fluxqueue.local/run-seconds": "forever"}}},
    }


class LetGo:
    """When pods lost our gate, by the MiniCluster they belong to."""

    def __init__(self, pods: Store[Pod]) -> None:
        self.at: dict[str, list[float]] = {}
        self._uids: set[str] = set()
        self._news = asyncio.Event()
        pods.add_handler(self._note)

    def _note(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or pod.spec.gated_by(names.GATE) or pod.metadata.uid in self._uids:
            return
        self._uids.add(pod.metadata.uid)
        self.at.setdefault(pod.metadata.label(names.JOB_NAME_LABEL) or "", []).append(time.monotonic())
        self._news.set()

    async def last_of(self, name: str, size: int) -> float:
        async with asyncio.timeout(60):
            while len(self.at.get(name, ())) < size:
                self._news.clear()
                await self._news.wait()
        return max(self.at[name])


def our_writes(metrics_url: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with urllib.request.urlopen(metrics_url, timeout=10) as answer:
        text = answer.read().decode()
    for match in _CALLS.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels["verb"] in _WRITES and labels["kind"] != "leases":
            found[labels["kind"]] += int(float(match["value"]))
    return found


async def run(arguments: argparse.Namespace, kubeconfig: Path, metrics_url: str) -> dict[str, Any]:
    pods: Store[Pod] = Store()
    async with Api.connect(kubeconfig, user_agent="fluxqueue/benchmark") as api:
        await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": {names.MANAGED_LABEL: "true"}}})
        gone = LetGo(pods)
        reflector = Reflector(api, PODS, pods)
        watching = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        await asyncio.sleep(2)
        waits: list[float] = []
        written: list[Counter[str]] = []
        for number in range(arguments.warm + arguments.rounds):
            name = f"gang-{number}"
            before = our_writes(metrics_url)
            began = time.monotonic()
            await api.create(MINICLUSTERS, manifest(name, arguments.size), NAMESPACE)
            took = await gone.last_of(name, arguments.size) - began
            async with asyncio.timeout(60):
                while (await api.get(MINICLUSTERS, name, NAMESPACE)).status.state != "Running":
                    await asyncio.sleep(0.2)
            await asyncio.sleep(1)
            if number >= arguments.warm:
                waits.append(took)
                written.append(our_writes(metrics_url) - before)
            await api.delete(MINICLUSTERS, name, namespace=NAMESPACE)
            async with asyncio.timeout(60):
                while pods.list(NAMESPACE):
                    await asyncio.sleep(0.1)
            await asyncio.sleep(1)
        watching.cancel()
    return {"waits_s": waits, "writes": [dict(each) for each in written], "size": arguments.size}


def summary(results: dict[str, Any]) -> str:
    waits = sorted(results["waits_s"])
    p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    objects = [sum(count for kind, count in each.items() if kind != "events") for each in results["writes"]]
    kinds = results["writes"][len(results["writes"]) // 2]
    return (
        f"MiniCluster of {results['size']}, {len(waits)} in turn: create to last pod let go p50 {statistics.median(waits):.2f} s, "
        f"p99 {p99:.2f} s\nour writes each: median {statistics.median(objects):g} with {results['size']} pods among them: {kinds}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "minicluster_start.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fluxqueue-gangs-") as folder:
        Path(folder).chmod(0o711)
        plane = InProcessPlane(Path(folder) / "plane", PlaneOptions(nodes=8), report=partial(print, flush=True))
        with plane:
            metrics_url = f"http://127.0.0.1:{plane.programs['queue'].port}/metrics"
            results = asyncio.run(run(arguments, plane.kubeconfig, metrics_url))
    print(summary(results))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
