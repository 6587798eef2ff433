"""The scheduler as a separate process, and pods as the queue releases them."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.builders import PodBuilder, make_pod
from support.loop_blocks import assert_short_logged_blocks

from fluxqueue.api import names
from fluxqueue.local.apiserver_client import ApiServerClient, administrator_client
from fluxqueue.local.applying import Applier
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.operator_requests import OperatorRequests
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import Process, wait_until

__all__ = ["WAIT_S", "Room", "SchedulerProcess", "released"]

WAIT_S = 60.0


class SchedulerProcess:
    """One replica.

    Parameters
    ----------
    kubeconfig, folder
        The credentials, and the folder of its log.
    replica
        Its name.
    namespace, lease
        Namespace and name of its Lease.
    environment
        Variables in addition to those of this process.
    arguments
        More arguments of the command line.
    """

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        replica: str,
        *,
        namespace: str = "default",
        lease: str = "fluxqueue-scheduler",
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.port, self.metrics_port = free_port(), free_port()
        self._plane = next(parent for parent in kubeconfig.parents if (parent / "pki").is_dir())
        program = "import sys; from fluxqueue.cli.main import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "scheduler", "--kubeconfig", str(kubeconfig)]
        command += ["--namespace", namespace, "--lease", lease, "--replica", replica]
        command += [
            "--host",
            "127.0.0.1",
            "--health-port",
            str(self.port),
            "--metrics-port",
            str(self.metrics_port),
        ]
        command += ["--tls-dir", str(folder / "no-certificate"), "--log-level", "debug", *arguments]
        self.process = Process(
            f"scheduler-{replica}",
            command,
            folder / f"scheduler-{replica}.log",
            {**os.environ, **(environment or {})},
        )

    def start(self, *, role: str = "leader") -> SchedulerProcess:
        self.process.start()
        self.wait_role(role)
        return self

    def wait_role(self, role: str) -> None:
        self.process.wait_ready(lambda: self.asked()["role"] == role and bool(self.asked()["ready"]), WAIT_S)

    def wait_end(self) -> int | None:
        """Return its exit code once it has ended by itself."""
        return self.process.wait(WAIT_S)

    def stop(self) -> None:
        """End it. Its event loop may not have been blocked for long."""
        self.process.stop()
        assert_short_logged_blocks([self.process.log])

    def asked(self) -> dict[str, Any]:
        """Return the response of ``/readyz``: ``ready``, ``role`` and ``missing``."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=30) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except OSError as error:
            return {"ready": False, "role": "", "missing": [f"scheduler ({error})"]}

    def metrics(self) -> dict[str, float]:
        """Return its metrics by name with labels."""
        client = administrator_client(self._plane)
        try:
            text = _metrics_requests(client).metrics(self.metrics_port).decode()
        finally:
            client.close()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def _metrics_requests(client: ApiServerClient) -> OperatorRequests:
    """Return requests of a ServiceAccount that may read metrics, which is created for it."""
    name = "metrics-reader"
    rbac = "rbac.authorization.k8s.io"
    Applier(client).apply(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": name},
                "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
            },
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
            },
        ],
        "default",
    )
    return OperatorRequests(lambda: client, "default", name)


class Room:
    """A namespace for one test, with its operations."""

    def __init__(self, cluster: ControlPlane, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}"

    def create(self, pod: Any) -> str:
        """Create a pod and return its uid."""
        return str(self.cluster.client.request("POST", f"{self.path}/pods", pod.build())["metadata"]["uid"])

    def pod(self, name: str) -> dict[str, Any]:
        return dict(self.cluster.client.get(f"{self.path}/pods/{name}"))

    def annotate(self, name: str, **annotations: str | None) -> None:
        changed = {f"fluxqueue/{key.replace('_', '-')}": text for key, text in annotations.items()}
        self.cluster.client.request(
            "PATCH", f"{self.path}/pods/{name}", {"metadata": {"annotations": changed}}
        )

    def ungate(self, name: str) -> None:
        self.cluster.client.request("PATCH", f"{self.path}/pods/{name}", {"spec": {"schedulingGates": []}})

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def condition(self, name: str) -> dict[str, Any]:
        """Return the pod's condition PodScheduled; empty if it has none."""
        conditions = self.pod(name)["status"].get("conditions") or []
        return next((dict(each) for each in conditions if each["type"] == "PodScheduled"), {})

    def events(self, name: str, reason: str) -> list[dict[str, Any]]:
        document = self.cluster.client.get(
            f"{self.path}/events", fieldSelector=f"involvedObject.name={name},reason={reason}"
        )
        return [dict(each) for each in document["items"]]

    def wait_bound(self, name: str, node: str) -> None:
        wait_until(lambda: self.node_of(name) != "", f"{name} bound", WAIT_S)
        assert self.node_of(name) == node

    def wait_condition(self, name: str, reason: str, *mentions: str) -> dict[str, Any]:
        def has_condition() -> bool:
            current = self.condition(name)
            return current.get("reason") == reason and all(
                each in current.get("message", "") for each in mentions
            )

        wait_until(has_condition, f"{name} has the condition {reason} {mentions}", WAIT_S)
        return self.condition(name)


def released(name: str, node: str, *, allocation: str = "7", gang: int = 0, cpu: str = "10m") -> PodBuilder:
    """Return a pod of our scheduler, as the queue releases it."""
    pod = (
        make_pod(name)
        .with_("spec.schedulerName", names.SCHEDULER_NAME)
        .cpu(cpu)
        .with_("spec.terminationGracePeriodSeconds", 0)
    )
    pod = (
        pod.annotation(names.ALLOCATION_ANNOTATION, allocation)
        .annotation(names.NODES_ANNOTATION, node)
        .without("metadata.namespace")
    )
    return pod.annotation(names.GANG_SIZE_ANNOTATION, str(gang)) if gang else pod
