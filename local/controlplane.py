"""A real Kubernetes control plane on one machine: etcd, API server, controller manager, scheduler, and kwok
in place of kubelets.

It is like a cluster in all that the queue depends on: RBAC is enabled, each controller uses its own
ServiceAccount, the admission plugins are the defaults, and tokens come from the API server. The nodes are
objects without machines (`fake_nodes`); kwok simulates their pods by the Stage files in the folder
``stages``. `components` describes the other differences.

etcd starts first, then the API server, then all other components at once. An existing data folder is used
again, with its certificates and its state, and the API server keeps its port if that is free.
"""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fluxqueue.local.apiserver_client import ApiServerClient
from fluxqueue.local.applying import Applier
from fluxqueue.local.binaries import Binaries, Tool, find_binaries
from fluxqueue.local.components import (
    Command,
    Component,
    ComponentCommands,
    ControlPlaneOptions,
    etcd_is_healthy,
)
from fluxqueue.local.fake_nodes import LEASES, FakeNodes, FakeNodeShape
from fluxqueue.local.kubeconfigs import write_certificate_kubeconfig, write_token_kubeconfig
from fluxqueue.local.kubectl import run_kubectl
from fluxqueue.local.kubelet.children import kill_marked
from fluxqueue.local.kubelet.identity import AGENT_RIGHTS, issue_agent_certificates
from fluxqueue.local.kubelet.limits import remove_groups
from fluxqueue.local.kubernetes_versions import remember_version
from fluxqueue.local.pki import (
    Authority,
    KeyPair,
    issue_component_certificates,
    make_signing_keys,
    write_private,
)
from fluxqueue.local.ports import free_port, is_free
from fluxqueue.local.processes import Process, ProcessEnded, ProcessError, wait_until
from fluxqueue.local.started import Started

__all__ = ["ControlPlane"]

_TOKEN_LIFETIME_S = 30 * 86_400
_PORT_ATTEMPTS = 5
_NOT_STARTED = "this control plane is not started: call start() first"


class ControlPlane(Started):
    """A control plane with fake nodes; a context manager, also an asynchronous one.

    Parameters
    ----------
    folder
        Folder of certificates, state and logs; created if it does not exist, otherwise used again.
    nodes, node_shape
        The number of nodes and their shape.
    options
        See `fluxqueue.local.components.ControlPlaneOptions`.
    binaries
        The programs; by default they are found, or built.
    """

    _host = "127.0.0.1"
    """The address of the API server for its clients."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 8,
        node_shape: FakeNodeShape | None = None,
        *,
        options: ControlPlaneOptions | None = None,
        binaries: Binaries | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self._node_count = nodes
        self._node_shape = node_shape or FakeNodeShape()
        self._options = options or ControlPlaneOptions()
        self._binaries = binaries
        self._controllers = (Component.CONTROLLER_MANAGER, Component.SCHEDULER, *self._node_programs())
        self._pki = self.folder / "pki"
        self._processes: dict[Component, Process] = {}
        self._port: int | None = None
        self._client: ApiServerClient | None = None
        self._wanted: set[Component] = set()
        self._stopping = False
        self._scheduler_settings: dict[str, Any] = {}

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    @property
    def port(self) -> int | None:
        """The port of the API server; None before the first start."""
        return self._port

    @property
    def server(self) -> str:
        """The URL of the API server."""
        if self._port is None:
            raise RuntimeError(_NOT_STARTED)
        return f"https://{self._host}:{self._port}"

    @property
    def authority(self) -> Path:
        """The CA certificate of the API server."""
        return self._pki / "ca.crt"

    @property
    def client(self) -> ApiServerClient:
        """A client of the API server, as administrator."""
        if self._client is None:
            raise RuntimeError(_NOT_STARTED)
        return self._client

    @property
    def nodes(self) -> FakeNodes:
        """The nodes."""
        return FakeNodes(self.client, self._node_shape)

    @property
    def binaries(self) -> Binaries:
        """The programs."""
        if self._binaries is None:
            self._binaries = find_binaries()
        return self._binaries

    @property
    def processes(self) -> Mapping[Component, Process]:
        """The process of each component that was started."""
        return self._processes

    def start(self, timeout_s: float = 120, *, definitions: Sequence[Mapping[str, Any]] = ()) -> None:
        """Start all components and wait until the nodes are ready and pods can be created.

        Parameters
        ----------
        timeout_s
            Time limit of each step.
        definitions
            CustomResourceDefinitions to create before the controllers start. The garbage collector discovers
            new kinds only every 30 s, and until then it does not delete their objects when the owners are
            deleted.

        Raises
        ------
        ProcessError
            A component ended, or is not ready in time; with its last log lines.
        BinariesError
            The programs are missing and cannot be built.
        StateIsNewer
            A newer Kubernetes has used the folder.
        """
        self._stopping = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            remember_version(self.folder, self.binaries.kubernetes)
            self._make_certificates()
            self.start_component(Component.ETCD, timeout_s)
            self.start_component(Component.API_SERVER, timeout_s)
            self.apply(*definitions)
            wait_until(lambda: all(map(self._served, definitions)), "the custom resources served", timeout_s)
            if Component.NODE_AGENT in self._controllers:
                self.apply(AGENT_RIGHTS)
            for component in self._controllers:
                self._launch(component)
            self.nodes.add(range(1, self._node_count + 1))
            wait_until(self._usable, "every node Ready and the default service account there", timeout_s)
            if Component.KWOK in self._controllers:
                self.nodes.simulate()
                self.nodes.resync_pods(timeout_s)
        except BaseException:
            self.stop(graceful=False)
            raise

    def stop(self, *, graceful: bool = True) -> None:
        """Stop all components; ``graceful=False`` kills them, which is faster and loses no data."""
        self._stopping = True  # this also ends a start in another thread
        self._wanted.clear()
        if self._client is not None:
            self._client.close()
        for component in reversed(Component):
            if process := self._processes.get(component):
                process.stop(None if graceful else 0)
        if self._options.processes:  # an agent that was killed could not end what its containers had started
            kill_marked(str(pods := self.folder / "pods"))
            remove_groups(pods)

    def destroy(self) -> None:
        """Stop at once and remove the data folder."""
        self.stop(graceful=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_component(self, component: Component, timeout_s: float = 60) -> None:
        """Start one component and wait until it is ready;
        the controller manager and the scheduler do not report that.

        kwok starts anew with the API server: after a broken watch it waits up to 45 s before it looks again
        (measured), and it may miss what became of a pod meanwhile for ever.
        """
        if component is Component.API_SERVER:
            self._start_api_server(timeout_s)
            if Component.KWOK in self._wanted:
                self.restart_component(Component.KWOK, graceful=False, timeout_s=timeout_s)
            return
        process = self._launch(component)
        if component is Component.ETCD:
            process.wait_ready(lambda: etcd_is_healthy(self.folder), timeout_s)
        if component is Component.KWOK:
            self.nodes.resync_pods(timeout_s)

    def stop_component(self, component: Component, *, graceful: bool = True) -> None:
        """Stop one component; the others continue to run."""
        self._wanted.discard(component)
        self._processes[component].stop(None if graceful else 0)

    def died(self, component: Component) -> bool:
        """True if a component ended without being stopped."""
        return component in self._wanted and not self._processes[component].running

    def restart_component(
        self, component: Component, *, graceful: bool = True, timeout_s: float = 60
    ) -> None:
        """Stop one component (``graceful=False``: kill it) and start it again;
        the API server keeps its port.
        """
        self.stop_component(component, graceful=graceful)
        self.start_component(component, timeout_s)

    def configure_scheduler(self, **settings: Any) -> None:
        """Restart the scheduler with these fields of its KubeSchedulerConfiguration,
        for example ``extenders``.
        """
        self._scheduler_settings = settings
        self.restart_component(Component.SCHEDULER)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; for the parameters see `run_kubectl`."""
        return run_kubectl(
            self.binaries[Tool.KUBECTL],
            self.kubectl_environment(),
            arguments,
            stdin=stdin,
            check=check,
            timeout_s=timeout_s,
        )

    def kubectl_environment(self) -> dict[str, str]:
        """Return an environment in which kubectl and other clients use this control plane as
        administrator.
        """
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.folder / "kubectl-cache"),
        }

    def apply(self, *objects: Mapping[str, Any], namespace: str = "default") -> None:
        """Apply objects server-side, in this order; ``namespace`` is for objects that name none."""
        Applier(self.client).apply(objects, namespace)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with a new token of a ServiceAccount, which is valid for 30 days,
        and return its path.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.client.request(
            "POST",
            path,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _TOKEN_LIFETIME_S},
            },
        )
        target = self.folder / "serviceaccounts" / f"{namespace}.{name}.kubeconfig"
        target.parent.mkdir(exist_ok=True, mode=0o700)
        return write_token_kubeconfig(
            target, self.server, self.authority, answer["status"]["token"], namespace
        )

    # ---- certificates and kubeconfigs ----------------------------------------------------------------------

    def _make_certificates(self) -> None:
        complete = self._pki / "complete"
        if complete.exists() and (not self._options.processes or (self._pki / "kubelet.crt").exists()):
            return
        shutil.rmtree(self._pki, ignore_errors=True)
        authority = Authority(self._pki, datetime.datetime.now(datetime.UTC))
        make_signing_keys(self._pki)
        self._issue_certificates(authority)
        complete.touch()

    def _issue_certificates(self, authority: Authority) -> None:
        issue_component_certificates(authority, self._host)
        issue_agent_certificates(authority)

    def _pair(self, name: str) -> KeyPair:
        return KeyPair(self._pki / f"{name}.crt", self._pki / f"{name}.key")

    def _write_kubeconfigs(self) -> None:
        for name in (
            "admin",
            "controller-manager",
            "scheduler",
            "kwok",
            *(["node-agent"] if self._options.processes else []),
        ):
            write_certificate_kubeconfig(
                self.folder / f"{name}.kubeconfig", self.server, self.authority, self._pair(name)
            )

    def _node_programs(self) -> tuple[Component, ...]:
        """Return what plays the kubelets."""
        return (Component.NODE_AGENT if self._options.processes else Component.KWOK,)

    def _launch(self, component: Component) -> Process:
        if self._stopping:
            raise ProcessError(f"{component.value} is not started: the control plane is being stopped")
        # with the leases of the previous kwok, this one would not manage the nodes for 40 s
        if component is Component.KWOK:
            self.client.request("DELETE", LEASES)
        process = Process(
            component.value,
            self._command(component),
            log=self.folder / "logs" / f"{component.value}.log",
            folder=self.folder,
            stop_timeout_s=5,
            # it ends its pods before it ends
            death_signal=signal.SIGTERM if component is Component.NODE_AGENT else signal.SIGKILL,
        )
        self._processes[component] = process
        process.start()
        self._wanted.add(component)
        return process

    def _start_api_server(self, timeout_s: float) -> None:
        """Start the API server on its previous port, or on a free one;
        retry on another port if that was taken meanwhile.
        """
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
        previous = self.folder / "port"
        if not fresh and previous.exists() and is_free(port := int(previous.read_text())):
            return port
        return free_port()

    def _command(self, component: Component) -> Command:
        commands = ComponentCommands(self.folder, self._pki, self.binaries, self._options)
        return commands.of(component, self._port, self._scheduler_settings)

    def _served(self, definition: Mapping[str, Any]) -> bool:
        spec = definition["spec"]
        paths = [
            f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
            for version in spec["versions"]
            if version["served"]
        ]
        return all(self.client.reachable(path) for path in paths)

    def _usable(self) -> bool:
        for process in self._processes.values():
            if not process.running:
                raise ProcessEnded(
                    f"{process.name} ended before the control plane was ready{process.log_excerpt()}"
                )
        if self.client.find("/api/v1/namespaces/default/serviceaccounts/default") is None:
            return False
        return self.nodes.schedulable() >= self._node_count
