"""The chart on real nodes, and work for it: what `tests/node` uses.

A `RealCluster` has the members of an in-process cluster that a `Stage` needs, so work is applied, followed
and judged as in the end-to-end tests. Whether cluster, queue and matcher agree is asked from the doctor of
the installation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from support.builders import Json, make_job, make_owner, make_pod
from support.chart_rendering import CHART, NAMESPACE, RELEASE
from support.end_to_end import Stage

from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.nodes import addons
from fluxqueue.local.nodes.cluster import NodeCluster
from fluxqueue.local.nodes.images import Image, ImageArchive, built_images, chart_values
from fluxqueue.local.nodes.memory import container_memory
from fluxqueue.local.nodes.programs import built_programs
from fluxqueue.local.nodes.requirements import node_obstacle
from fluxqueue.local.values import merged

T = TypeVar("T")
MODE = os.environ.get("FLUXQUEUE_NODES", "")
"""``build``: missing programs and images are built, as for `make test-node`. ``keep``: images of an earlier
content are used, to try a change of tests again. Otherwise the tests are skipped where something is
missing."""
FIGURES: list[str] = []
"""What was measured, printed at the end of the run."""
_PLUGIN = Path(sys.executable).with_name("kubectl-fluxqueue")
_STARTING_S = 180


class RealCluster:
    """A cluster of real nodes and the release on it.

    Parameters
    ----------
    nodes
        The nodes; they run.
    images
        The images; every node has them.
    """

    def __init__(self, nodes: NodeCluster, images: Mapping[Image, ImageArchive]) -> None:
        self.nodes = nodes
        self.images = images
        self.control_plane = SimpleNamespace(client=nodes.client)
        self.kubeconfig = nodes.layout.kubeconfig

    def kubectl(
        self, *words: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator."""
        return self.nodes.kubectl(*words, stdin=stdin, check=check)

    def get(self, *words: str) -> Json:
        """Read objects with ``kubectl get``."""
        document: Json = json.loads(self.kubectl("get", *words, "-o", "json").stdout)
        return document

    def install(self, **values: Any) -> float:
        """Install the chart and return the seconds until every program is Ready and a replica of the queue
        leads.
        """
        addons.free_volumes(self.nodes.client, self.nodes.nodes)
        began = time.monotonic()
        self._helm("install", "--create-namespace", values)
        self.until("a replica of the queue leads", lambda: self.doctor(check=False).returncode == 0, 60)
        return time.monotonic() - began

    def upgrade(self, **values: Any) -> float:
        """Upgrade the release and return how long that took, in seconds."""
        began = time.monotonic()
        self._helm("upgrade", "--install", values)
        return time.monotonic() - began

    def uninstall(self) -> None:
        """Uninstall the release, and wait until its pods are gone."""
        self.nodes.helm(
            "uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "3m", check=False
        )
        # Helm leaves what `helm test` created
        self.kubectl("-n", NAMESPACE, "delete", "pod", f"{RELEASE}-test", "--ignore-not-found")
        self.until(
            "the pods of the release are gone", lambda: not self.get("pods", "-n", NAMESPACE)["items"], 120
        )

    def remove(self) -> None:
        """Uninstall, and delete all that the release leaves on purpose:
        CRDs with their objects, Secrets, the volume's claim.
        """
        self.uninstall()
        definitions = [one["metadata"]["name"] for one in self.get("crd")["items"]]
        ours = [
            name for name in definitions if name.endswith(("converged-computing.org", "flux-framework.org"))
        ]
        if ours:
            self.kubectl("delete", "crd", *ours, "--timeout=90s")
        self.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")

    def pods(self, component: str = "") -> list[Json]:
        """Return the pods of the release."""
        selector = f",app.kubernetes.io/component={component}" if component else ""
        found: list[Json] = self.get(
            "pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/name=fluxqueue{selector}"
        )["items"]
        return found

    def doctor(self, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``kubectl fluxqueue doctor``; it must agree, unless ``check`` is false."""
        command = [str(_PLUGIN), "doctor", "--kubeconfig", str(self.kubeconfig)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=200, check=False, env=self.nodes.environment()
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    def until_agreed(self, within_s: float = 120) -> None:
        """Wait until the doctor finds no difference between cluster, queue and matcher."""
        self.until(
            "the doctor agrees",
            lambda: self.doctor(check=False).returncode == 0,
            within_s,
            lambda: self.doctor(check=False).stdout,
        )

    def until(
        self,
        what: str,
        holds: Callable[[], T],
        within_s: float = 120,
        said: Callable[[], object] | None = None,
    ) -> T:
        """Wait until a condition is true, and return its value."""
        deadline = time.monotonic() + within_s
        while not (value := holds()):
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}; {said() if said else ''}"
            time.sleep(0.2)
        return value

    def note_memory(self, when: str) -> None:
        """Note the resident memory of every container of the release."""
        memory = container_memory()
        containers = [
            (pod["metadata"]["name"], status)
            for pod in self.pods()
            for status in pod["status"].get("containerStatuses", [])
        ]
        for pod, status in containers:
            used = memory.get(status.get("containerID", "").rpartition("/")[2])
            FIGURES.append(
                f"memory {when}: {pod}/{status['name']} "
                f"{f'{used.pss_mib:.0f} MiB PSS' if used else 'unknown'}"
            )

    def _helm(self, verb: str, flag: str, values: Mapping[str, Any]) -> None:
        text = json.dumps(merged(chart_values(dict(self.images)), values))
        words = [
            verb,
            RELEASE,
            str(CHART),
            "--namespace",
            NAMESPACE,
            flag,
            "--values",
            "-",
            "--wait",
            "--timeout",
            f"{_STARTING_S}s",
        ]
        done = self.nodes.helm(*words, stdin=text, check=False)
        assert done.returncode == 0, f"helm {verb}: {done.stderr}\n{self._standing()}"

    def _standing(self) -> str:
        pods = self.kubectl("-n", NAMESPACE, "get", "pods", "-o", "wide", check=False).stdout
        events = self.kubectl(
            "-n", NAMESPACE, "get", "events", "--sort-by=.lastTimestamp", check=False
        ).stdout
        return f"{pods}\n{events[-3_000:]}"


class NodeStage(Stage):
    """A managed namespace on real nodes."""

    @property
    def real(self) -> RealCluster:
        """The cluster."""
        return cast(RealCluster, self.cluster)

    def _left(self) -> list[str]:
        return [f"FluxJob {fluxjob.metadata.name}" for fluxjob in self.fluxjobs()]

    def until_consistent(self, within_s: float = 120) -> None:
        """Wait until the doctor agrees."""
        self.real.until_agreed(within_s)

    def make_job(self, name: str, script: str, **more: Any) -> Json:
        """Return a Job whose pods run a shell script; further fields of its spec are named as in the API."""
        made = make_job(name).with_("spec.backoffLimit", 0)
        pods = more.pop("pods", 1)
        made = made.indexed(pods) if pods > 1 else made
        for key, value in more.items():
            made = made.with_(f"spec.{key}", value)
        document = made.build()
        self._run(document["spec"]["template"]["spec"], script)
        return document

    def make_pod(self, name: str, script: str) -> Any:
        """Return a bare pod that runs a shell script, as a builder's document."""
        document = make_pod(name).without("metadata.namespace").with_("spec.restartPolicy", "Never").build()
        self._run(document["spec"], script)
        return document

    def make_deployment(self, name: str, replicas: int, script: str) -> Json:
        """Return a Deployment whose pods run a shell script."""
        document = make_owner("Deployment", name, replicas, cpu="100m")
        self._run(document["spec"]["template"]["spec"], script)
        return document

    def logs(self, *words: str) -> str:
        """Return the output of containers; nothing, while they are being created."""
        text: str = self.kubectl("logs", *words, check=False).stdout
        return text

    def _run(self, spec: Json, script: str) -> None:
        container = spec["containers"][0]
        container |= {
            "image": self.real.images[Image.WORK].name,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", script],
        }
        container["resources"] = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}
        spec["terminationGracePeriodSeconds"] = 1


@contextmanager
def node_namespace(cluster: RealCluster, name: str) -> Iterator[NodeStage]:
    """Create a managed namespace; at the end its objects are deleted, and the doctor must agree."""
    client = cluster.nodes.client
    client.request(
        "POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"fluxqueue/managed": "true"}}}
    )
    stage = NodeStage(cast(InProcessCluster, cluster), name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    stage.until("the default service account is there", lambda: client.find(account) is not None)
    yield stage
    stage.clear(120)
    client.request("DELETE", f"/api/v1/namespaces/{name}")


def require_nodes() -> None:
    """Skip a module where real nodes cannot run, or where something would have to be built first."""
    if obstacle := node_obstacle():
        pytest.skip(obstacle)
    if not MODE and (built_programs(build=False) is None or built_images(build=False) is None):
        pytest.skip("programs or images of real nodes are not in the cache: `make test-node` builds them")
