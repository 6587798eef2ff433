"""Workflow managers from PyPI that start pods, in a virtual environment of their own in the cache.

Their requirements contradict those of the project, and few need them: ``make test-clients`` installs them
once.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from fluxqueue.local.user_folders import cache_folder

__all__ = ["CLIENTS", "WHEELS", "installed_clients"]

CLIENTS: Final = (
    "parsl==2026.10.26",
    "kubernetes>=30",
    "snakemake==9.27.1",
    "snakemake-executor-plugin-kubernetes==0.5.1",
    "snakemake-storage-plugin-fs==1.1.3",
)
_IN_PODS: Final = "snakemake-storage-plugin-fs==1.1.3"
"""What Snakemake installs again in each pod."""
WHEELS: Final = "wheels"
"""Folder beside the programs, with what is installed in pods."""
_MARK: Final = "installed"


def installed_clients(*, install: bool) -> Path | None:
    """Return the folder of the clients' programs; None if they are not installed and must not be.

    Raises
    ------
    subprocess.CalledProcessError
        They cannot be installed.
    """
    folder = cache_folder() / "clients" / "venv"
    mark, wanted = folder / _MARK, "\n".join(CLIENTS)
    if not mark.exists() or mark.read_text() != wanted:
        if not install:
            return None
        venv.create(folder, with_pip=True)
        pip: list[str | Path] = [
            folder / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, *CLIENTS], stdout=sys.stderr, timeout=1_800, check=True)
        pip[3] = "download"
        subprocess.run(
            [*pip, "--no-deps", "--dest", folder / WHEELS, _IN_PODS],
            stdout=sys.stderr,
            timeout=600,
            check=True,
        )
        mark.write_text(wanted)
    return folder / "bin"
