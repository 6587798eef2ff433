"""How fast a reflector fills and follows, and its cost: many pods on a real API server of this machine.

There are three figures. ``list`` is the time from an empty store to a synced one, page by page. ``watch``
replays the history since before the pods were created, so events arrive as fast as the API server can send
them and not as fast as pods can be written. ``create`` is the rate of writes through the same transport, for
comparison. CPU seconds are those of this process only; the API server runs on the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import resource
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import NotFound
from fluxqueue.kube.kinds import PODS, SECRETS, Kind
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.local.components import Component
from fluxqueue.local.controlplane import ControlPlane

ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", True, SECRETS.type)
NAMESPACE = "default"


def pod(number: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    env = [{"name": f"VARIABLE_{i}", "value": "a value of some length"} for i in range(8)]
    container = {
        "name": "main",
        "image": "none.invalid/none:1",
        "resources": resources,
        "env": env,
        "command": ["sleep", "3600"],
    }
    labels = {"batch.kubernetes.io/job-name": f"job-{number // 10}", "app": "benchmark"}
    return {"metadata": {"name": f"pod-{number}", "labels": labels}, "spec": {"containers": [container]}}


def rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


class Stopwatch:
    def __init__(self) -> None:
        self._wall, self._cpu, self._rss = time.perf_counter(), time.process_time(), rss_mib()

    def result(self, count: int) -> dict[str, float]:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {
            "seconds": round(wall, 3),
            "per_s": round(count / wall),
            "cpu_seconds": round(cpu, 3),
            "cpu_us_each": round(cpu / count * 1e6, 1),
            "rss_mib": round(rss_mib(), 1),
            "rss_added_mib": round(rss_mib() - self._rss, 1),
        }


async def account_ready(api: Api) -> None:
    async with asyncio.timeout(30):
        while True:
            with suppress(NotFound):
                await api.get(ACCOUNTS, "default", NAMESPACE)
                return
            await asyncio.sleep(0.05)


async def fill(api: Api, pods: int) -> dict[str, float]:
    watch = Stopwatch()
    numbers = iter(range(pods))

    async def worker() -> None:
        for number in numbers:
            await api.create(PODS, pod(number), NAMESPACE)

    await asyncio.gather(*(worker() for _ in range(32)))
    return watch.result(pods)


async def follow(api: Api, pods: int, since: str) -> dict[str, float]:
    """Reflect into an empty store, from ``since`` on if given, otherwise with a list first."""
    store: ObjectCache[Pod] = ObjectCache()
    store.add_index("node", lambda obj: [obj.spec.node_name or ""])
    store.add_index("job", lambda obj: [obj.metadata.label("batch.kubernetes.io/job-name") or ""])
    full = asyncio.Event()
    store.add_handler(lambda _: full.set() if len(store) >= pods else None)
    reflector = Reflector(api, PODS, store, namespace=NAMESPACE)
    reflector.resource_version = since
    watch = Stopwatch()
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(120):
            await full.wait()
        result = watch.result(pods)
    finally:
        task.cancel()
        await asyncio.wait({task})
    if reflector.relists != (0 if since else 1):
        raise RuntimeError(f"{reflector.relists} lists: what was measured is not what was meant")
    return result


async def measure(cluster: ControlPlane, pods: int) -> dict[str, Any]:
    async with Api.connect(cluster.kubeconfig, user_agent="fluxqueue/benchmark", timeout_s=60) as api:
        await account_ready(api)
        since = (await api.page(PODS, NAMESPACE)).resource_version
        figures: dict[str, Any] = {"create": await fill(api, pods)}
        figures["watch"] = await follow(api, pods, since)
        figures["list"] = await follow(api, pods, "")
        body = await api.request("GET", PODS.path(NAMESPACE, "pod-0"))
        return {"pods": pods, "bytes_per_pod": len(body), **figures, "kubernetes": await api.version()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/kube_reflector.json"))
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fluxqueue-bench-") as folder,
        ControlPlane(Path(folder), nodes=0) as cluster,
    ):
        for component in (Component.SCHEDULER, Component.KWOK):
            cluster.stop_component(component, graceful=False)
        result = asyncio.run(measure(cluster, options.pods))
    result["python"] = platform.python_version()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
