"""Everything of fluxqueue on one machine: Postgres, a control plane, the project's chart, and its programs as processes.

`InProcessPlane` belongs to the process that starts it: a test session, or the supervisor behind ``fluxqueue local up`` (`daemon`).
Postgres and the control plane start side by side; then the chart is installed with the values a single machine needs, and the programs
run as the chart says (`chart`). It is up when every program says it is ready and the API server has been told whom to ask about new
pods. From then on a supervisor starts again what ends by itself.

A plane's folder can be taken up again later. A cluster that begins anew gets an empty database, because nothing the old one said
would be true.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from psycopg import conninfo

from fluxqueue.local.binaries import Binaries, Tool
from fluxqueue.local.chart import Pod, RenderedChart, read_pod, render
from fluxqueue.local.controlplane import Component, ControlPlane
from fluxqueue.local.fake_nodes import RACK_LABEL, ZONE_LABEL
from fluxqueue.local.pki import write_private
from fluxqueue.local.ports import free_port, is_free
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.local.processes import NotReady, Process, describe_exit, wait_until
from fluxqueue.local.programs import Program
from fluxqueue.local.supervision import Supervised, Supervisor

__all__ = ["NAMESPACE", "RELEASE", "InProcessPlane", "PlaneOptions", "Running"]

RELEASE = "fluxqueue"
NAMESPACE = "fluxqueue-system"
_DATABASE = "fluxqueue"
_DATABASE_SECRET = "fluxqueue-local-database"  # noqa: S105  (the name of a Secret)
_PORTS = ("webhook", "queue", "fluxion")


@dataclass(frozen=True)
class PlaneOptions:
    """What can be chosen about a plane.

    Attributes
    ----------
    nodes, node_cpu, node_memory, node_gpus
        The fake nodes.
    queue_replicas
        How many queues run, each with a matcher of its own; one leads.
    durable
        Whether Postgres survives a crash of the machine.
    dsn
        A Postgres to use instead of our own.
    values
        Helm values that override ours.
    audit
        Whether the API server keeps an audit log.
    feature_gates
        Of the control plane.
    """

    nodes: int = 8
    node_cpu: str = "8"
    node_memory: str = "32Gi"
    node_gpus: int = 0
    queue_replicas: int = 1
    durable: bool = True
    dsn: str | None = None
    values: Mapping[str, Any] | None = None
    audit: bool = False
    feature_gates: Mapping[str, bool] | None = None


@dataclass(frozen=True)
class Running:
    """One process of a plane, for people to look at."""

    name: str
    pid: int | None
    state: str
    port: int | None
    restarts: int
    log: Path


class InProcessPlane:
    """A whole fluxqueue; a context manager, also an asynchronous one.

    Parameters
    ----------
    folder
        Everything it writes is below; made if missing, taken up again if not.
    options
        See `PlaneOptions`.
    report
        Told what is being done, in short sentences.
    binaries
        The Kubernetes programs; found, or built, if not given.
    extra_environment
        More variables for our programs.
    """

    def __init__(
        self,
        folder: Path,
        options: PlaneOptions | None = None,
        *,
        report: Callable[[str], None] | None = None,
        binaries: Binaries | None = None,
        extra_environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.options = options or PlaneOptions()
        self.programs: dict[str, Program] = {}
        self._report = report or (lambda _: None)
        self._extra_environment = extra_environment
        self._supervisor: Supervisor | None = None
        self.postgres = LocalPostgres(self.folder / "postgres", durable=self.options.durable, dsn=self.options.dsn)
        self.control_plane = ControlPlane(
            self.folder / "controlplane",
            nodes=self.options.nodes,
            node_cpu=self.options.node_cpu,
            node_memory=self.options.node_memory,
            node_gpus=self.options.node_gpus,
            feature_gates=self.options.feature_gates,
            audit=self.options.audit,
            binaries=binaries,
        )

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.control_plane.kubeconfig

    @property
    def database_dsn(self) -> str:
        """Connection string of the queue's database."""
        return self.postgres.database_dsn(_DATABASE)

    def start(self, timeout_s: float = 180) -> None:
        """Start everything and wait until the programs say they are ready.

        Raises
        ------
        ProcessError
            Something ended or is not ready in time; with its last log lines.
        ChartError, BinariesError, PostgresError
            What it is made of is missing or does not fit.
        """
        deadline = time.monotonic() + timeout_s
        try:
            # Postgres does not run as root: its account must get through to its folder below. What is in ours guards itself.
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)
            for private in ("programs", "logs"):
                (self.folder / private).mkdir(exist_ok=True, mode=0o700)
            self._start_services()
            self._report("installing the chart")
            charts = self._render()
            self._install(charts[0])
            self._report("starting webhook, queue and fluxion")
            self._start_programs(charts)
            self._wait_ready(deadline)
        except BaseException:
            self.stop(graceful=False)
            raise

    def stop(self, *, graceful: bool = True) -> None:
        """End everything, our programs first; ``graceful=False`` kills all but Postgres."""
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None
        threads = [threading.Thread(target=program.stop, kwargs={"graceful": graceful}) for program in self.programs.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.control_plane.stop(graceful=graceful)
        self.postgres.stop()

    def destroy(self) -> None:
        """Stop at once and remove everything the plane wrote."""
        self.stop(graceful=False)
        self.control_plane.destroy()
        self.postgres.destroy()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator, see `ControlPlane.kubectl`."""
        return self.control_plane.kubectl(*arguments, stdin=stdin, check=check, timeout_s=timeout_s)

    def running(self) -> list[Running]:
        """Every process of the plane and how it is."""
        found = []
        if self.postgres.process is not None:
            found.append(self._running("postgres", self.postgres.process, None, ready=None))
        for component, process in self.control_plane.processes.items():
            port = self.control_plane.port if component is Component.API_SERVER else None
            found.append(self._running(component.value, process, port, ready=None))
        found.extend(self._running(name, program.process, program.port, ready=program.ready()) for name, program in self.programs.items())
        return found

    def __enter__(self) -> InProcessPlane:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(graceful=False)

    async def __aenter__(self) -> InProcessPlane:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.stop, graceful=False)

    # ---- what is underneath ------------------------------------------------------------------------------------------------------

    def _start_services(self) -> None:
        """Postgres and the control plane at the same time; both are waited for even if one fails, so that both can be stopped."""
        anew = not (self.control_plane.folder / "etcd").exists()
        self._report("starting Postgres and the control plane")
        with ThreadPoolExecutor(2, thread_name_prefix="services") as pool:
            waiting = [pool.submit(self.control_plane.start), pool.submit(self._start_database, anew)]
            try:
                for future in waiting:
                    future.result()
            except BaseException:  # also an interruption: end what the other one waits for
                self.control_plane.stop(graceful=False)
                raise

    def _start_database(self, anew: bool) -> None:
        self.postgres.start()
        if anew:
            self.postgres.drop_database(_DATABASE)
        if not self.postgres.has_database(_DATABASE):
            self.postgres.create_database(_DATABASE)

    def _render(self) -> list[RenderedChart]:
        """The chart with each queue replica's own ports; the first is what is installed."""
        helm = self.control_plane.binaries[Tool.HELM]
        webhook, *_ = first = self._ports(0)
        rendered = [render(helm, RELEASE, NAMESPACE, merged(self._values(*first), self.options.values or {}))]
        for replica in range(1, self.options.queue_replicas):
            _, queue, fluxion = self._ports(replica)
            rendered.append(render(helm, RELEASE, NAMESPACE, merged(self._values(webhook, queue, fluxion), self.options.values or {})))
        return rendered

    def _values(self, webhook: int, queue: int, fluxion: int) -> dict[str, Any]:
        return {
            "postgres": {"enabled": False},
            "database": {"existingSecret": {"name": _DATABASE_SECRET, "key": "url"}},
            "webhook": {
                "replicas": 1,
                "host": "127.0.0.1",
                "port": webhook,
                "clientUrl": f"https://127.0.0.1:{webhook}",
                "drainSeconds": 0,  # there are no endpoints that it must leave first
            },
            "queue": {
                "replicas": 1,
                "host": "127.0.0.1",
                "metricsPort": queue,
                "config": {"zoneLabel": ZONE_LABEL, "rackLabel": RACK_LABEL},
            },
            "fluxion": {"port": fluxion},
        }

    def _ports(self, replica: int) -> list[int]:
        """Ports of a replica's programs; the former ones if they are free."""
        path = self.folder / f"ports-{replica}.json"
        former: list[int] = json.loads(path.read_text()) if path.exists() else []
        ports = former if len(former) == len(_PORTS) and all(map(is_free, former)) else [free_port() for _ in _PORTS]
        write_private(path, json.dumps(ports).encode())
        return ports

    def _install(self, chart: RenderedChart) -> None:
        plane = self.control_plane
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *chart.definitions)
        url = base64.b64encode(_database_url(self.database_dsn).encode()).decode()
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _DATABASE_SECRET}, "data": {"url": url}}
        plane.apply(secret, *chart.objects, namespace=NAMESPACE)
        plane.apply(*chart.late, namespace=NAMESPACE)

    def _start_programs(self, charts: list[RenderedChart]) -> None:
        for replica, chart in enumerate(charts):
            for deployment in chart.deployments:
                pod = read_pod(deployment, NAMESPACE)
                if replica == 0 or deployment["metadata"]["labels"].get("app.kubernetes.io/component") == "queue":
                    self._add_programs(pod, replica)
        for program in self.programs.values():
            program.start()
        components = [_SupervisedComponent(self.control_plane, component) for component in Component]
        things: list[Supervised] = [_SupervisedPostgres(self.postgres), *components, *self.programs.values()]
        self._supervisor = Supervisor(things, self._report)
        self._supervisor.start()

    def _add_programs(self, pod: Pod, replica: int) -> None:
        folder = self.folder / "programs" / f"{pod.deployment}-{replica}"
        for container in pod.containers:
            name = container.name if replica == 0 else f"{container.name}-{replica}"
            log = self.folder / "logs" / f"{name}.log"
            self.programs[name] = Program(pod, container, replica, folder, log, self.control_plane, self._extra_environment)

    def _wait_ready(self, deadline: float) -> None:
        for name, program in self.programs.items():
            self._report(f"waiting for {name}")
            while not program.ready():
                if time.monotonic() > deadline:
                    ended = "" if program.process.running else f" ({describe_exit(program.process.exit_code)})"
                    raise NotReady(f"{name} is not ready{ended}{program.process.log_excerpt()}")
                time.sleep(0.05)
        wait_until(self._webhook_trusted, "the webhook's certificate in its configuration", max(1, deadline - time.monotonic()))

    def _webhook_trusted(self) -> bool:
        kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        found = [self.control_plane.client.get(f"/apis/admissionregistration.k8s.io/v1/{kind}")["items"] for kind in kinds]
        ours = [hook for items in found for item in items if item["metadata"]["name"].startswith(RELEASE) for hook in item["webhooks"]]
        return all(hook["clientConfig"].get("caBundle") for hook in ours)

    def _running(self, name: str, process: Process, port: int | None, *, ready: bool | None) -> Running:
        state = describe_exit(process.exit_code)
        if process.running:
            state = "running" if ready in (None, True) else "not ready"
        restarts = self._supervisor.restarts(name) if self._supervisor else 0
        return Running(name, process.pid if process.running else None, state, port, restarts, process.log)


class _SupervisedPostgres:
    name = "postgres"

    def __init__(self, postgres: LocalPostgres) -> None:
        self._postgres = postgres

    def died(self) -> bool:
        return self._postgres.died()

    def revive(self) -> None:
        self._postgres.start()

    def tend(self) -> None:
        pass


class _SupervisedComponent:
    def __init__(self, plane: ControlPlane, component: Component) -> None:
        self._plane = plane
        self._component = component
        self.name = component.value

    def died(self) -> bool:
        return self._plane.died(self._component)

    def revive(self) -> None:
        self._plane.start_component(self._component)

    def tend(self) -> None:
        pass


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Values with others laid over them, as helm does it: maps are merged, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def _database_url(dsn: str) -> str:
    """A connection string as URL, which is what the chart's Secret holds."""
    if "://" in dsn:
        return dsn
    parts = conninfo.conninfo_to_dict(dsn)
    name = quote(str(parts.pop("dbname", "")), safe="")
    return f"postgresql:///{name}?" + "&".join(f"{key}={quote(str(value), safe='')}" for key, value in parts.items())
