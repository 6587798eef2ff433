"""How long `kubectl fluxqueue` takes for its first answer, and how long and how much memory for 10,000
workloads.

A server on this machine has the answers ready, in pages as the API server sends them, so the figures are
those of the plugin alone. The memory is the peak of the process (``ru_maxrss``).
``python benchmarks/plugin_speed.py --runs 15`` prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import fluxjob_name

STATES = ("Running", "Pending", "Pending", "Pending", "Completed")
_MEMBERS = [{"type": "core", "count": 2000}, {"type": "memory", "count": 4096}]
JOBSPEC = json.dumps(
    {
        "version": 1,
        "resources": [{"type": "slot", "count": 4, "label": "default", "with": _MEMBERS}],
        "tasks": [{"command": ["app"], "slot": "default", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 1800, "job": {"name": "default/solver"}}},
    }
)
_FIELDS: dict[str, Any] = {"f:status": {f"f:field{number}": {} for number in range(20)}}


def fluxjob(number: int) -> dict[str, Any]:
    """Return a FluxJob of usual size."""
    name, uid, state = (
        f"solver-{number:05d}",
        f"00000000-0000-4000-8000-{number:012d}",
        STATES[number % len(STATES)],
    )
    status: dict[str, Any] = {"state": state, "submittedAt": "2026-11-23T08:00:00Z", "account": "lab"}
    if state == "Pending":
        status |= {
            "reason": "WaitingForNodes",
            "message": "needs 24 cpu, 8 are free on 3 nodes",
            "position": number,
        }
    else:
        status |= {
            "nodes": "node-[1-4]",
            "jobid": number,
            "allocatedAt": "2026-11-23T08:00:01Z",
            "startedAt": "2026-11-23T08:00:02Z",
        }
    if state == "Completed":
        status |= {"finishedAt": "2026-11-23T09:00:02Z", "outcome": "Succeeded"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "FluxJob",
        "metadata": {
            "name": fluxjob_name("Job", name, uid),
            "namespace": "default",
            "uid": uid,
            "resourceVersion": str(number),
            "creationTimestamp": "2026-11-23T08:00:00Z",
            "labels": {names.QUEUE_LABEL: "default"},
            "managedFields": [
                {
                    "manager": "fluxqueue",
                    "operation": "Update",
                    "fieldsV1": {"f:status": {f"f:field{i}": {} for i in range(20)}},
                }
            ],
        },
        "spec": {
            "objectRef": {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid},
            "queue": "default",
            "priority": 0,
            "durationSeconds": 1800,
            "pods": 4,
            "jobspec": JOBSPEC,
        },
        "status": status,
    }


def pages(count: int, size: int = 500) -> list[bytes]:
    """Return the list of FluxJobs page by page."""
    made = []
    for start in range(0, max(count, 1), size):
        items = [fluxjob(number) for number in range(start, min(start + size, count))]
        more = {"continue": str(start + size)} if start + size < count else {}
        made.append(
            json.dumps(
                {"kind": "FluxJobList", "metadata": {"resourceVersion": "1", **more}, "items": items}
            ).encode()
        )
    return made


def serve(answers: list[bytes]) -> ThreadingHTTPServer:
    """Serve the pages on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            body = (
                answers[int(query.get("continue", ["0"])[0]) // 500]
                if "fluxjobs" in self.path
                else b'{"gitVersion": "v1.36.3"}'
            )
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def measured(words: list[str], kubeconfig: Path, runs: int) -> tuple[float, float, int]:
    """Return the median and the longest time in seconds, and the peak memory in MB."""
    program, times, peak = Path(sys.executable).with_name("kubectl-fluxqueue"), [], 0
    for _ in range(runs):
        began = time.monotonic()
        child = subprocess.Popen(
            [program, *words], stdout=subprocess.DEVNULL, env={**os.environ, "KUBECONFIG": str(kubeconfig)}
        )
        _, status, usage = os.wait4(child.pid, 0)
        times.append(time.monotonic() - began)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{words} ended with {child.returncode}")
        peak = max(peak, usage.ru_maxrss // 1024)
    return statistics.median(times), max(times), peak


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--workloads", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        few, many = (["--help"], ["jobs"], ["explain", "--help"]), (["jobs"], ["jobs", "-o", "json"])
        for count, commands in ((1, few), (options.workloads, many)):
            server = serve(pages(count))
            kubeconfig = Path(folder) / "config"
            cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}
            context = {"name": "c", "context": {"cluster": "c"}}
            document = {"current-context": "c", "clusters": [cluster], "contexts": [context]}
            kubeconfig.write_text(json.dumps(document))
            for words in commands:
                middle, longest, peak = measured(words, kubeconfig, options.runs)
                print(
                    f"{count} workloads, {' '.join(words)}: median {middle:.3f} s, "
                    f"longest {longest:.3f} s, {peak} MB"
                )
            server.shutdown()


if __name__ == "__main__":
    main()
