"""Reviews per second of one webhook process, and the time of one review.

The real program with a real certificate: TLS 1.3, HTTP/1.1, connections kept open like the API server's. The
load comes from a separate process, so on a machine of two cores each has one. The server's CPU time per
review is printed next to the rate, because it does not depend on other load of the machine. Reviews are like
the API server's, about 4 KB with managed fields: a third Jobs to be suspended, a third pods to be gated, a
third pods to be pinned out of a list of 64 nodes.

    python benchmarks/webhook_reviews.py [--seconds 5] [--output benchmarks/results/webhook_reviews.json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import json
import os
import platform
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from fluxqueue.certs.authority import ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import write_pair

RESULTS = Path(__file__).parent / "results"
GOALS = {"reviews_per_s": 2_000, "p99_ms_at_50_per_s": 10.0}
CONNECTIONS = 16
PACED_PER_S = 50
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Reviews per second of one webhook process, and their latency at 50 a second."
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="length of each part; the paced one takes four times as long (default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS / "webhook_reviews.json",
        help="JSON file (default: %(default)s)",
    )
    parser.add_argument("--generate", nargs=3, metavar=("PORT", "AUTHORITY", "PART"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.generate:
        port, authority, part = arguments.generate
        import uvloop

        print(json.dumps(uvloop.run(generate(int(port), Path(authority), part, arguments.seconds))))
        return 0
    results = measure(arguments.seconds)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 0 if results["goals_met"] else 1


def measure(seconds: float) -> dict[str, Any]:
    """Start the program, apply each load, and print the results."""
    with tempfile.TemporaryDirectory() as folder, webhook(Path(folder)) as (pid, port, started_s):
        authority = Path(folder) / "authority.pem"
        idle_mib = resident_mib(pid)
        parts: dict[str, Any] = {}
        for part in ("warm-up", "one connection", f"{CONNECTIONS} connections", f"{PACED_PER_S} a second"):
            before = cpu_s(pid)
            command = [
                sys.executable,
                __file__,
                "--seconds",
                str(1.0 if part == "warm-up" else seconds),
                "--generate",
                str(port),
                str(authority),
                part,
            ]
            answered = json.loads(
                subprocess.run(command, check=True, capture_output=True, timeout=4 * seconds + 60).stdout
            )
            answered["server_cpu_us_per_review"] = round((cpu_s(pid) - before) * 1e6 / answered["reviews"])
            parts[part] = answered
        del parts["warm-up"]
        busy_mib = resident_mib(pid)
    full, paced = parts[f"{CONNECTIONS} connections"], parts[f"{PACED_PER_S} a second"]
    met = full["per_s"] >= GOALS["reviews_per_s"] and paced["p99_ms"] <= GOALS["p99_ms_at_50_per_s"]
    return {
        "benchmark": "webhook_reviews",
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_before": os.getloadavg()[0],
        },
        "review_bytes": [len(review) for review in reviews()],
        "started_s": round(started_s, 2),
        "resident_mib": {"idle": idle_mib, "after": busy_mib},
        "parts": parts,
        "goals": GOALS,
        "goals_met": met,
    }


@contextlib.contextmanager
def webhook(folder: Path) -> Iterator[tuple[int, int, float]]:
    """Start the program on a free port; return its pid, the port, and the seconds from start to listening."""
    now = dt.datetime.now(dt.UTC)
    authority = make_authority("benchmark", now)
    write_pair(
        folder / "tls",
        issue_leaf(authority, ServingNames(dns=("localhost",), addresses=("127.0.0.1",)), now),
        now,
    )
    (folder / "authority.pem").write_bytes(authority.certificate)
    begun = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "fluxqueue.webhook.main",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--cert-dir",
        str(folder / "tls"),
    ]
    with subprocess.Popen([*command, "--drain-seconds", "0"], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if (entry := json.loads(line))["event"] == "webhook.listening":
                    break
            else:
                raise RuntimeError("the webhook ended before it listened")
            yield process.pid, entry["port"], time.monotonic() - begun
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024


class Client(asyncio.Protocol):
    """One keep-alive connection with one review in flight at a time."""

    def __init__(self) -> None:
        self._received = b""
        self._waiting: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return
        self._received = b""
        assert self._waiting is not None
        if not self._waiting.done():
            self._waiting.set_result(head[9:12] + rest)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error or ConnectionResetError("the server closed the connection"))

    async def post(self, request: bytes) -> None:
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        answer = await asyncio.wait_for(self._waiting, 30)
        if not (answer.startswith(b"200") and b'"patchType":"JSONPatch"' in answer):
            raise RuntimeError(f"not a patch: {answer[:300]!r}")


async def generate(port: int, authority: Path, part: str, seconds: float) -> dict[str, Any]:
    """Apply one kind of load: as fast as the server responds, or at a steady rate."""
    context = ssl.create_default_context(cafile=str(authority))
    requests = [
        (
            "POST /mutate HTTP/1.1\r\n"
            "Host: localhost\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "\r\n"
        ).encode()
        + body
        for body in reviews()
    ]
    loop = asyncio.get_running_loop()

    async def connect() -> Client:
        return (
            await loop.create_connection(Client, "127.0.0.1", port, ssl=context, server_hostname="localhost")
        )[1]

    taken: list[float] = []
    begun = time.perf_counter()

    async def hurry(client: Client, first: int) -> None:
        turn = first
        while (at := time.perf_counter()) < begun + seconds:
            await client.post(requests[turn % len(requests)])
            taken.append(time.perf_counter() - at)
            turn += 1

    async def pace(clients: asyncio.Queue[Client], turn: int) -> None:
        due = begun + turn / PACED_PER_S
        await asyncio.sleep(due - time.perf_counter())
        client = await clients.get()
        await client.post(requests[turn % len(requests)])
        taken.append(time.perf_counter() - due)
        clients.put_nowait(client)

    if part.endswith("a second"):
        clients: asyncio.Queue[Client] = asyncio.Queue()
        for _ in range(CONNECTIONS):
            clients.put_nowait(await connect())
        begun = time.perf_counter() + 0.1
        await asyncio.gather(*(pace(clients, turn) for turn in range(int(4 * seconds * PACED_PER_S))))
    else:
        count = CONNECTIONS if part.endswith("connections") else 1
        each = [await connect() for _ in range(count)]
        begun = time.perf_counter()
        await asyncio.gather(*(hurry(client, first) for first, client in enumerate(each)))
    elapsed = time.perf_counter() - begun
    taken.sort()
    return {
        "reviews": len(taken),
        "per_s": round(len(taken) / elapsed, 1),
        "p50_ms": round(taken[len(taken) // 2] * 1e3, 3),
        "p99_ms": round(taken[int(len(taken) * 0.99)] * 1e3, 3),
        "max_ms": round(taken[-1] * 1e3, 3),
    }


def reviews() -> list[bytes]:
    """Return the reviews: a Job to suspend, a pod to gate, and a pod to pin."""
    spec = _pod_spec()
    fields = {
        "f:metadata": {"f:labels": {".": {}, **{f"f:label-{number}": {} for number in range(30)}}},
        "f:spec": {"f:containers": {}},
    }
    managed = [
        {
            "manager": "kubectl",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2030-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
    ]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "lammps",
            "namespace": "default",
            "labels": {"app": "lammps", "fluxqueue/queue": "long"},
            "managedFields": managed,
        },
        "spec": {
            "parallelism": 64,
            "completions": 64,
            "completionMode": "Indexed",
            "backoffLimit": 6,
            "suspend": False,
            "template": {"metadata": {"labels": {"app": "lammps"}}, "spec": spec},
        },
        "status": {},
    }
    owned = _owned_by_job(managed)
    allocation = {
        "fluxqueue/allocation": "17",
        "fluxqueue/pin-until": "2100-01-01T00:00:00Z",
        "fluxqueue/fluxion-nodes": ",".join(f"rack{at % 7}-node{at:04d}" for at in range(64)),
    }
    gated = {"apiVersion": "v1", "kind": "Pod", "metadata": owned, "spec": spec, "status": {}}
    pinned = {
        **gated,
        "metadata": {**owned, "annotations": {**owned["annotations"], **allocation}},
        "spec": {**spec, "schedulingGates": [{"name": "fluxqueue"}]},
    }
    return [_review(thing) for thing in (job, gated, pinned)]


def _owned_by_job(managed: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "generateName": "lammps-17-",
        "namespace": "default",
        "labels": {
            "app": "lammps",
            "batch.kubernetes.io/job-completion-index": "17",
            "batch.kubernetes.io/job-name": "lammps",
        },
        "annotations": {"batch.kubernetes.io/job-completion-index": "17"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "lammps",
                "uid": "u",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": managed,
    }


def _pod_spec() -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example.com/hpc/lammps:2024.1",
        "command": ["/bin/sh", "-c", "mpirun lmp -in in.reaxc.hns -v x 8 -v y 8 -v z 8"],
        "env": [{"name": f"SETTING_{number}", "value": "x" * 20} for number in range(12)],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}},
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "token", "mountPath": "/var/run/secrets", "readOnly": True},
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        ],
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
        ],
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
    }


def _review(thing: dict[str, Any]) -> bytes:
    group, _, version = thing["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": thing["kind"]}
    user = "alice" if thing["kind"] == "Job" else "system:serviceaccount:kube-system:job-controller"
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": {"group": group, "version": version, "resource": f"{thing['kind'].lower()}s"},
        "requestKind": kind,
        "name": thing["metadata"].get("name", ""),
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": user, "uid": "u", "groups": ["system:authenticated"]},
        "object": thing,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl"},
    }
    return json.dumps(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request},
        separators=(",", ":"),
    ).encode()


if __name__ == "__main__":
    sys.exit(main())
