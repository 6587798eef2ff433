"""Parsl's KubernetesProvider starts its blocks as bare pods, which wait in the queue like all others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.end_to_end import Stage

from fluxqueue.api.fluxjobs import State

WORKFLOW = Path(__file__).with_name("parsl_workflow.py")


def test_a_workflow_of_fifty_steps_completes(
    stage: Stage, clients: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    command: list[str | Path] = [clients / "python", WORKFLOW, stage.namespace, tmp_path / "runs"]
    client = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        stage.until("its blocks are queued", lambda: len(stage.fluxjobs()) == 2)
        stage.until(
            "both run",
            lambda: {job.status.state for job in stage.fluxjobs()} == {State.RUNNING},
            said=stage.pod_logs,
        )
        output, _ = client.communicate(timeout=180)
    finally:
        client.kill()
    assert "sum 95" in output, f"{output}\n{stage.pod_logs()}"
    assert client.returncode == 0
    stage.until("its pods are gone", lambda: stage.fluxjobs() == [])
