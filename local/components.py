"""The programs of a local control plane: their command lines and configuration files.

Client rate limits are raised, because the defaults (20 and 50 requests per second) would dominate all
measurements. Controller manager and scheduler serve no port and elect no leader. etcd listens on Unix sockets
in the data folder, because a port would give every local user access to the cluster, and it does not wait for
the disk.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from fluxqueue.local.binaries import Binaries, Tool
from fluxqueue.local.kubelet.identity import KUBELET_CLIENT
from fluxqueue.local.pki import KeyPair, write_private

__all__ = ["Command", "Component", "ComponentCommands", "ControlPlaneOptions", "etcd_is_healthy"]

Command = list[str | os.PathLike[str]]

_STAGES = Path(__file__).with_name("stages")
# a socket file named client:1 in the working directory: etcd requires the form host:port
_ETCD_CLIENT = "unix://client:1"
_ETCD_PEER = "unix://peer:1"
_DISABLED_CONTROLLERS = (
    "horizontal-pod-autoscaler-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "legacy-serviceaccount-token-cleaner-controller",
)
"""Not needed without certificates to sign and without metrics."""
_VOLUME_CONTROLLERS = (
    "ephemeral-volume-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
)
"""Not needed without volumes."""
_ENDPOINT_CONTROLLERS = (
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
)
"""They would only fail where pods are processes: EndpointSlices cannot have loopback addresses."""
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "Metadata"},
    ],
}


class Component(Enum):
    """A program of the control plane, in the order of their start."""

    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KWOK = "kwok"
    NODE_AGENT = "node-agent"


@dataclass(frozen=True)
class ControlPlaneOptions:
    """Options of a control plane.

    Attributes
    ----------
    feature_gates
        For the API server, the controller manager and the scheduler.
    api_server_flags, controller_manager_flags
        Additional flags of the API server and of the controller manager.
    volumes
        Run the controllers of volumes and claims. They provision no volumes; that is the task of a
        provisioner.
    audit
        Write every request to ``audit.log`` in the data folder, metadata only. It takes CPU time.
    processes
        The pods run as processes of this machine, by the node agent; else kwok simulates them.
    """

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    api_server_flags: Sequence[str] = ()
    controller_manager_flags: Sequence[str] = ()
    volumes: bool = False
    audit: bool = False
    processes: bool = False


class ComponentCommands:
    """The command of each component, in the data folder of a control plane.

    Parameters
    ----------
    folder
        Data folder: the working directory of all components.
    pki
        Folder of the certificates and keys.
    binaries
        The programs.
    options
        Options of the control plane.
    """

    def __init__(self, folder: Path, pki: Path, binaries: Binaries, options: ControlPlaneOptions) -> None:
        self._folder = folder
        self._pki = pki
        self._binaries = binaries
        self._options = options

    def of(self, component: Component, port: int | None, scheduler_settings: Mapping[str, Any]) -> Command:
        """Return the command of a component; ``port`` is that of the API server, once it has one."""
        match component:
            case Component.ETCD:
                return self.etcd()
            case Component.CONTROLLER_MANAGER:
                return self.controller_manager()
            case Component.SCHEDULER:
                return self.scheduler(scheduler_settings)
            case Component.KWOK:
                return self.kwok()
        assert port is not None
        return self.api_server(port) if component is Component.API_SERVER else self.node_agent(port)

    def etcd(self) -> Command:
        """Return the command of etcd; its sockets are created in the working directory."""
        for name in ("client:1", "peer:1"):
            (self._folder / name).unlink(missing_ok=True)
        return [
            self._binaries[Tool.ETCD],
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

    def api_server(self, port: int) -> Command:
        """Return the command of the API server, which serves on ``port`` of the loopback address."""
        server = KeyPair(self._pki / "apiserver.crt", self._pki / "apiserver.key")
        audit = []
        if self._options.audit:
            policy = write_private(self._folder / "audit-policy.json", json.dumps(_AUDIT_POLICY).encode())
            audit = [f"--audit-policy-file={policy}", f"--audit-log-path={self._folder / 'audit.log'}"]
        return [
            self._binaries[Tool.API_SERVER],
            f"--etcd-servers={_ETCD_CLIENT}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={port}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--client-ca-file={self._pki / 'ca.crt'}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",  # as installers of clusters set it
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",  # as OpenShift sets it
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._pki / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={self._pki / 'service-accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--request-timeout=30s",
            "--profiling=false",
            *audit,
            *(self._kubelet_flags() if self._options.processes else ()),
            *self._gate_flags(),
            *self._options.api_server_flags,
        ]

    def _kubelet_flags(self) -> list[str]:
        return [
            f"--kubelet-client-certificate={self._pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={self._pki / 'kubelet-client.key'}",
            f"--kubelet-certificate-authority={self._pki / 'ca.crt'}",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def controller_manager(self) -> Command:
        """Return the command of the controller manager."""
        kubeconfig = self._folder / "controller-manager.kubeconfig"
        left_out = [*_DISABLED_CONTROLLERS]
        left_out += [] if self._options.volumes else _VOLUME_CONTROLLERS
        left_out += _ENDPOINT_CONTROLLERS if self._options.processes else []
        return [
            self._binaries[Tool.CONTROLLER_MANAGER],
            f"--kubeconfig={kubeconfig}",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._pki / 'service-accounts.key'}",
            f"--root-ca-file={self._pki / 'ca.crt'}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--controllers=*,{','.join(f'-{name}' for name in left_out)}",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--profiling=false",
            *self._gate_flags(),
            *self._options.controller_manager_flags,
        ]

    def scheduler(self, settings: Mapping[str, Any]) -> Command:
        """Return the command of the scheduler; ``settings`` are fields of its KubeSchedulerConfiguration."""
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(self._folder / "scheduler.kubeconfig"),
                "qps": 1000,
                "burst": 2000,
            },
            "leaderElection": {"leaderElect": False},
            "enableProfiling": False,
            **settings,
        }
        path = write_private(self._folder / "scheduler.json", json.dumps(config).encode())
        return [self._binaries[Tool.SCHEDULER], f"--config={path}", "--secure-port=0", *self._gate_flags()]

    def kwok(self) -> Command:
        """Return the command of kwok, which simulates the kubelets of all nodes."""
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
        path = write_private(self._folder / "kwok.json", json.dumps(config).encode())
        stages = [f"--config={stage}" for stage in sorted(_STAGES.glob("*.yaml"))]
        kubeconfig = f"--kubeconfig={self._folder / 'kwok.kubeconfig'}"
        return [
            self._binaries[Tool.KWOK],
            kubeconfig,
            "--manage-all-nodes",
            f"--config={path}",
            *stages,
            "--v=WARN",
        ]

    def node_agent(self, api_server_port: int) -> Command:
        """Return the command of the node agent, which runs the pods of all nodes."""
        configuration = {
            "kubeconfig": str(self._folder / "node-agent.kubeconfig"),
            "api_server_port": api_server_port,
            "folder": str(self._folder / "pods"),
            "certificate": str(self._pki / "kubelet.crt"),
            "key": str(self._pki / "kubelet.key"),
            "authority": str(self._pki / "ca.crt"),
            "client": KUBELET_CLIENT,
            "version": self._binaries.kubernetes,
        }
        path = write_private(self._folder / "node-agent.json", json.dumps(configuration).encode())
        return [sys.executable, "-m", "fluxqueue.local.kubelet.main", path]

    def _gate_flags(self) -> list[str]:
        gates = ",".join(
            f"{gate}={str(on).lower()}" for gate, on in sorted(self._options.feature_gates.items())
        )
        return [f"--feature-gates={gates}"] if gates else []


def etcd_is_healthy(folder: Path) -> bool:
    """Return true if the etcd of a data folder answers its health check."""
    # the path of the socket may be longer than a socket address can be
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(f"/proc/self/fd/{descriptor}/client:1")
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status == 200
    except OSError:
        return False
    finally:
        os.close(descriptor)
