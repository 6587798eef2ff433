"""The commands of pages that need a running fluxqueue, run as written, beside pods that are processes."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from support.end_to_end import Stage
from support.pages import ROOT, blocks_run_by
from support.replicas import leader

from fluxqueue.cli.queue_endpoint import CA_VARIABLE, URL_VARIABLE
from fluxqueue.local.binaries import Tool

HERE = "tests/e2e/test_pages.py"
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/fluxqueue-webhook"


@pytest.fixture
def stage(computing: Stage) -> Stage:
    """A namespace whose pods run as processes."""
    return computing


def environment_of(stage: Stage, folder: Path) -> dict[str, str]:
    """Return the variables of ``fluxqueue local env``:
    in a local cluster the queue is no pod, so its address is given.
    """
    name = leader(stage.cluster)
    assert name is not None
    port = next(program.metrics_port for program in stage.cluster.running() if program.name == name)
    bundle = stage.cluster.control_plane.client.get(WEBHOOK)["webhooks"][0]["clientConfig"]["caBundle"]
    authority = folder / "queue-ca.crt"
    authority.write_bytes(base64.b64decode(bundle))
    return {
        **stage.cluster.control_plane.kubectl_environment(),
        URL_VARIABLE: f"https://127.0.0.1:{port}",
        CA_VARIABLE: str(authority),
    }


def typed(stage: Stage, folder: Path, block: str) -> str:
    """Run a block in the repository, as somebody who works in the namespace of the test,
    and return what it prints.
    """
    environment = environment_of(stage, folder)
    kubectl = Path(stage.cluster.control_plane.binaries[Tool.KUBECTL])
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), str(kubectl.parent), environment["PATH"]]
    )
    config = yaml.safe_load(Path(environment["KUBECONFIG"]).read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = stage.namespace
    environment["KUBECONFIG"] = str(folder / "kubeconfig")
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    (folder / "kubeconfig").chmod(0o600)
    command = ["bash", "-euo", "pipefail", "-c", block.replace("-n team", f"-n {stage.namespace}")]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_commands_of_troubleshooting_work_on_work_that_runs(stage: Stage, tmp_path: Path) -> None:
    blocks = blocks_run_by("troubleshooting.md", HERE)
    assert len(blocks) >= 2
    stage.apply(ROOT / "examples" / "20-indexed-job.yaml")
    stage.until(
        "lammps has its nodes", lambda: stage.row("lammps").state in ("Allocated", "Running", "Completed")
    )
    for block in blocks:
        typed(stage, tmp_path, block)


def test_the_commands_of_the_other_pages_work(stage: Stage, tmp_path: Path) -> None:
    stage.until_consistent()
    blocks = [
        block
        for page in ("install.md", "operations.md", "incidents.md")
        for block in blocks_run_by(page, HERE)
    ]
    assert len(blocks) >= 4
    try:
        for block in blocks:
            typed(stage, tmp_path, block)
    finally:
        stage.kubectl(
            "delete",
            "-f",
            str(ROOT / "examples" / "20-indexed-job.yaml"),
            "--ignore-not-found",
            "--wait=true",
            "--timeout=60s",
        )


def test_a_bundle_has_no_value_of_any_secret_of_the_cluster(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tgz"
    typed(stage, tmp_path, f"kubectl fluxqueue doctor --bundle {file}")
    with tarfile.open(file) as archive:
        parts = {
            each.name: found.read()
            for each in archive.getmembers()
            if (found := archive.extractfile(each)) is not None
        }
    assert {
        f"fluxqueue-bundle/{name}" for name in ("findings.json", "fluxqueues.json", "queue/queue.metrics")
    } <= parts.keys()
    assert b"fluxqueue_role" in parts["fluxqueue-bundle/queue/queue.metrics"]
    secrets = stage.cluster.control_plane.client.get("/api/v1/secrets")["items"]
    values = {
        base64.b64decode(value)
        for secret in secrets
        for name, value in (secret.get("data") or {}).items()
        if not name.endswith(".crt")
    }
    assert values
    assert [
        name
        for name, content in parts.items()
        if any(value.strip() in content for value in values if value.strip())
    ] == []
