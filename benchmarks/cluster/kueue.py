"""Kueue's manager as a process next to a local control plane, for work of ``batch/v1`` Jobs.

The program and its manifests come from the Go module that ``benchmarks/kueue/go.mod`` pins. The manifests are
those of ``config/default`` with these changes: the Deployment runs here, the Service of the webhooks leads to
this machine, and webhooks of other kinds than Jobs and Kueue's own are left out, because they would only slow
it down. Kueue makes its certificates itself, as it is shipped. This module writes their Secret to the folder
that Kueue reads, as a kubelet would.
"""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.kueue_objects import KueueQueues
from cluster.sites import Site
from fluxqueue.local.binaries import Tool, cached_programs
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.go_modules import GoModule
from fluxqueue.local.pki import write_private
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import Process
from fluxqueue.local.toolchain import build_tools
from fluxqueue.local.user_folders import cache_folder

__all__ = ["KUEUE_VERSION", "Kueue", "KueueSettings", "installed"]

KUEUE_VERSION = "v0.19.2"
_MODULE = GoModule(
    "kueue",
    f"Kueue {KUEUE_VERSION} (about 5 minutes on 2 cores, once)",
    source=Path(__file__).parents[1] / "kueue",
    assets={"sigs.k8s.io/kueue": ("config",)},
)
_NAMESPACE = "kueue-system"
_ACCOUNT = "kueue-controller-manager"
_SERVICE, _SECRET = "kueue-webhook-service", "kueue-webhook-server-cert"
_SKIPPED_KINDS = frozenset({"Namespace", "Deployment", "Service", "APIService", "ConfigMap"})
_DEFINITION, _CONFIGURATION = "CustomResourceDefinition", "WebhookConfiguration"
_CALLED_FOR = frozenset(
    {"jobs", "jobs/status", "workloads", "workloads/status", "clusterqueues", "cohorts", "resourceflavors"}
)


@dataclass(frozen=True)
class KueueSettings:
    """What differs between Kueue as it is shipped and Kueue tuned for throughput.

    Attributes
    ----------
    qps, burst
        Of its client, in requests per second.
    workers
        Concurrent reconciles of Jobs, Workloads and queues; None: as shipped.
    queues
        Number of ClusterQueues where a site has none of its own, each with an equal part of the quota.
    log_level
        As shipped it logs each step of each Workload.
    """

    qps: int = 300
    burst: int = 500
    workers: int | None = None
    queues: int = 1
    log_level: str = "2"

    def concurrency(self) -> dict[str, int]:
        """Return ``controller.groupKindConcurrency``."""
        shipped = {
            "Job.batch": 5,
            "Workload.kueue.x-k8s.io": 10,
            "LocalQueue.kueue.x-k8s.io": 5,
            "ClusterQueue.kueue.x-k8s.io": 5,
        }
        return shipped if self.workers is None else dict.fromkeys(shipped, self.workers)


class Kueue:
    """The manager of Kueue, with queues for the whole cluster.

    Parameters
    ----------
    folder
        Its files.
    plane
        The control plane, started.
    site
        The cluster and its queues.
    settings
        See `KueueSettings`.
    """

    def __init__(self, folder: Path, plane: ControlPlane, site: Site, settings: KueueSettings) -> None:
        self.queues = KueueQueues(site, settings.queues)
        self._folder = folder
        self._plane = plane
        self._settings = settings
        self._programs = cached_programs(
            cache_folder() / "benchmarks" / f"kueue-{KUEUE_VERSION}",
            ["kueue"],
            lambda target: build_tools(target, module=_MODULE),
        )
        self._webhook_port, self._health_port = free_port(), free_port()
        self._documents: list[dict[str, Any]] = []
        self.process: Process | None = None

    def prepare(self) -> list[dict[str, Any]]:
        """Render the manifests, and return the CustomResourceDefinitions.

        They are created before the controllers of the plane start, because the garbage collector learns of
        later kinds only every 30 s.
        """
        kubectl = self._plane.binaries[Tool.KUBECTL]
        rendered = subprocess.run(
            [kubectl, "kustomize", self._programs / "config" / "default"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        self._documents = installed(list(yaml.safe_load_all(rendered.stdout)), self._webhook_port)
        return [document for document in self._documents if document["kind"] == _DEFINITION]

    def start(self) -> None:
        """Install Kueue on the started plane, start its manager, and create its queues without those of
        namespaces.
        """
        self._folder.mkdir(parents=True)
        self._plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
        self._plane.apply(
            *(document for document in self._documents if document["kind"] != _DEFINITION),
            namespace=_NAMESPACE,
        )
        self._start_manager()
        self._plane.apply(*self.queues.cluster_objects())

    def stop(self) -> None:
        """Stop the manager."""
        if self.process is not None:
            self.process.stop(0)

    def _start_manager(self) -> None:
        settings = self._settings
        config = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._webhook_port, "certDir": str(self._serving)},
            "leaderElection": {"leaderElect": False},
            "controller": {"groupKindConcurrency": settings.concurrency()},
            "clientConnection": {"qps": settings.qps, "burst": settings.burst},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": _SERVICE,
                "webhookSecretName": _SECRET,
            },
            "integrations": {"frameworks": ["batch/job"]},
        }
        path = write_private(self._folder / "manager.json", json.dumps(config).encode())
        kubeconfig = self._plane.service_account_kubeconfig(_NAMESPACE, _ACCOUNT)
        self.process = Process(
            "kueue",
            [
                self._programs / "kueue",
                f"--config={path}",
                f"--zap-log-level={settings.log_level}",
                "--feature-gates=VisibilityOnDemand=false",
                f"--kubeconfig={kubeconfig}",
            ],
            log=self._folder / "kueue.log",
            environment={"HOME": str(self._folder), "PATH": "/usr/bin:/bin", "POD_NAMESPACE": _NAMESPACE},
            folder=self._folder,
        )
        self.process.start()
        self.process.wait_ready(self._ready, 120)

    @property
    def _serving(self) -> Path:
        return self._folder / "serving"

    def _ready(self) -> bool:
        """True if the manager and its webhooks answer.
        On the way, mount the Secret of its certificate as a kubelet would.
        """
        if not self._serving.exists():
            data = (
                self._plane.client.get(f"/api/v1/namespaces/{_NAMESPACE}/secrets/{_SECRET}").get("data") or {}
            )
            if "tls.crt" in data:
                self._serving.mkdir(mode=0o700)
                for name, text in data.items():
                    write_private(self._serving / name, base64.b64decode(text))
            return False
        return _listens(self._webhook_port) and _answers(f"http://127.0.0.1:{self._health_port}/readyz")


def installed(documents: Sequence[dict[str, Any]], port: int) -> list[dict[str, Any]]:
    """Return what is installed of the manifests, with webhooks and conversions that lead to a port of this
    machine.
    """
    kept = [document for document in documents if document["kind"] not in _SKIPPED_KINDS]
    for document in kept:
        if document["kind"] == _DEFINITION and "conversion" in document["spec"]:
            document["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] = port
        if document["kind"].endswith(_CONFIGURATION):
            document["webhooks"] = [hook for hook in document["webhooks"] if _is_called(hook["rules"])]
            for hook in document["webhooks"]:
                hook["clientConfig"]["service"]["port"] = port
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _SERVICE, "namespace": _NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    return [*kept, service]


def _is_called(rules: Sequence[Mapping[str, Any]]) -> bool:
    return any(resource in _CALLED_FOR for rule in rules for resource in rule["resources"])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status) == 200
    except OSError:
        return False
