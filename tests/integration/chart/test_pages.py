"""The commands of install, operations and incidents that need no running program,
run as written on a control plane of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages import ROOT, blocks_run_by

from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane

HERE = "tests/integration/chart/test_pages.py"


@pytest.fixture(scope="module")
def plain_cluster(service_folder: Path) -> Iterator[ControlPlane]:
    cluster = ControlPlane(service_folder / "pages", nodes=1)
    cluster.start()
    yield cluster
    cluster.destroy()


def test_the_commands_of_the_pages_work_in_their_order(plain_cluster: ControlPlane, tmp_path: Path) -> None:
    environment = plain_cluster.kubectl_environment()
    tools = {str(Path(plain_cluster.binaries[tool]).parent) for tool in (Tool.KUBECTL, Tool.HELM)}
    environment |= {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), *sorted(tools), environment["PATH"]]),
        **{f"HELM_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
    }
    blocks = [
        block
        for page in ("install.md", "operations.md", "incidents.md")
        for block in blocks_run_by(page, HERE)
    ]
    assert len(blocks) >= 9
    for block in blocks:
        script = block.replace("/tmp/", f"{tmp_path}/")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
