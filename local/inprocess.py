"""A whole local cluster: Postgres, a control plane, the project's chart, and its programs as processes.

An `InProcessCluster` belongs to the process that starts it: a test session, or the daemon behind
``fluxqueue local up`` (`daemon`). Postgres and the control plane start concurrently. Then the chart is
installed with the values of a local cluster, and its containers run as processes (`chart`). The cluster is up
when every program is ready and the webhook configurations have the webhook's certificate. From then on a
supervisor restarts programs that end by themselves.

The folder of a cluster can be used again later. If the control plane starts without state, the database is
created again too, because its content would not match.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from psycopg import conninfo

from fluxqueue.local.binaries import Binaries, Tool
from fluxqueue.local.chart import ChartPod, RenderedChart, read_pod, render
from fluxqueue.local.cluster_options import ClusterOptions, ProcessStatus
from fluxqueue.local.components import Component, ControlPlaneOptions
from fluxqueue.local.container_process import ContainerProcess
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.fake_nodes import FakeNodeShape
from fluxqueue.local.operator_requests import OperatorRequests
from fluxqueue.local.pki import write_private
from fluxqueue.local.ports import free_port, is_free
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.local.processes import NotReady, Process, describe_exit, wait_until
from fluxqueue.local.started import Started
from fluxqueue.local.supervised_services import SupervisedComponent, SupervisedPostgres
from fluxqueue.local.supervision import Supervised, Supervisor
from fluxqueue.local.values import DATABASE_SECRET, PORTS, cluster_values, merged

__all__ = ["NAMESPACE", "RELEASE", "InProcessCluster"]

RELEASE = "fluxqueue"
NAMESPACE = "fluxqueue-system"
_DATABASE = "fluxqueue"


class InProcessCluster(Started):
    """A local cluster that this process runs; a context manager, also an asynchronous one.

    Parameters
    ----------
    folder
        Folder of all its files; created if it does not exist, otherwise used again.
    options
        See `ClusterOptions`.
    report
        Called with a short text for each step.
    binaries
        The Kubernetes programs; by default they are found, or built.
    extra_environment
        Additional variables of the project's programs.
    """

    def __init__(
        self,
        folder: Path,
        options: ClusterOptions | None = None,
        *,
        report: Callable[[str], None] | None = None,
        binaries: Binaries | None = None,
        extra_environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.options = options or ClusterOptions()
        self.programs: dict[str, ContainerProcess] = {}
        self._report = report or (lambda _: None)
        self._extra_environment = extra_environment
        self._supervisor: Supervisor | None = None
        self._operators: OperatorRequests | None = None
        self.postgres = LocalPostgres(
            self.folder / "postgres", durable=self.options.durable, dsn=self.options.dsn
        )
        self.control_plane = ControlPlane(
            self.folder / "controlplane",
            nodes=self.options.nodes,
            node_shape=FakeNodeShape(
                self.options.node_cpu,
                self.options.node_memory,
                self.options.node_gpus,
                self.options.node_pods,
            ),
            options=ControlPlaneOptions(
                feature_gates=self.options.feature_gates or {},
                api_server_flags=self.options.api_server_flags,
                controller_manager_flags=self.options.controller_manager_flags,
                volumes=self.options.volumes,
                audit=self.options.audit,
                processes=self.options.processes,
            ),
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

    @property
    def operators(self) -> OperatorRequests:
        """Requests to the operators' ports, with tokens of the chart's ServiceAccounts."""
        if self._operators is None:
            self._operators = OperatorRequests(
                lambda: self.control_plane.client, NAMESPACE, f"{RELEASE}-doctor"
            )
        return self._operators

    def start(self, timeout_s: float = 180) -> None:
        """Start the cluster and wait until all programs are ready.

        Raises
        ------
        ProcessError
            A program ended, or is not ready in time; with its last log lines.
        ChartError, BinariesError, PostgresError
            A part is missing or cannot be used.
        """
        deadline = time.monotonic() + timeout_s
        try:
            # Postgres does not run as root, so its account must be able to enter this folder; the other
            # subfolders are private.
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)
            for private in ("programs", "logs"):
                (self.folder / private).mkdir(exist_ok=True, mode=0o700)
            charts = self._render()
            self._start_services(charts[0])
            self._report("installing the chart")
            self._install(charts[0])
            self._add_programs(charts)
            *others, last = self.programs
            self._report(f"starting {', '.join(others)} and {last}")
            self._start_programs()
            self._wait_ready(deadline)
        except BaseException:
            self.stop(graceful=False)
            raise

    def stop(self, *, graceful: bool = True) -> None:
        """Stop everything, the project's programs first; ``graceful=False`` kills all but Postgres."""
        # its tokens end with the ServiceAccounts, which a later start may create again
        self._operators = None
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None
        threads = [
            threading.Thread(target=program.stop, kwargs={"graceful": graceful})
            for program in self.programs.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.control_plane.stop(graceful=graceful)
        self.postgres.stop()

    def destroy(self) -> None:
        """Stop at once and remove all files of the cluster."""
        self.stop(graceful=False)
        self.control_plane.destroy()
        self.postgres.destroy()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; see `ControlPlane.kubectl`."""
        return self.control_plane.kubectl(*arguments, stdin=stdin, check=check, timeout_s=timeout_s)

    def running(self) -> list[ProcessStatus]:
        """Return the state of each process of the cluster."""
        processes = []
        if self.postgres.process is not None:
            processes.append(self._status("postgres", self.postgres.process, None, ready=None))
        for component, process in self.control_plane.processes.items():
            port = self.control_plane.port if component is Component.API_SERVER else None
            processes.append(self._status(component.value, process, port, ready=None))
        for name, program in self.programs.items():
            status = self._status(name, program.process, program.port, ready=program.ready())
            processes.append(replace(status, metrics_port=program.metrics_port))
        return processes

    # ---- parts of the start --------------------------------------------------------------------------------

    def _start_services(self, chart: RenderedChart) -> None:
        """Start Postgres and the control plane, with the chart's kinds, concurrently;
        wait for both even if one fails.
        """
        empty = not (self.control_plane.folder / "etcd").exists()
        self._report("starting Postgres and the control plane")
        with ThreadPoolExecutor(2, thread_name_prefix="services") as pool:
            controllers = pool.submit(self.control_plane.start, definitions=chart.definitions)
            starts = [controllers, pool.submit(self._start_database, empty)]
            try:
                for future in starts:
                    future.result()
            except BaseException:  # also an interruption: stop the control plane, so that its start ends
                self.control_plane.stop(graceful=False)
                raise

    def _start_database(self, empty: bool) -> None:
        self.postgres.start()
        if empty:
            self.postgres.drop_database(_DATABASE)
        if not self.postgres.has_database(_DATABASE):
            self.postgres.create_database(_DATABASE)

    def _render(self) -> list[RenderedChart]:
        """Render the chart with the ports of each replica; the first result is installed."""
        binaries = self.control_plane.binaries
        first = self._ports(0)
        rendered = []
        for replica in range(max(self._replicas.values())):
            ports = {**self._ports(replica), "webhook": first["webhook"]} if replica else first
            values = merged(cluster_values(ports, self.options.scheduler), self.options.values or {})
            rendered.append(
                render(binaries[Tool.HELM], RELEASE, NAMESPACE, values, kubernetes=binaries.kubernetes)
            )
        return rendered

    @property
    def _replicas(self) -> dict[str, int]:
        """Replicas by component; components that are missing here have one."""
        return {"queue": self.options.queue_replicas, "scheduler": self.options.scheduler_replicas}

    def _ports(self, replica: int) -> dict[str, int]:
        """Return the ports of a replica's programs: the previous ones if they are free."""
        path = self.folder / f"ports-{replica}.json"
        previous: list[int] = json.loads(path.read_text()) if path.exists() else []
        ports = (
            previous
            if len(previous) == len(PORTS) and all(map(is_free, previous))
            else [free_port() for _ in PORTS]
        )
        write_private(path, json.dumps(ports).encode())
        return dict(zip(PORTS, ports, strict=True))

    def _install(self, chart: RenderedChart) -> None:
        cluster = self.control_plane
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        url = base64.b64encode(_database_url(self.database_dsn).encode()).decode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": DATABASE_SECRET},
            "data": {"url": url},
        }
        cluster.apply(secret, *chart.objects, namespace=NAMESPACE)
        cluster.apply(*chart.late, namespace=NAMESPACE)

    def _add_programs(self, charts: list[RenderedChart]) -> None:
        for replica, chart in enumerate(charts):
            for deployment in chart.deployments:
                component = deployment["metadata"]["labels"].get("app.kubernetes.io/component", "")
                if replica < self._replicas.get(component, 1):
                    self._add_pod(read_pod(deployment, NAMESPACE), replica)

    def _add_pod(self, pod: ChartPod, replica: int) -> None:
        folder = self.folder / "programs" / f"{pod.deployment}-{replica}"
        for container in pod.containers:
            name = container.name if replica == 0 else f"{container.name}-{replica}"
            log = self.folder / "logs" / f"{name}.log"
            self.programs[name] = ContainerProcess(
                pod, container, replica, folder, log, self.control_plane, self._extra_environment
            )

    def _start_programs(self) -> None:
        for program in self.programs.values():
            program.start()
        components = [SupervisedComponent(self.control_plane, component) for component in Component]
        things: list[Supervised] = [SupervisedPostgres(self.postgres), *components, *self.programs.values()]
        self._supervisor = Supervisor(things, self._report)
        self._supervisor.start()

    def _wait_ready(self, deadline: float) -> None:
        for name, program in self.programs.items():
            self._report(f"waiting for {name}")
            while not program.ready():
                if time.monotonic() > deadline:
                    ended = (
                        ""
                        if program.process.running
                        else f" ({program.waits_for or describe_exit(program.process.exit_code)})"
                    )
                    raise NotReady(f"{name} is not ready{ended}{program.process.log_excerpt()}")
                time.sleep(0.05)
        wait_until(
            self._webhook_trusted,
            "the webhook's certificate in its configuration",
            max(1, deadline - time.monotonic()),
        )
        wait_until(
            self._graph_exists, "the resource graph of the leading queue", max(1, deadline - time.monotonic())
        )

    def _webhook_trusted(self) -> bool:
        kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        lists = [
            self.control_plane.client.get(f"/apis/admissionregistration.k8s.io/v1/{kind}")["items"]
            for kind in kinds
        ]
        hooks = [
            hook
            for items in lists
            for item in items
            if item["metadata"]["name"].startswith(RELEASE)
            for hook in item["webhooks"]
        ]
        return all(hook["clientConfig"].get("caBundle") for hook in hooks)

    def _graph_exists(self) -> bool:
        """True if the leading queue has initialised its matcher, or a foreign one elsewhere;
        it is ready shortly before its first cycle.
        """
        from fluxqueue.fluxion.errors import NotInitialised
        from fluxqueue.fluxion.messages import CallContext
        from fluxqueue.fluxion.rpc.client import FluxionClient
        from fluxqueue.fluxion.rpc.failures import DeadlinePassed, FluxionUnavailable

        matchers = [program for program in self.programs.values() if program.container.name == "fluxion"]
        for program in matchers:
            if program.port is not None:
                try:
                    with FluxionClient(f"127.0.0.1:{program.port}") as client:
                        client.list_jobs(call=CallContext())
                except (NotInitialised, FluxionUnavailable, DeadlinePassed):
                    continue
                return True
        return not matchers

    def _status(self, name: str, process: Process, port: int | None, *, ready: bool | None) -> ProcessStatus:
        state = describe_exit(process.exit_code)
        if process.running:
            state = "running" if ready in (None, True) else "not ready"
        restarts = self._supervisor.restarts(name) if self._supervisor else 0
        return ProcessStatus(
            name, process.pid if process.running else None, state, port, restarts, process.log
        )


def _database_url(dsn: str) -> str:
    """Return a connection string in the URL form of the chart's Secret."""
    if "://" in dsn:
        return dsn
    parts = conninfo.conninfo_to_dict(dsn)
    name = quote(str(parts.pop("dbname", "")), safe="")
    return f"postgresql:///{name}?" + "&".join(
        f"{key}={quote(str(value), safe='')}" for key, value in parts.items()
    )
