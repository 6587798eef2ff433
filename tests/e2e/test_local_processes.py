"""The page about pods as processes, typed from its first command to its last."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.namespaces import needs_namespaces
from support.pages import ROOT, blocks_run_by

from fluxqueue.local.kubelet.children import MARK

HERE = "tests/e2e/test_local_processes.py"


def marked(folder: str) -> list[str]:
    """Return the processes of pods of a cluster, and the cluster's own, by their commands."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                f"{MARK}={folder}".encode() in (process / "environ").read_bytes()
                or folder.encode() in (process / "cmdline").read_bytes()
            ):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.timeout(900)
def test_a_person_computes_on_a_laptop_and_leaves_nothing() -> None:
    needs_namespaces()
    if shutil.which("curl") is None:
        pytest.skip("the page uses curl")
    with tempfile.TemporaryDirectory(prefix="fluxqueue-processes-") as state:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "XDG_STATE_HOME": state}
        try:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-m", "-c", "\n".join(blocks_run_by("local-nodes.md", HERE))],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=800,
                check=False,
            )
        finally:
            subprocess.run(
                ["fluxqueue", "local", "down"], env=environment, capture_output=True, timeout=120, check=True
            )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "pi is 3.1415926536, computed by 8 ranks on 2 nodes\n" in done.stdout
        assert "0: computed\n" in done.stdout
        assert "hello from hello-" in done.stdout
        assert marked(state) == []
