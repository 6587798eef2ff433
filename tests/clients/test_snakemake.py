"""Snakemake's executor for Kubernetes submits plain Jobs, whose pods run Snakemake again on the files of a storage."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from support.end_to_end import Stage
from support.process_pods import ProcessPods
from support.workflow_clients import WHEELS

SNAKEFILE = Path(__file__).with_name("Snakefile")
RSYNC = """#!/usr/bin/env python3
# The part of rsync that Snakemake's storage uses: copy one file or folder.
import pathlib, shutil, sys
source, target = sys.argv[-2:]
if pathlib.Path(source).is_dir():
    shutil.copytree(source, target, dirs_exist_ok=True)
else:
    shutil.copy2(source, target)
"""


def test_a_workflow_of_fifty_steps_completes(stage: Stage, clients: Path, environment: dict[str, str], tmp_path: Path) -> None:
    wheels = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_FIND_LINKS": str(clients.parent / WHEELS)}
    environment = {**environment, **wheels, "HOME": str(tmp_path), "PATH": f"{_with_rsync(tmp_path)}{environment['PATH']}"}
    work, storage = tmp_path / "work", tmp_path / "storage"
    work.mkdir()
    shutil.copy(SNAKEFILE, work)
    options = ["--executor", "kubernetes", "--kubernetes-namespace", stage.namespace, "--jobs", "4", "--group-components", "parts=5"]
    options += ["--default-storage-provider", "fs", "--default-storage-prefix", str(storage), "--seconds-between-status-checks", "1"]
    command: list[str | Path] = [clients / "snakemake", *options]
    log = tmp_path / "client.log"
    with ProcessPods(stage.cluster.control_plane.client, stage.namespace, tmp_path / "pods", environment) as pods, log.open("w") as output:
        client = subprocess.Popen(command, cwd=work, env={**os.environ, **environment}, stdout=output, stderr=output)
        try:
            stage.until("it ends", lambda: client.poll() is not None, 200, lambda: f"{log.read_text()[-3_000:]}\n{pods.logs()}")
        finally:
            client.kill()
            client.wait(60)
        said = f"{log.read_text()[-6_000:]}\n{pods.logs()}"
    assert client.returncode == 0, said
    assert (storage / "total.txt").read_text() == f"{sum(range(49))}\n"
    assert len(pods.ran) == 11, "ten pods with five steps each, less one, and one with their sum"
    left = ("get", "jobs,pods,fluxjobs", "-o", "yaml")
    stage.until("its Jobs are gone", lambda: stage.fluxjobs() == [], 180, said=lambda: stage.kubectl(*left).stdout[:9_000])


def _with_rsync(folder: Path) -> str:
    """Return what to put before PATH so that there is an rsync; empty if there is one."""
    if shutil.which("rsync"):
        return ""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "rsync").write_text(RSYNC)
    (programs / "rsync").chmod(0o755)
    return f"{programs}{os.pathsep}"
