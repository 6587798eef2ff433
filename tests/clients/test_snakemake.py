"""Snakemake's executor for Kubernetes submits plain Jobs,
whose pods run Snakemake again on the files of a storage.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from support.end_to_end import Stage
from support.workflow_clients import WHEELS

SNAKEFILE = Path(__file__).with_name("Snakefile")


def test_a_workflow_of_fifty_steps_completes(
    stage: Stage, clients: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    wheels = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_FIND_LINKS": str(clients.parent / WHEELS)}
    environment = {**environment, **wheels, "HOME": str(tmp_path)}
    work, storage = tmp_path / "work", tmp_path / "storage"
    work.mkdir()
    shutil.copy(SNAKEFILE, work)
    options = [
        "--executor",
        "kubernetes",
        "--kubernetes-namespace",
        stage.namespace,
        "--jobs",
        "4",
        "--group-components",
        "parts=5",
    ]
    options += [
        "--default-storage-provider",
        "fs",
        "--default-storage-prefix",
        str(storage),
        "--seconds-between-status-checks",
        "1",
        "--envvars",
        *wheels,
    ]
    command: list[str | Path] = [clients / "snakemake", *options]
    log = tmp_path / "client.log"
    with log.open("w") as output:
        client = subprocess.Popen(
            command, cwd=work, env={**os.environ, **environment}, stdout=output, stderr=output
        )
        try:
            stage.until(
                "it ends",
                lambda: client.poll() is not None,
                200,
                lambda: f"{log.read_text()[-3_000:]}\n{stage.pod_logs()}",
            )
        finally:
            client.kill()
            client.wait(60)
        said = f"{log.read_text()[-6_000:]}\n{stage.pod_logs()}"
    assert client.returncode == 0, said
    assert (storage / "total.txt").read_text() == f"{sum(range(49))}\n"
    created = stage.kubectl(
        "get", "events", "--field-selector", "reason=SuccessfulCreate,involvedObject.kind=Job", "-o", "name"
    ).stdout
    assert len(created.split()) == 11, "ten pods with five steps each, less one, and one with their sum"
    left = ("get", "jobs,pods,fluxjobs", "-o", "yaml")
    stage.until(
        "its Jobs are gone",
        lambda: stage.fluxjobs() == [],
        180,
        said=lambda: stage.kubectl(*left).stdout[:9_000],
    )
