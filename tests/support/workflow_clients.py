"""Workflow managers from PyPI that start pods, in a virtual environment of their own in the cache.

Their requirements contradict those of the project, and few need them: ``make test-clients`` installs them once.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from fluxqueue.local.binaries import cache_folder

__all__ = ["CLIENTS", "installed_clients"]

CLIENTS: Final = ("parsl==2026.10.26", "kubernetes>=37,<38")
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
        pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *CLIENTS], stdout=sys.stderr, timeout=1_800, check=True)
        mark.write_text(wanted)
    return folder / "bin"
