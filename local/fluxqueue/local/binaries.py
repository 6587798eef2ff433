"""The Kubernetes programs a local control plane is made of: found, or built once per version.

No package registry carries Kubernetes' server programs, but they build from Go modules checked by go.sum; `local/controlplane/go.mod`
lists all seven as tools. They are looked for in the folder ``KUBEBUILDER_ASSETS`` names, on PATH, and in a cache per version. A
program found outside the cache is used only if its version fits: control plane and kubectl must be of one Kubernetes minor version,
and a vendor's older kubectl on PATH would otherwise be mixed in without anybody noticing. What was passed over is said.

What is still missing is built (`toolchain`), all seven at once, into a folder beside the final one that is renamed when complete: a
cache folder that exists is whole. A lock keeps two first starts from building twice.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

__all__ = ["KUBERNETES_VERSION", "Binaries", "BinariesError", "Tool", "cache_folder", "find_binaries", "locked"]

KUBERNETES_VERSION = "v1.36.3"


class BinariesError(RuntimeError):
    """The programs of a control plane are neither here nor can they be built; says what to do."""


class Tool(Enum):
    """A program of the control plane; the value is its file name in the cache."""

    ETCD = "server"  # the name of etcd's main package
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KUBECTL = "kubectl"
    KWOK = "kwok"
    HELM = "helm"

    @property
    def common_name(self) -> str:
        """What it is called on PATH and in messages."""
        return "etcd" if self is Tool.ETCD else self.value


@dataclass(frozen=True)
class _Fit:
    arguments: tuple[str, ...]
    pattern: re.Pattern[str]
    wanted: str


_KUBERNETES = re.compile(r"v" + re.escape(".".join(KUBERNETES_VERSION[1:].split(".")[:2])) + r"\.\d+(?![\w.-])")
_SERVER = _Fit(("--version",), _KUBERNETES, "Kubernetes 1.36")
_FITS: Mapping[Tool, _Fit] = {
    Tool.ETCD: _Fit(("--version",), re.compile(r"etcd Version: 3\.[6-9]\."), "etcd 3.6"),
    Tool.API_SERVER: _SERVER,
    Tool.CONTROLLER_MANAGER: _SERVER,
    Tool.SCHEDULER: _SERVER,
    Tool.KUBECTL: _Fit(("version", "--client"), re.compile(r"Client Version: " + _KUBERNETES.pattern), "kubectl 1.36"),
    Tool.KWOK: _Fit(("--version",), re.compile(r"kwok version v0\.(?:[89]|\d\d)\."), "kwok 0.8"),
    Tool.HELM: _Fit(("version", "--short"), re.compile(r"v[34]\."), "helm 3 or 4"),
}


@dataclass(frozen=True)
class Binaries:
    """Where each program is.

    Attributes
    ----------
    paths
        One for every `Tool`.
    passed_over
        Sentences about programs that were found but did not fit.
    """

    paths: Mapping[Tool, Path]
    passed_over: tuple[str, ...] = field(default=())

    def __getitem__(self, tool: Tool) -> Path:
        return self.paths[tool]


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/fluxqueue``, by default below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "fluxqueue"


def find_binaries(build: Callable[[Path], None] | None = None) -> Binaries:
    """Find every program of a control plane, building what is missing.

    Parameters
    ----------
    build
        Called with the folder that must hold every `Tool` afterwards; by default `toolchain.build_tools` without a display.

    Raises
    ------
    BinariesError
        A build was needed and failed.
    """
    paths: dict[Tool, Path] = {}
    passed_over: list[str] = []
    for tool in Tool:
        for candidate in _candidates(tool):
            if complaint := _complaint(tool, candidate):
                passed_over.append(complaint)
            else:
                paths[tool] = candidate
                break
    if missing := [tool for tool in Tool if tool not in paths]:
        cached = cached_tools(build)
        paths.update({tool: cached / tool.value for tool in missing})
    return Binaries(paths, tuple(passed_over))


def cached_tools(build: Callable[[Path], None] | None = None) -> Path:
    """The cache folder of this version, filled first if it is not there (see `find_binaries`)."""
    folder = cache_folder() / "controlplane" / KUBERNETES_VERSION
    if _whole(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / "lock"):
        if _whole(folder):  # built by the one we waited for
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            if build is None:
                from fluxqueue.local.toolchain import build_tools

                build_tools(unfinished)
            else:
                build(unfinished)
            if not _whole(unfinished):
                raise BinariesError(f"the build left no complete set of programs in {unfinished}")
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


@contextmanager
def locked(path: Path, timeout_s: float = 3_600) -> Iterator[None]:
    """Hold an exclusive lock on a file, among all processes of this machine.

    Raises
    ------
    BinariesError
        When somebody else holds it longer than ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BinariesError(f"another process holds {path} since {timeout_s:g} s: end it, or wait for it") from None
                time.sleep(0.2)
        yield


def _whole(folder: Path) -> bool:
    return all(os.access(folder / tool.value, os.X_OK) for tool in Tool)


def _candidates(tool: Tool) -> Iterator[Path]:
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        path = Path(assets) / tool.common_name
        if os.access(path, os.X_OK):
            yield path
    if found := shutil.which(tool.common_name):
        yield Path(found)


def _complaint(tool: Tool, path: Path) -> str | None:
    """Why this program is not the one we want; ``None`` if it is."""
    fit = _FITS[tool]
    try:
        answer = subprocess.run([path, *fit.arguments], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} is passed over: {error}"
    said = answer.stdout + answer.stderr
    if answer.returncode == 0 and fit.pattern.search(said):
        return None
    version = said.strip().splitlines()[0] if said.strip() else "nothing"
    return f"{path} is passed over: wanted {fit.wanted}, it says {version[:80]!r}"
