"""The notebooks run from the first cell to the last, as somebody with the role `edit` of a namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.end_to_end import Stage

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def code_of(notebook: Path) -> str:
    """Return the code of all cells."""
    cells = json.loads(notebook.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end(computing: Stage, tmp_path: Path, notebook: Path) -> None:
    computing.kubectl(
        "create",
        "rolebinding",
        "writes",
        "--clusterrole=edit",
        f"--serviceaccount={computing.namespace}:default",
    )
    program = tmp_path / "notebook.py"
    program.write_text(code_of(notebook))
    config = computing.cluster.control_plane.service_account_kubeconfig(computing.namespace, "default")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        env={**os.environ, "KUBECONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    computing.until("nothing of it is left", lambda: not computing.items("jobs", dict))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_output(notebook: Path) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
