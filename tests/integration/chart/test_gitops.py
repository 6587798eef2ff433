"""What Argo CD does with the chart, on a real API server:
the same objects are applied again and again, and nothing changes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.chart_rendering import CHART, NAMESPACE, RELEASE

from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

VALUES: Mapping[str, Any] = {
    "gitOps": True,
    "postgres": {"enabled": False},
    "database": {"existingSecret": {"name": "own"}},
    "enforcement": {"mode": "deny"},
    "webhook": {"replicas": 0},
    "queue": {"replicas": 0},
}


@pytest.fixture(scope="module")
def plain_cluster(service_folder: Path) -> Iterator[ControlPlane]:
    cluster = ControlPlane(service_folder / "gitops", nodes=1)
    cluster.start()
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield cluster
    cluster.destroy()


def rendered(cluster: ControlPlane) -> list[dict[str, Any]]:
    """Render as Argo CD does: without the cluster, and without what Helm alone uses."""
    command: list[str | Path] = [
        cluster.binaries[Tool.HELM],
        "template",
        RELEASE,
        CHART,
        "--namespace",
        NAMESPACE,
        "--include-crds",
        "--values",
        "-",
    ]
    done = subprocess.run(
        command, input=json.dumps(VALUES), capture_output=True, text=True, timeout=60, check=True
    )
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    return [each for each in objects if "helm.sh/hook" not in (each["metadata"].get("annotations") or {})]


def sync(cluster: ControlPlane) -> dict[str, str]:
    """Apply everything in the order of its waves, and return uid and generation of each object by its
    name.
    """
    objects = rendered(cluster)
    definitions = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    queues = [each for each in objects if each["kind"] == "FluxQueue"]
    others = [each for each in objects if each not in definitions and each not in queues]
    found: dict[str, str] = {}
    for wave in (definitions, others, queues):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": wave})
        arguments = (
            "apply",
            "--server-side",
            "--field-manager=argocd-controller",
            "--namespace",
            NAMESPACE,
            "-o",
            "json",
            "-f",
            "-",
        )
        applied = json.loads(cluster.kubectl(*arguments, stdin=text).stdout)
        for each in applied.get("items", [applied]):
            meta = each["metadata"]
            found[f"{each['kind']} {meta['name']}"] = f"{meta['uid']} {meta.get('generation')}"
        if wave is definitions:
            wait_until(
                lambda: cluster.kubectl("get", "fluxqueues", check=False).returncode == 0,
                "the kinds to be served",
                60,
            )
    return found


def test_a_second_sync_makes_nothing_again_and_changes_nothing(plain_cluster: ControlPlane) -> None:
    first = sync(plain_cluster)
    assert "FluxQueue default" in first
    assert sync(plain_cluster) == first


def test_what_the_queue_writes_into_webhook_configurations_stays(plain_cluster: ControlPlane) -> None:
    sync(plain_cluster)
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/fluxqueue-webhook"
    plain_cluster.client.request(
        "PATCH",
        path,
        [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg=="}],
        patch="json",
    )
    sync(plain_cluster)
    assert plain_cluster.client.get(path)["webhooks"][0]["clientConfig"]["caBundle"] == "Cg=="
