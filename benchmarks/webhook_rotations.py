"""Admissions of a real API server while certificates, authorities and replicas of the webhook are replaced:
how many fail?

Two replicas of the real program, and a forwarder in place of kube-proxy that gives each new connection to one
of the endpoints. Without a pause, a replica is replaced (the new one is ready first, and the old one stays an
endpoint for a second after SIGTERM, as on a cluster), or the certificate, or the authority with its key, by
the plan of the queue. As a kubelet does, the replicas get a new Secret a while after the bundle was written.
Jobs and pods are created with ``dryRun``, by several clients at once.

    python benchmarks/webhook_rotations.py [--admissions 100000] [--clients 8] [--output FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import datetime as dt
import itertools
import json
import os
import random
import ssl
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fluxqueue.certs.authority import Pair, ServingNames
from fluxqueue.certs.pairs import write_pair
from fluxqueue.certs.webhook_secret import SETTLE_TIME, plan
from fluxqueue.local.apiserver_client import ApiServerError
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import Process, wait_until

RESULTS = Path(__file__).parent / "results"
NAMES = ServingNames(addresses=("127.0.0.1",))
NAMESPACE = "rotations"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/rotations"
DRAIN_S = 4
_ENDPOINT_S = 1.0
_KUBELET_S = 1.0
_WAIT_S = 90.0


class Forwarder:
    """Forwards each new connection to one of the endpoints."""

    def __init__(self) -> None:
        self.endpoints: list[int] = []
        self.port = free_port()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        await server.serve_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", random.choice(self.endpoints))
            await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


class Bench:
    """The API server, the replicas, and what the queue keeps about their certificate."""

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.forwarder = Forwarder()
        self.replicas: list[tuple[int, Process]] = []
        self.secret: dict[str, bytes] = {}
        self.bundle = b""
        self.done: Counter[str] = Counter()
        self._numbers = itertools.count()

    def keep(self, at: dt.datetime) -> None:
        """Carry out the next step of the plan: the bundle first, and the files a while later."""
        step = plan(self.secret, self.bundle, NAMES, at)
        if step.ca_bundle is not None:
            self.bundle = step.ca_bundle
            hook = {
                "name": "mutate.rotations.example",
                "clientConfig": {"caBundle": base64.b64encode(self.bundle).decode()},
            }
            self.cluster.client.request("PATCH", CONFIGURATION, {"webhooks": [hook]}, patch="strategic-merge")
        if step.secret is not None:
            time.sleep(_KUBELET_S if self.replicas else 0)
            self.secret = step.secret
            (self.folder / "tls").mkdir(exist_ok=True)
            (self.folder / "tls" / "ca.crt").write_bytes(self.secret["ca.crt"])
            write_pair(
                self.folder / "tls",
                Pair(self.secret["tls.crt"], self.secret["tls.key"]),
                dt.datetime.now(dt.UTC),
            )

    def replace_certificate(self) -> None:
        """Issue another certificate of the same authority."""
        self.secret = {**self.secret, "tls.crt": b""}
        self.keep(dt.datetime.now(dt.UTC))

    def replace_authority(self) -> None:
        """Make another authority, and forget the former one once every replica serves the new certificate."""
        self.secret = {**self.secret, "ca.crt": b"", "ca.key": b""}
        self.keep(dt.datetime.now(dt.UTC))
        wait_until(self._all_verified, "the new authority's certificate on every replica", _WAIT_S)
        self.keep(dt.datetime.now(dt.UTC) + SETTLE_TIME)

    def replace_replica(self) -> None:
        """Start a replica, and then end the oldest one."""
        self.start_replica()
        port, old = self.replicas.pop(0)
        ended = threading.Thread(target=old.stop, args=(DRAIN_S + 30,))
        ended.start()
        time.sleep(_ENDPOINT_S)
        self.forwarder.endpoints.remove(port)
        ended.join()

    def start_replica(self) -> None:
        """Start a replica, and make it an endpoint once it is ready."""
        port, number = free_port(), next(self._numbers)
        arguments = ["--port", str(port), "--drain-seconds", str(DRAIN_S), "--server-name", "127.0.0.1"]
        command = [sys.executable, "-m", "fluxqueue.webhook.main", "--host", "127.0.0.1", *arguments]
        process = Process(
            "webhook", [*command, "--cert-dir", self.folder / "tls"], self.folder / f"webhook-{number}.log"
        )
        process.start()
        self.replicas.append((port, process))
        wait_until(lambda: _ready(port), "a replica ready", _WAIT_S)
        self.forwarder.endpoints.append(port)

    def _all_verified(self) -> bool:
        context = ssl.create_default_context(cadata=self.secret["ca.crt"].decode())
        return all(_ready(port, context) for port, _ in self.replicas)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Have two replicas and a configuration until the end of the block."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.cluster.apply(space, configuration(self.forwarder.port))
        try:
            self.keep(dt.datetime.now(dt.UTC))
            self.start_replica()
            self.start_replica()
            yield
        finally:
            for _, process in self.replicas:
                process.stop(0)

    def measure(self, admissions: int, clients: int) -> dict[str, Any]:
        """Admit this many objects while everything is replaced in turns."""
        counted: list[float] = []
        failed: list[str] = []
        ended = threading.Event()

        def admit() -> None:
            while not ended.is_set():
                begun = time.perf_counter()
                try:
                    created = self.cluster.client.request(
                        "POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod(), query={"dryRun": "All"}
                    )
                    if not created["spec"].get("schedulingGates"):
                        failed.append("a pod was not gated")
                except (ApiServerError, OSError) as error:
                    failed.append(str(error))
                counted.append(time.perf_counter() - begun)

        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        wait_until(
            lambda: self.cluster.client.find(account) is not None, "the default service account", _WAIT_S
        )
        threads = [threading.Thread(target=admit) for _ in range(clients)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        try:
            for name in itertools.cycle(("replica", "certificate", "replica", "authority")):
                if len(counted) >= admissions:
                    break
                getattr(self, f"replace_{name}")()
                self.done[name] += 1
        finally:
            ended.set()
            for thread in threads:
                thread.join(_WAIT_S)
        elapsed = time.perf_counter() - begun
        taken = sorted(counted)
        return {
            "benchmark": "webhook_rotations",
            "load_before": os.getloadavg()[0],
            "admissions": len(taken),
            "failed": len(failed),
            "failures": dict(Counter(failed).most_common(5)),
            "replaced": dict(self.done),
            "per_s": round(len(taken) / elapsed, 1),
            "p50_ms": round(taken[len(taken) // 2] * 1e3, 1),
            "p99_ms": round(taken[int(len(taken) * 0.99)] * 1e3, 1),
            "max_ms": round(taken[-1] * 1e3, 1),
        }


def _ready(port: int, context: ssl.SSLContext | None = None) -> bool:
    if context is None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def pod() -> dict[str, Any]:
    """Return a pod to be gated."""
    metadata = {"generateName": "p-", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }


def configuration(port: int) -> dict[str, Any]:
    """Return the webhook configuration, without a bundle yet."""
    hook = {
        "name": "mutate.rotations.example",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
        "clientConfig": {"url": f"https://127.0.0.1:{port}/mutate"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        ],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": "rotations"}, "webhooks": [hook]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--admissions", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--output", type=Path, default=RESULTS / "webhook_rotations.json")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fluxqueue-bench-") as folder,
        ControlPlane(Path(folder) / "cluster", nodes=1) as cluster,
    ):
        bench = Bench(cluster, Path(folder))
        with bench.running():
            results = bench.measure(arguments.admissions, arguments.clients)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 0 if not results["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
