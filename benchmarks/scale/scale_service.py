"""The programs that the scale benchmark measures:
Postgres, Fluxion and the queue, as a pod runs them, next to the API server stand-in.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from fluxqueue.local.pki import Authority
from fluxqueue.local.ports import free_port
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.local.processes import Process

__all__ = ["ProcessUse", "ScaleService", "until"]

_FOLDER = Path(__file__).resolve().parent
_TESTS = _FOLDER.parent.parent / "tests"
_ENTRY = "import sys; from fluxqueue.cli.main import main; sys.exit(main())"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def until(what: str, holds: Callable[[], bool], within_s: float) -> float:
    """Wait until a condition holds; return the seconds that it took.

    Raises
    ------
    SystemExit
        The time is over.
    """
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > within_s:
            raise SystemExit(f"not within {within_s:g} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What a program uses, with its child processes:
    CPU seconds since its start, and memory in MiB (PSS: shared pages in parts).
    """

    cpu_s: float
    memory_mib: float


def _kubeconfig(port: int) -> str:
    """Return a kubeconfig for the API server stand-in."""
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "s", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "s", "user": {}}],
        "contexts": [{"name": "s", "context": {"cluster": "s", "user": "s"}}],
        "current-context": "s",
    }
    return json.dumps(whole)


class ScaleService:
    """One run of all programs, in one folder.

    Parameters
    ----------
    nodes, policy, seed
        Of the simulated cluster.
    """

    def __init__(self, folder: Path, nodes: int, policy: str, seed: int) -> None:
        self._folder = folder
        self._api_port, self._fluxion_port, self._health_port, self._metrics_port = (
            free_port() for _ in range(4)
        )
        self._postgres = LocalPostgres(folder / "postgres")
        authority = Authority(folder / "pki", dt.datetime.now(dt.UTC))
        pair = authority.issue_server("tls", ["127.0.0.1"])
        assert pair.certificate.name == "tls.crt"
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(self._api_port))
        options = [
            "--port",
            str(self._api_port),
            "--nodes",
            str(nodes),
            "--policy",
            policy,
            "--seed",
            str(seed),
        ]
        standin = [sys.executable, str(_FOLDER / "scale_api_server.py"), *options]
        self.api_server = Process(
            "API server stand-in", standin, folder / "api.log", {**os.environ, "PYTHONPATH": str(_TESTS)}
        )
        fluxion = [
            sys.executable,
            "-c",
            _ENTRY,
            "fluxion",
            "--host",
            "127.0.0.1",
            "--port",
            str(self._fluxion_port),
        ]
        self.fluxion = Process("fluxion", fluxion, folder / "fluxion.log")
        ports = [
            "--host",
            "127.0.0.1",
            "--health-port",
            str(self._health_port),
            "--metrics-port",
            str(self._metrics_port),
        ]
        queue = [
            sys.executable,
            "-c",
            _ENTRY,
            "queue",
            "--fluxion",
            f"127.0.0.1:{self._fluxion_port}",
            *ports,
        ]
        self._queue_command = [*queue, "--tls-dir", str(folder / "pki"), "--kubeconfig", str(kubeconfig)]
        self.queue = self._new_queue("")

    def _new_queue(self, dsn: str) -> Process:
        return Process(
            "queue", self._queue_command, self._folder / "queue.log", {**os.environ, "DATABASE_URL": dsn}
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[ScaleService]:
        """Run all programs, and end them."""
        self._postgres.start()
        try:
            self._dsn = self._postgres.create_database("scale")
            self.queue = self._new_queue(self._dsn)
            self.api_server.start()
            self.fluxion.start()
            self.api_server.wait_ready(lambda: self._answers(self._api_port, "/standin/counts"), 120)
            self.queue.start()
            self.wait_leading()
            yield self
        finally:
            for process in (self.queue, self.fluxion, self.api_server):
                process.stop()
            self._postgres.destroy()

    def wait_leading(self) -> float:
        """Wait until the queue leads and is ready; return the seconds since this was called."""
        began = time.monotonic()
        self.queue.wait_ready(self._leads, 900)
        return time.monotonic() - began

    def restart_queue(self) -> tuple[float, float]:
        """Start the queue again; return the seconds until it leads and is ready,
        and until its first cycle is over.
        """
        self.queue.stop(60)
        began = time.monotonic()
        self.queue.start()
        self.wait_leading()
        ready_s = time.monotonic() - began
        until("the first cycle after a restart", lambda: self.cycles()[0] > 0, 900)
        return ready_s, time.monotonic() - began

    # ---- what it says --------------------------------------------------------------------------------------

    def standin(self, method: str, path: str) -> Any:
        """Ask the stand-in something."""
        request = urllib.request.Request(f"http://127.0.0.1:{self._api_port}/standin/{path}", method=method)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def states(self) -> dict[str, int]:
        """Return the number of workloads by state."""
        with psycopg.connect(self._dsn) as connection:
            return dict(
                connection.execute("SELECT state, count(*) FROM fluxqueue.workload GROUP BY state").fetchall()
            )

    def cycles(self) -> tuple[int, float]:
        """Return how many cycles have ended since the start of the queue, and their seconds in all."""
        samples = {}
        for line in self._metrics().splitlines():
            name, _, value = line.partition(" ")
            samples[name] = value
        prefix = "fluxqueue_cycle_duration_seconds"
        return int(float(samples.get(f"{prefix}_count", 0))), float(samples.get(f"{prefix}_sum", 0))

    def use(self) -> dict[str, ProcessUse]:
        """Return what each program uses."""
        postgres = self._postgres.process
        found = {
            "queue": self.queue.pid,
            "fluxion": self.fluxion.pid,
            "postgres": postgres.pid if postgres else None,
        }
        return {
            name: _use(pid)
            for name, pid in {**found, "api stand-in": self.api_server.pid}.items()
            if pid is not None
        }

    def _leads(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health_port}/readyz", timeout=10) as answer:
                found = json.load(answer)
        except (OSError, ValueError):
            return False
        return bool(found["ready"]) and found["role"] == "leader"

    def _answers(self, port: int, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10):
                return True
        except OSError:
            return False

    def _metrics(self) -> str:
        context = ssl.create_default_context(cafile=str(self._folder / "pki/ca.crt"))
        connection = http.client.HTTPSConnection("127.0.0.1", self._metrics_port, timeout=60, context=context)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics", headers={"Authorization": "Bearer anyone"})
            response = connection.getresponse()
            body = response.read().decode()
        if response.status != 200:
            raise SystemExit(f"the queue's metrics answer {response.status}: {body[:300]}")
        return body


def _use(pid: int) -> ProcessUse:
    """Return what a process and all below it use."""
    children: dict[int, list[int]] = {}
    cpu: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            child = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(child)
            cpu[child] = sum(int(field) for field in fields[11:15]) / _TICKS_PER_S
    total_cpu_s = total_mib = 0.0
    waiting = [pid]
    while waiting:
        each = waiting.pop()
        waiting += children.get(each, [])
        total_cpu_s += cpu.get(each, 0.0)
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text()
            total_mib += (
                next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024
            )
    return ProcessUse(total_cpu_s, total_mib)
