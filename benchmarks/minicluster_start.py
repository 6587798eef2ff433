"""Time that an idle local cluster takes from the creation of a MiniCluster until its last pod is ungated, and
its number of writes.

MiniClusters of four brokers are created one after the other, as kubectl would create them. The time starts at
the call and ends at the watch event in which the last pod has no gate of ours. The time until the pods run
depends on the kubelet and the images and is not included. Writes are those of the queue, by its metric, from
before the creation until the MiniCluster has formed and its status shows that. Events are counted separately.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import MINICLUSTERS, NAMESPACES, PODS
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

NAMESPACE = "gangs"
_CALLS = re.compile(r"fluxqueue_api_calls_total\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = {"create", "patch", "update", "delete"}


def manifest(name: str, size: int) -> dict[str, Any]:
    container = {
        "image": "app",
        "command": "solve",
        "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}},
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "size": size,
            "containers": [container],
            "pod": {"annotations": {"fluxqueue.local/run-seconds": "forever"}},
        },
    }


class Ungated:
    """The times when pods lost our gate, by their MiniCluster."""

    def __init__(self, pods: ObjectCache[Pod]) -> None:
        self.at: dict[str, list[float]] = {}
        self._uids: set[str] = set()
        self._changed = asyncio.Event()
        pods.add_handler(self._note)

    def _note(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or pod.spec.gated_by(names.GATE) or pod.metadata.uid in self._uids:
            return
        self._uids.add(pod.metadata.uid)
        self.at.setdefault(pod.metadata.label(names.JOB_NAME_LABEL) or "", []).append(time.monotonic())
        self._changed.set()

    async def last_of(self, name: str, size: int) -> float:
        async with asyncio.timeout(60):
            while len(self.at.get(name, ())) < size:
                self._changed.clear()
                await self._changed.wait()
        return max(self.at[name])


def our_writes(metrics: Callable[[], bytes]) -> Counter[str]:
    writes: Counter[str] = Counter()
    text = metrics().decode()
    for match in _CALLS.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels["verb"] in _WRITES and labels["kind"] != "leases":
            writes[labels["kind"]] += int(float(match["value"]))
    return writes


async def run(
    arguments: argparse.Namespace, kubeconfig: Path, metrics: Callable[[], bytes]
) -> dict[str, Any]:
    pods: ObjectCache[Pod] = ObjectCache()
    async with Api.connect(kubeconfig, user_agent="fluxqueue/benchmark") as api:
        await api.create(
            NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": {names.MANAGED_LABEL: "true"}}}
        )
        ungated = Ungated(pods)
        reflector = Reflector(api, PODS, pods)
        watching = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        await asyncio.sleep(2)
        waits: list[float] = []
        written: list[Counter[str]] = []
        for number in range(arguments.warm + arguments.rounds):
            name = f"gang-{number}"
            before = our_writes(metrics)
            began = time.monotonic()
            await api.create(MINICLUSTERS, manifest(name, arguments.size), NAMESPACE)
            took = await ungated.last_of(name, arguments.size) - began
            async with asyncio.timeout(60):
                while (await api.get(MINICLUSTERS, name, NAMESPACE)).status.state != "Running":
                    await asyncio.sleep(0.2)
            await asyncio.sleep(1)
            if number >= arguments.warm:
                waits.append(took)
                written.append(our_writes(metrics) - before)
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
        f"MiniCluster of {results['size']}, {len(waits)} in turn: create to last pod ungated p50 "
        f"{statistics.median(waits):.2f} s, p99 {p99:.2f} s\n"
        f"our writes each: median {statistics.median(objects):g} with {results['size']} pods among them: "
        f"{kinds}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parent / "results" / "minicluster_start.json"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fluxqueue-gangs-") as folder:
        Path(folder).chmod(0o711)
        cluster = InProcessCluster(
            Path(folder) / "cluster", ClusterOptions(nodes=8), report=partial(print, flush=True)
        )
        with cluster:
            port = cluster.programs["queue"].metrics_port
            assert port is not None
            results = asyncio.run(
                run(arguments, cluster.kubeconfig, partial(cluster.operators.metrics, port))
            )
    print(summary(results))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
