"""A real Kubernetes control plane on one machine: etcd, API server, controller manager, scheduler, and kwok in place of kubelets.

Everything is as in a cluster where it matters to us: RBAC is on, each controller acts under its own service account, admission
plugins are the defaults, tokens come from the API server. What differs is said here. Nodes are objects whose pods kwok "runs"
according to the Stage files beside this module. etcd listens on Unix sockets in the data folder, since its port would be an
unguarded door to the cluster, and does not wait for the disk. Controller manager and scheduler serve no port and elect no leader.
Client rate limits are lifted, because the defaults (20 and 50 requests per second) are what one would measure otherwise.

Start order: etcd, then the API server, then the rest at once. A data folder that exists is taken up again with its certificates
and state; the port is kept if it is free.
"""

from __future__ import annotations

import asyncio
import datetime
import http.client
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

from fluxqueue.local.apiserver_client import ApiError, ApiServerClient
from fluxqueue.local.applying import Applier
from fluxqueue.local.binaries import Binaries, Tool, find_binaries
from fluxqueue.local.fake_nodes import NodeShape, node_name, node_object
from fluxqueue.local.kubeconfigs import write_certificate_kubeconfig, write_token_kubeconfig
from fluxqueue.local.pki import Authority, KeyPair, make_signing_keys, write_private
from fluxqueue.local.ports import free_port, is_free
from fluxqueue.local.processes import Process, ProcessEnded, ProcessError, wait_until

__all__ = ["Component", "ControlPlane", "KubectlError", "administrator_client"]

_STAGES = Path(__file__).with_name("stages")
_ETCD_CLIENT = "unix://client:1"  # a socket file called client:1 in the working folder: etcd wants host:port
_ETCD_PEER = "unix://peer:1"
_STUCK = "fluxqueue.local/stuck"
_TOKEN_LIFETIME_S = 30 * 86_400
_PORT_ATTEMPTS = 5

# What nobody needs on a machine without volumes, certificates to sign or metrics to scale by.
_LEFT_OUT_CONTROLLERS = (
    "horizontal-pod-autoscaler-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "ephemeral-volume-controller",
    "legacy-serviceaccount-token-cleaner-controller",
)


class KubectlError(RuntimeError):
    """kubectl ended with an error; the message holds what it said."""


class Component(Enum):
    """A program of the control plane."""

    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KWOK = "kwok"


class ControlPlane:
    """A control plane with fake nodes; a context manager, also an asynchronous one.

    Parameters
    ----------
    folder
        Certificates, state and logs; made if missing, taken up again if not.
    nodes, node_cpu, node_memory, node_gpus
        How many nodes and what each offers.
    feature_gates
        For API server, controller manager and scheduler alike.
    api_server_flags
        More flags of the API server.
    audit
        Write every request to ``audit.log`` in ``folder``, metadata only. Costs CPU.
    binaries
        The programs; found, or built, if not given.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 8,
        node_cpu: int | str = 8,
        node_memory: str = "32Gi",
        node_gpus: int = 0,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        api_server_flags: Sequence[str] = (),
        audit: bool = False,
        binaries: Binaries | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.node_count = nodes
        self.node_shape = NodeShape(cpu=str(node_cpu), memory=node_memory, gpus=node_gpus)
        self._gates = ",".join(f"{gate}={str(on).lower()}" for gate, on in sorted((feature_gates or {}).items()))
        self._api_server_flags = tuple(api_server_flags)
        self._audit = audit
        self._binaries = binaries
        self._pki = self.folder / "pki"
        self._processes: dict[Component, Process] = {}
        self._port: int | None = None
        self._client: ApiServerClient | None = None
        self._wanted: set[Component] = set()
        self._stopping = False

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    @property
    def port(self) -> int | None:
        """Where the API server listens; ``None`` before the first start."""
        return self._port

    @property
    def server(self) -> str:
        """Address of the API server."""
        if self._port is None:
            raise RuntimeError("this control plane is not started: call start() first")
        return f"https://127.0.0.1:{self._port}"

    @property
    def authority(self) -> Path:
        """Certificate that the API server's certificate is signed by."""
        return self._pki / "ca.crt"

    @property
    def client(self) -> ApiServerClient:
        """Requests to the API server as administrator."""
        if self._client is None:
            raise RuntimeError("this control plane is not started: call start() first")
        return self._client

    @property
    def binaries(self) -> Binaries:
        """The programs in use."""
        if self._binaries is None:
            self._binaries = find_binaries()
        return self._binaries

    @property
    def processes(self) -> Mapping[Component, Process]:
        """The process of each component that was started."""
        return self._processes

    def start(self, timeout_s: float = 120) -> None:
        """Start everything and wait until the API server is ready, the nodes are and pods can be created.

        Raises
        ------
        ProcessError
            A component ended or is not ready in time; with its last log lines.
        BinariesError
            The programs are missing and cannot be built.
        """
        self._stopping = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._make_certificates()
            self.start_component(Component.ETCD, timeout_s)
            self.start_component(Component.API_SERVER, timeout_s)
            for component in (Component.CONTROLLER_MANAGER, Component.SCHEDULER, Component.KWOK):
                self._launch(component)
            self.add_nodes(range(1, self.node_count + 1))
            wait_until(self._usable, "every node Ready and the default service account there", timeout_s)
        except BaseException:
            self.stop(graceful=False)
            raise

    def stop(self, *, graceful: bool = True) -> None:
        """End everything; ``graceful=False`` kills, which loses nothing but takes no time."""
        self._stopping = True  # also for a start that is under way in another thread
        self._wanted.clear()
        if self._client is not None:
            self._client.close()
        for component in reversed(Component):
            if process := self._processes.get(component):
                process.stop(None if graceful else 0)

    def destroy(self) -> None:
        """Stop at once and remove the data folder."""
        self.stop(graceful=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_component(self, component: Component, timeout_s: float = 60) -> None:
        """Start one component and wait until it is ready (as far as that can be seen from outside)."""
        if component is Component.API_SERVER:
            self._start_api_server(timeout_s)
            return
        process = self._launch(component)
        if component is Component.ETCD:
            process.wait_ready(self._etcd_healthy, timeout_s)

    def stop_component(self, component: Component, *, graceful: bool = True) -> None:
        """End one component and leave the rest running without it."""
        self._wanted.discard(component)
        self._processes[component].stop(None if graceful else 0)

    def died(self, component: Component) -> bool:
        """Whether a component ended that nobody stopped."""
        return component in self._wanted and not self._processes[component].running

    def restart_component(self, component: Component, *, graceful: bool = True, timeout_s: float = 60) -> None:
        """Stop one component (``graceful=False``: kill it) and start it again; the API server keeps its port."""
        self.stop_component(component, graceful=graceful)
        self.start_component(component, timeout_s)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator.

        Parameters
        ----------
        arguments
            As on the command line.
        stdin
            Text for ``-f -``.
        check
            Whether an exit code other than 0 raises.
        timeout_s
            For the whole run.

        Raises
        ------
        KubectlError
            With kubectl's own message.
        """
        command = [str(self.binaries[Tool.KUBECTL]), *arguments]
        done = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=self.kubectl_environment(),
        )
        if check and done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)} ended with exit code {done.returncode}: {done.stderr.strip()}")
        return done

    def kubectl_environment(self) -> dict[str, str]:
        """An environment in which kubectl and other clients reach this control plane as administrator."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.folder / "kubectl-cache")}

    def apply(self, *objects: Mapping[str, Any], namespace: str = "default") -> None:
        """Apply objects server side, in this order; ``namespace`` is for those that name none."""
        Applier(self.client).apply(objects, namespace)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with a fresh token of a ServiceAccount (valid for 30 days), and return its path."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.client.request(
            "POST",
            path,
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": _TOKEN_LIFETIME_S}},
        )
        target = self.folder / "serviceaccounts" / f"{namespace}.{name}.kubeconfig"
        target.parent.mkdir(exist_ok=True, mode=0o700)
        return write_token_kubeconfig(target, self.server, self.authority, answer["status"]["token"], namespace)

    def add_nodes(self, indexes: Iterable[int], shape: NodeShape | None = None, labels: dict[str, str] | None = None) -> list[str]:
        """Create nodes that are not there yet; returns their names without waiting for them."""

        def add(index: int) -> str:
            try:
                self.client.request("POST", "/api/v1/nodes", node_object(index, shape or self.node_shape, labels=labels))
            except ApiError as error:
                if error.status != 409:
                    raise
            return node_name(index)

        with ThreadPoolExecutor(4, thread_name_prefix="nodes") as pool:
            return list(pool.map(add, indexes))

    def remove_node(self, name: str) -> None:
        """Delete a node; the controller manager deletes its pods."""
        self.client.request("DELETE", f"/api/v1/nodes/{name}")

    def return_node(self, index: int) -> None:
        """Create a node anew that was removed, and end what was deleted from it meanwhile, as its kubelet would.

        The fake kubelet hears of no deletion while there is no node, and not always of it afterwards.
        """
        (name,) = self.add_nodes([index])
        for pod in self.client.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"]:
            meta = pod["metadata"]
            if "deletionTimestamp" in meta and (meta.get("annotations") or {}).get(_STUCK) != "true":
                with suppress(ApiError):  # it may be gone by now
                    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                    self.client.request("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})

    def set_node_down(self, name: str, down: bool = True) -> None:
        """Make a node NotReady, or Ready again, through the annotation the Stage files obey."""
        body = {"metadata": {"annotations": {"fluxqueue.local/down": "true" if down else None}}}
        self.client.request("PATCH", f"/api/v1/nodes/{name}", body)

    def __enter__(self) -> ControlPlane:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(graceful=False)

    async def __aenter__(self) -> ControlPlane:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.stop, graceful=False)

    # ---- certificates and kubeconfigs --------------------------------------------------------------------------------------------

    def _make_certificates(self) -> None:
        complete = self._pki / "complete"
        if complete.exists():
            return
        shutil.rmtree(self._pki, ignore_errors=True)
        authority = Authority(self._pki, datetime.datetime.now(datetime.UTC))
        make_signing_keys(self._pki)
        names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"]
        authority.issue_server("apiserver", names)
        authority.issue_client("admin", "kubernetes-admin", ["system:masters"])
        authority.issue_client("controller-manager", "system:kube-controller-manager")
        authority.issue_client("scheduler", "system:kube-scheduler")
        authority.issue_client("kwok", "fluxqueue-local:kwok", ["system:masters"])
        complete.touch()

    def _pair(self, name: str) -> KeyPair:
        return KeyPair(self._pki / f"{name}.crt", self._pki / f"{name}.key")

    def _write_kubeconfigs(self) -> None:
        for name in ("admin", "controller-manager", "scheduler", "kwok"):
            write_certificate_kubeconfig(self.folder / f"{name}.kubeconfig", self.server, self.authority, self._pair(name))

    # ---- processes ---------------------------------------------------------------------------------------------------------------

    def _launch(self, component: Component) -> Process:
        if self._stopping:
            raise ProcessError(f"{component.value} is not started: the control plane is being stopped")
        if component is Component.KWOK:  # a former kwok's leases would keep this one from touching its nodes for 40 s
            self.client.request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        process = Process(
            component.value,
            self._command(component),
            log=self.folder / "logs" / f"{component.value}.log",
            folder=self.folder,
            stop_timeout_s=5,
        )
        self._processes[component] = process
        process.start()
        self._wanted.add(component)
        return process

    def _start_api_server(self, timeout_s: float) -> None:
        """Start it on its former port, or on a free one; again with another if that was taken meanwhile."""
        for attempt in range(_PORT_ATTEMPTS):
            self._port = self._choose_port(fresh=attempt > 0)
            self._write_kubeconfigs()
            if self._client is not None:
                self._client.close()
            if self._client is None or self._client.port != self._port:
                self._client = ApiServerClient(self._port, self.authority, self._pair("admin"))
            process = self._launch(Component.API_SERVER)
            try:
                process.wait_ready(lambda: self.client.reachable("/readyz"), timeout_s)
            except ProcessEnded:
                if attempt + 1 < _PORT_ATTEMPTS and "address already in use" in process.log_text():
                    continue
                raise
            write_private(self.folder / "port", str(self._port).encode())
            return

    def _choose_port(self, *, fresh: bool) -> int:
        former = self.folder / "port"
        if not fresh and former.exists() and is_free(port := int(former.read_text())):
            return port
        return free_port()

    def _command(self, component: Component) -> list[str | os.PathLike[str]]:
        match component:
            case Component.ETCD:
                return self._etcd_command()
            case Component.API_SERVER:
                return self._api_server_command()
            case Component.CONTROLLER_MANAGER:
                return self._controller_manager_command()
            case Component.SCHEDULER:
                return self._scheduler_command()
            case Component.KWOK:
                return self._kwok_command()

    def _etcd_command(self) -> list[str | os.PathLike[str]]:
        for name in ("client:1", "peer:1"):
            (self.folder / name).unlink(missing_ok=True)
        return [
            self.binaries[Tool.ETCD],
            "--data-dir=etcd",
            f"--listen-client-urls={_ETCD_CLIENT}",
            f"--advertise-client-urls={_ETCD_CLIENT}",
            f"--listen-peer-urls={_ETCD_PEER}",
            f"--initial-advertise-peer-urls={_ETCD_PEER}",
            f"--initial-cluster=default={_ETCD_PEER}",
            "--heartbeat-interval=100",
            "--election-timeout=1000",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _api_server_command(self) -> list[str | os.PathLike[str]]:
        server = self._pair("apiserver")
        audit = []
        if self._audit:
            policy = write_private(self.folder / "audit-policy.json", json.dumps(_AUDIT_POLICY).encode())
            audit = [f"--audit-policy-file={policy}", f"--audit-log-path={self.folder / 'audit.log'}"]
        return [
            self.binaries[Tool.API_SERVER],
            f"--etcd-servers={_ETCD_CLIENT}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._port}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--client-ca-file={self.authority}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",  # as installers of clusters set it
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._pki / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={self._pki / 'service-accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--request-timeout=30s",
            "--profiling=false",
            *audit,
            *self._gate_flags(),
            *self._api_server_flags,
        ]

    def _controller_manager_command(self) -> list[str | os.PathLike[str]]:
        kubeconfig = self.folder / "controller-manager.kubeconfig"
        return [
            self.binaries[Tool.CONTROLLER_MANAGER],
            f"--kubeconfig={kubeconfig}",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._pki / 'service-accounts.key'}",
            f"--root-ca-file={self.authority}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--controllers=*,{','.join(f'-{name}' for name in _LEFT_OUT_CONTROLLERS)}",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--profiling=false",
            *self._gate_flags(),
        ]

    def _scheduler_command(self) -> list[str | os.PathLike[str]]:
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.folder / "scheduler.kubeconfig"), "qps": 1000, "burst": 2000},
            "leaderElection": {"leaderElect": False},
            "enableProfiling": False,
        }
        path = write_private(self.folder / "scheduler.json", json.dumps(config).encode())
        return [self.binaries[Tool.SCHEDULER], f"--config={path}", "--secure-port=0", *self._gate_flags()]

    def _kwok_command(self) -> list[str | os.PathLike[str]]:
        config = {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "options": {
                "podPlayStageParallelism": 8,
                "nodePlayStageParallelism": 8,
                "nodeLeaseParallelism": 4,
                "nodeLeaseDurationSeconds": 40,
                "podsOnNodeSyncParallelism": 4,
            },
        }
        path = write_private(self.folder / "kwok.json", json.dumps(config).encode())
        stages = [f"--config={stage}" for stage in sorted(_STAGES.glob("*.yaml"))]
        kubeconfig = f"--kubeconfig={self.folder / 'kwok.kubeconfig'}"
        return [self.binaries[Tool.KWOK], kubeconfig, "--manage-all-nodes", f"--config={path}", *stages, "--v=WARN"]

    def _gate_flags(self) -> list[str]:
        return [f"--feature-gates={self._gates}"] if self._gates else []

    # ---- readiness ---------------------------------------------------------------------------------------------------------------

    def _etcd_healthy(self) -> bool:
        folder = os.open(self.folder, os.O_RDONLY)  # the socket's path may be longer than an address can be
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(2)
                connection.connect(f"/proc/self/fd/{folder}/client:1")
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                return answer.status == 200
        except OSError:
            return False
        finally:
            os.close(folder)

    def _usable(self) -> bool:
        for process in self._processes.values():
            if not process.running:
                raise ProcessEnded(f"{process.name} ended before the control plane was ready{process.log_excerpt()}")
        if self.client.find("/api/v1/namespaces/default/serviceaccounts/default") is None:
            return False
        nodes = self.client.get("/api/v1/nodes", resourceVersion="0")["items"]
        return sum(map(_ready, nodes)) >= self.node_count


def administrator_client(folder: Path) -> ApiServerClient:
    """Requests as administrator to the control plane that runs in ``folder``, from any process that may read it."""
    pki = folder / "pki"
    return ApiServerClient(int((folder / "port").read_text()), pki / "ca.crt", KeyPair(pki / "admin.crt", pki / "admin.key"))


def _ready(node: Mapping[str, Any]) -> bool:
    """Whether pods could be bound to this node now: Ready, and the taint of its first moments gone."""
    conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", ())}
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints


_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]}, {"level": "Metadata"}],
}
