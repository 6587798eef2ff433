"""A control plane with our kinds and some workloads in every state, written as the queue would write them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.chart_rendering import Chart

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import fluxjob_name
from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def bare_cluster(service_folder: Path) -> Iterator[ControlPlane]:
    """Two nodes and nothing of ours."""
    cluster = ControlPlane(service_folder / "cli", nodes=2)
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="session")
def cluster(bare_cluster: ControlPlane) -> ControlPlane:
    """With our kinds, a queue, and Jobs that are held, running, done and impossible."""
    rendered = Chart(bare_cluster.binaries[Tool.HELM]).render()
    crds = rendered.all("CustomResourceDefinition")
    bare_cluster.apply(*crds)
    for crd in crds:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        wait_until(lambda path=path: "True" in _conditions(bare_cluster, path), "the kinds", 30)  # type: ignore[misc]  # path is bound
    served = f"/apis/{names.API_VERSION}/{names.FLUXJOBS}"
    wait_until(lambda: bare_cluster.client.reachable(served), "FluxJobs served", 30)
    bare_cluster.apply(
        {
            "apiVersion": names.API_VERSION,
            "kind": "FluxQueue",
            "metadata": {"name": "night"},
            "spec": {"policy": "fcfs"},
        }
    )
    _job(
        bare_cluster,
        "waiting",
        pods=4,
        state="Pending",
        reason="WaitingForNodes",
        message="needs 24 cpu, 8 are free",
        position=1,
    )
    _job(
        bare_cluster,
        "running",
        suspend=False,
        state="Running",
        nodes="node-1",
        jobid=7,
        submittedAt="2026-03-02T12:00:00Z",
        allocatedAt="2026-03-02T12:00:01Z",
        startedAt="2026-03-02T12:00:02Z",
    )
    _job(bare_cluster, "done", queue="night", state="Completed", outcome="Succeeded", nodes="node-1")
    _job(bare_cluster, "unlisted", fluxjob=False)
    return bare_cluster


def _conditions(cluster: ControlPlane, path: str) -> list[str]:
    """The statuses of an object's conditions; a moment after it was made there are none."""
    return [
        condition["status"]
        for condition in (cluster.client.get(path).get("status") or {}).get("conditions") or ()
    ]


def _job(
    cluster: ControlPlane,
    name: str,
    *,
    pods: int = 1,
    suspend: bool = True,
    queue: str = "default",
    fluxjob: bool = True,
    **status: Any,
) -> None:
    job = cluster.client.request(
        "POST",
        "/apis/batch/v1/namespaces/default/jobs",
        {
            "metadata": {"name": name, "annotations": {names.DURATION_ANNOTATION: "5m"}},
            "spec": {
                "suspend": suspend,
                "parallelism": pods,
                "completions": pods,
                "completionMode": "Indexed",
                "template": {
                    "metadata": {"annotations": {"fluxqueue.local/run-seconds": "forever"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "nodeSelector": {names.HOSTNAME_LABEL: "node-1"},
                        "containers": [
                            {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "2"}}}
                        ],
                    },
                },
            },
        },
    )
    if not fluxjob:
        return
    uid = job["metadata"]["uid"]
    path = f"/apis/{names.API_VERSION}/namespaces/default/{names.FLUXJOBS}"
    called = fluxjob_name("Job", name, uid)
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    cluster.client.request(
        "POST",
        path,
        {
            "apiVersion": names.API_VERSION,
            "kind": "FluxJob",
            "metadata": {"name": called, "labels": {"team": name}},
            "spec": {
                "objectRef": ref,
                "queue": queue,
                "pods": pods,
                "durationSeconds": 300,
                "jobspec": _jobspec(name, pods),
            },
        },
    )
    cluster.client.request("PATCH", f"{path}/{called}", {"status": status})


def _jobspec(name: str, pods: int) -> str:
    return jobspec_of(f"default/{name}", [SizedPods({"cpu": Decimal(2)}, pods)], duration_s=300)


@pytest.fixture
def kubectl(cluster: ControlPlane) -> Run:
    """Run `kubectl` with our plugin on PATH."""
    return _runner(cluster)


@pytest.fixture
def bare_kubectl(bare_cluster: ControlPlane) -> Run:
    return _runner(bare_cluster)


def _runner(cluster: ControlPlane) -> Run:
    environment = cluster.kubectl_environment()
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(cluster.binaries[Tool.KUBECTL]), *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    return run
