"""The commands of docs/install.md and docs/operations.md that need a running fluxqueue, run as written."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

from support.end_to_end import Stage
from support.pages import ROOT, blocks_run_by
from support.replicas import leader

from fluxqueue.cli.queue_endpoint import CA_VARIABLE, URL_VARIABLE
from fluxqueue.local.binaries import Tool

HERE = "tests/e2e/test_pages.py"


WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/fluxqueue-webhook"


def environment_of(stage: Stage, folder: Path) -> dict[str, str]:
    """Return the variables of ``fluxqueue local env``: in a local cluster the queue is no pod, so its address is given."""
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


def test_the_commands_of_both_pages_work(stage: Stage, tmp_path: Path) -> None:
    cluster = stage.cluster.control_plane
    stage.until_consistent()
    environment = environment_of(stage, tmp_path)
    folders = [str(Path(sys.executable).parent), str(Path(cluster.binaries[Tool.KUBECTL]).parent), environment["PATH"]]
    environment["PATH"] = os.pathsep.join(folders)
    blocks = [*blocks_run_by("install.md", HERE), *blocks_run_by("operations.md", HERE)]
    assert len(blocks) >= 4
    try:
        for block in blocks:
            command = ["bash", "-euo", "pipefail", "-c", block.replace("-n team", f"-n {stage.namespace}")]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False)
            assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    finally:
        stage.kubectl("delete", "-f", str(ROOT / "examples" / "20-indexed-job.yaml"), "--ignore-not-found", "--wait=true", "--timeout=60s")
