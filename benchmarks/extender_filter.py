"""Time of kube-scheduler's filter request for 5,000 nodes, by the extender's clock and at the client's end of
the connection.

The extender is served as in production, with TLS and a client certificate, on caches of 5,000 nodes with five
pods each. The client is a separate process that keeps its connection, like kube-scheduler. The request is
about a foreign pod, which is the harder case: some nodes have capacity reserved for released pods, so they
have to be compared. It is measured with names (``nodeCacheCapable``) and whole nodes.

    python benchmarks/extender_filter.py [--nodes 5000] [--times 100] [--output FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import http.client
import json
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import msgspec

from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.certs.authority import ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import write_pair
from fluxqueue.local.fake_nodes import FakeNodeShape, node_object
from fluxqueue.local.pki import Authority
from fluxqueue.local.ports import free_port
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.extender.metrics import SECONDS
from fluxqueue.scheduler_plugin.extender.server import ExtenderServer, ExtenderSettings

RESULTS = Path(__file__).parent / "results"
GOAL_MS = 20.0
PODS_ON_EACH = 5
IMAGES = 20


def main() -> int:
    parser = argparse.ArgumentParser(description="Latency of the extender's filter and prioritize.")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--output", type=Path, default=RESULTS / "extender_filter.json")
    parser.add_argument("--ask", nargs=4, metavar=("PORT", "FOLDER", "VERB", "BODY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        port, folder, verb, body = arguments.ask
        print(json.dumps(ask(int(port), Path(folder), verb, Path(body).read_bytes(), arguments.times)))
        return 0
    import uvloop

    results = uvloop.run(measure(arguments.nodes, arguments.times))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 0 if results["goal_met"] else 1


async def measure(nodes: int, times: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), dt.datetime.now(dt.UTC)
        authority = make_authority("bench", now)
        write_pair(folder / "tls", issue_leaf(authority, ServingNames(addresses=("127.0.0.1",)), now), now)
        (folder / "server.crt").write_bytes(authority.certificate)
        Authority(folder / "clients", now).issue_client("client", "system:kube-scheduler")
        cluster = Cluster(nodes)
        port = free_port()
        settings = ExtenderSettings(
            host="127.0.0.1",
            port=port,
            certificate_directory=folder / "tls",
            client_ca=folder / "clients" / "ca.crt",
            drain_s=0,
        )
        serving = asyncio.create_task(ExtenderServer(settings).serve(cast(Any, None), cluster.caches))
        report: dict[str, Any] = {"nodes": nodes, "pods_on_each": PODS_ON_EACH}
        try:
            for promised in (0, nodes // 10, nodes):
                cluster.promise(promised)
                for verb in ("filter", "prioritize"):
                    report[f"names, {promised} promised, {verb}"] = await run(
                        port, folder, verb, cluster.names_body(), times
                    )
            report["whole nodes, filter"] = await run(
                port, folder, "filter", cluster.nodes_body(), max(times // 10, 3)
            )
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
    worst = max(part["client_ms"]["p50"] for name, part in report.items() if name.startswith("names"))
    return report | {"goal_ms": GOAL_MS, "goal_met": worst <= GOAL_MS}


class Cluster:
    """Return caches like those of a replica."""

    def __init__(self, nodes: int) -> None:
        self.caches = SchedulerCaches(cast(Any, None))
        self.nodes = [node_object(number, FakeNodeShape(cpu="64", memory="256Gi")) for number in range(nodes)]
        self.names = [str(node["metadata"]["name"]) for node in self.nodes]
        for node in self.nodes:
            node["metadata"] |= {"uid": node["metadata"]["name"], "resourceVersion": "1"}
            node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            names = [f"images.example/{'0' * 64}@sha256:{'0' * 64}"]
            node["status"]["images"] = [{"names": names, "sizeBytes": 123_456_789}] * IMAGES
            self.caches.nodes.apply(msgspec.convert(node, Node))
        for name in self.names:
            for number in range(PODS_ON_EACH):
                self.caches.pods.apply(msgspec.convert(pod(f"{name}-{number}", spec={"nodeName": name}), Pod))

    def promise(self, nodes: int) -> None:
        for name in self.names[:nodes]:
            annotations = {"fluxqueue/allocation": "7", "fluxqueue/fluxion-nodes": name}
            self.caches.pods.apply(
                msgspec.convert(pod(f"promised-{name}", metadata={"annotations": annotations}), Pod)
            )

    def names_body(self) -> bytes:
        return encode({"Pod": pod("asked"), "Nodes": None, "NodeNames": self.names})

    def nodes_body(self) -> bytes:
        items = [
            {key: node[key] for key in ("metadata", "spec", "status") if key in node} for node in self.nodes
        ]
        items = [
            item | {"metadata": {"name": item["metadata"]["name"], **item["metadata"]}} for item in items
        ]
        return encode({"Pod": pod("asked"), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None})


def pod(
    name: str, *, metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None
) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "resourceVersion": "1",
            **(metadata or {}),
        },
        "spec": {"containers": containers, **(spec or {})},
        "status": {},
    }


def encode(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


async def run(port: int, folder: Path, verb: str, body: bytes, times: int) -> dict[str, Any]:
    """Send requests from another process, and read what the extender measured."""
    (folder / "body").write_bytes(body)
    before = SECONDS.labels(verb)._sum.get()
    command = [
        sys.executable,
        __file__,
        "--ask",
        str(port),
        str(folder),
        verb,
        str(folder / "body"),
        "--times",
        str(times),
    ]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    answer, _ = await process.communicate()
    assert process.returncode == 0, answer
    client = json.loads(answer)
    asked = client.pop("asked")
    return {
        "body_mb": round(len(body) / 1e6, 2),
        "server_mean_ms": round((SECONDS.labels(verb)._sum.get() - before) / asked * 1e3, 2),
        **client,
    }


def ask(port: int, folder: Path, verb: str, body: bytes, times: int) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=str(folder / "server.crt"))
    context.load_cert_chain(folder / "clients" / "client.crt", folder / "clients" / "client.key")
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
    taken = []
    warm = 2
    for _ in range(times + warm):
        begun = time.perf_counter()
        connection.request("POST", f"/v1/{verb}", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        taken.append((time.perf_counter() - begun) * 1e3)
        assert answer.status == 200, content[:200]
        assert b'"Error":"' not in content or b'"Error":""' in content, content[-200:]
    taken = sorted(taken[warm:])
    quantiles = {
        "min": taken[0],
        "p50": statistics.median(taken),
        "p99": taken[min(len(taken) - 1, int(len(taken) * 0.99))],
    }
    return {"asked": times + warm, "client_ms": {name: round(value, 2) for name, value in quantiles.items()}}


if __name__ == "__main__":
    sys.exit(main())
